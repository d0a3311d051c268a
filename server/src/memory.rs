//! How the C library's allocator keeps memory for the next frame.

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

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod glibc {
    use std::os::raw::c_int;

    /// Free memory at the end of a heap beyond which it is given back, in bytes: two full-HD pictures in
    /// RGB. Each thread's heap keeps up to so much.
    const TRIM_THRESHOLD_BYTES: c_int = 16 << 20;

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
    #[test]
    fn the_allocator_takes_the_settings() {
        assert!(super::keep_for_the_next_frame());
    }
}
