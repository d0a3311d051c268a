//! File descriptors: one for each connection. The usual soft limit of 1024 is for programs that use `select`,
//! which this one does not; it may be raised up to the hard limit without asking anybody.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::limits::OTHER_DESCRIPTORS;

/// Makes room for so many connections, as far as the process may, and says so when it may not.
pub(super) fn make_room(connections: usize) {
    let limit = getrlimit(Resource::Nofile);
    let Some(raised) = raised(&limit, connections) else { return };
    let most = raised.current.unwrap_or(u64::MAX);
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "cannot raise the limit of file descriptors");
    } else if most < needed(connections) {
        tracing::warn!(
            descriptors = most,
            "fewer file descriptors than max-connections needs; raise the hard limit (LimitNOFILE= of \
             systemd, ulimit -H -n) or lower max-connections"
        );
    }
}

fn needed(connections: usize) -> u64 {
    connections as u64 + OTHER_DESCRIPTORS
}

/// The limit to set for so many connections; `None` if there is room already.
fn raised(limit: &Rlimit, connections: usize) -> Option<Rlimit> {
    let needed = needed(connections);
    // No limit: room for everything.
    if limit.current?.ge(&needed) {
        return None;
    }
    let current = limit.maximum.map_or(needed, |hard| hard.min(needed));
    Some(Rlimit { current: Some(current), maximum: limit.maximum })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_as_far_as_needed_and_allowed() {
        let raise = |current, maximum| {
            let limit = raised(&Rlimit { current, maximum }, 4096);
            limit.map(|limit| (limit.current, limit.maximum))
        };
        let needed = 4096 + OTHER_DESCRIPTORS;
        assert_eq!(raise(Some(1024), Some(1 << 19)), Some((Some(needed), Some(1 << 19))));
        assert_eq!(raise(Some(1024), None), Some((Some(needed), None)));
        assert_eq!(raise(Some(1024), Some(2048)), Some((Some(2048), Some(2048))));
        assert_eq!(raise(Some(1 << 19), Some(1 << 19)), None);
        assert_eq!(raise(None, None), None);
    }

    #[test]
    fn the_process_has_room_afterwards() {
        make_room(2000);
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        let expected = maximum.map_or(needed(2000), |hard| hard.min(needed(2000)));
        assert!(current.is_none_or(|current| current >= expected), "{current:?} of {maximum:?}");
    }
}
