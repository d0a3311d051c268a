//! The machine on which this tool runs, as far as the operating system tells.

use std::fs;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::report::schema::MachineFigures;

/// Looks at the machine.
#[must_use]
pub fn figures() -> MachineFigures {
    let kernel = |name: &str| {
        fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default().trim().to_owned()
    };
    let field = |file: &str, name: &str| {
        let text = fs::read_to_string(file).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.split_once(':'));
        value.map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
    };
    let kibibytes = field("/proc/meminfo", "MemTotal");
    let kibibytes = kibibytes.split_whitespace().next().and_then(|number| number.parse().ok());
    MachineFigures {
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        cpu: field("/proc/cpuinfo", "model name"),
        memory_bytes: kibibytes.map_or(0, |kibibytes: u64| kibibytes * 1024),
        system: format!("{} {}", kernel("ostype"), kernel("osrelease")).trim().to_owned(),
    }
}

/// Lets this process open as many files as it may; a connection is one, and the usual 1024 are fewer
/// than a fleet's. That it may not have more shows when it runs out of them.
pub fn allow_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

#[cfg(test)]
mod tests {
    #[test]
    fn this_machine_has_cores() {
        let machine = super::figures();
        assert!(machine.cores >= 1);
        assert!(!machine.cpu.contains('\n') && !machine.system.contains('\n'), "{machine:?}");
    }
}
