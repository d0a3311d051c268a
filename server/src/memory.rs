//! How much memory the process may use, and how the C library's allocator keeps it for the next frame.

use std::{fs, path::Path};

/// Bytes of memory that this process may use: what its control group or the machine allows, whichever is
/// less. `None` where neither says so.
#[must_use]
pub fn usable_bytes() -> Option<u64> {
    let read = |path: &Path| fs::read_to_string(path).ok();
    let machine =
        read(Path::new("/proc/meminfo")).and_then(|meminfo| bytes_of(&meminfo, "MemTotal:"));
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let limits = limit_files(&groups);
    let group = limits.iter().filter_map(|path| read(Path::new(path))?.trim().parse().ok()).min();
    machine.into_iter().chain(group).min()
}

/// The value of a line in kB, as in `/proc/meminfo` and `/proc/self/status`, in bytes.
fn bytes_of(text: &str, label: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(label))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

/// Files that may hold a memory limit, by `/proc/self/cgroup` (cgroups(7)): those of the process's own
/// group, and those of the hierarchy's root, which in a container is its own group under another name.
/// A limit on a group further up is not looked for.
fn limit_files(groups: &str) -> Vec<String> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (root, file) = if controllers.is_empty() {
            ("/sys/fs/cgroup", "memory.max")
        } else if controllers.split(',').any(|controller| controller == "memory") {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        } else {
            continue;
        };
        files.push(format!("{root}{}/{file}", path.trim_end_matches('/')));
        files.push(format!("{root}/{file}"));
    }
    files
}

/// Bytes of this process that are in memory (`proc_pid_status(5)`); `None` where that cannot be read.
#[must_use]
pub fn resident_bytes() -> Option<u64> {
    bytes_of(&fs::read_to_string("/proc/self/status").ok()?, "VmRSS:")
}

/// Tunes glibc's allocator; does nothing with another C library. Called once, at the start. Returns
/// whether every setting was taken.
///
/// By default a heap gives memory back to the kernel beyond 128 KiB and maps larger blocks by themselves, so
/// that every picture's pages are faulted in again. It learns from blocks that were freed, but only from
/// those that were large; and not at all once one of these values is set, so all of them are.
#[must_use]
pub fn keep_for_the_next_frame() -> bool {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        glibc::SETTINGS.into_iter().all(|(parameter, value)| {
            // SAFETY: takes plain numbers; an unknown parameter or value is refused by the return value.
            unsafe { libc::mallopt(parameter, value) == 1 }
        })
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    true
}

/// Gives memory that is free within a heap back to the kernel; does nothing with another C library. Called
/// regularly.
///
/// A heap gives back by itself only what is free at its end: one small block there holds all that a burst
/// took for as long as it lives. What is free at the end of a thread's heap stays, below the threshold.
/// Holds each heap's lock for the walk through its free blocks.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: takes a plain number. Only blocks that are free are touched.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod glibc {
    use std::os::raw::c_int;

    /// Free memory at the end of a heap beyond which it is given back, in bytes: a full-HD picture in
    /// NV12 and some. Each thread's heap keeps up to so much.
    const TRIM_THRESHOLD_BYTES: c_int = 4 << 20;

    /// What a heap grows by at least, in bytes, so that it does not grow for each frame anew.
    const TOP_PAD_BYTES: c_int = 1 << 20;

    /// Size from which a block is mapped by itself and unmapped when freed, in bytes: the largest value
    /// that glibc would learn.
    const MMAP_THRESHOLD_BYTES: c_int = 32 << 20;

    pub(super) const SETTINGS: [(c_int, c_int); 3] = [
        (libc::M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES),
        (libc::M_TOP_PAD, TOP_PAD_BYTES),
        (libc::M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES),
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_memory() {
        assert!(usable_bytes().is_some_and(|bytes| bytes > 1 << 24));
        let meminfo = "MemTotal:       24 kB\nMemFree: 1 kB\n";
        assert_eq!(bytes_of(meminfo, "MemTotal:"), Some(24 * 1024));
    }

    #[test]
    fn limits_of_both_kinds_of_control_groups_are_found() {
        let first = limit_files("5:memory:/a\n3:cpu,cpuacct:/b\n");
        assert_eq!(
            first,
            [
                "/sys/fs/cgroup/memory/a/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes"
            ]
        );
        let second = limit_files("0::/system.slice/x.service\n");
        assert_eq!(
            second,
            ["/sys/fs/cgroup/system.slice/x.service/memory.max", "/sys/fs/cgroup/memory.max"]
        );
        assert!(limit_files("odd").is_empty());
    }

    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[test]
    fn what_is_free_is_given_back_though_a_block_behind_it_lives() {
        const BLOCKS: u64 = 256;
        const BLOCK_BYTES: u64 = 1 << 20;
        let resident = || {
            let status = fs::read_to_string("/proc/self/status").expect("Linux has /proc");
            bytes_of(&status, "RssAnon:").expect("the kernel tells it")
        };
        assert!(keep_for_the_next_frame());
        let burst: Vec<_> = (0..BLOCKS).map(|_| vec![1_u8; BLOCK_BYTES as usize]).collect();
        let behind = std::hint::black_box(vec![1_u8; 1 << 10]);
        let before = resident();
        drop(std::hint::black_box(burst));
        give_back();
        let after = resident();
        // Other tests of this process take and leave memory meanwhile, but less than half of this.
        assert!(after + BLOCKS * BLOCK_BYTES / 2 < before, "{before} bytes, then {after}");
        drop(behind);
    }

    #[test]
    fn the_allocator_takes_the_settings() {
        assert!(keep_for_the_next_frame());
    }
}
