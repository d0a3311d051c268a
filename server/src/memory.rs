//! How the C library's allocator keeps memory for the next frame.

use std::os::raw::c_int;

/// Free memory at the end of a heap beyond which it is given back to the kernel, in bytes. By default
/// 128 KiB, so that a server of pictures gives back and faults in again every picture's pages: on two
/// cores, 60 KB frames over one connection then cost a fifth more CPU time.
const TRIM_THRESHOLD_BYTES: c_int = 4 << 20;

/// What a heap grows by at least, in bytes, for the same reason.
const TOP_PAD_BYTES: c_int = 1 << 20;

/// Size from which a block is mapped by itself and unmapped when freed, in bytes: beyond the frames of
/// most cameras. By default it adapts itself, but not once one of the others is set.
const MMAP_THRESHOLD_BYTES: c_int = 4 << 20;

/// Tunes glibc's allocator; does nothing with another C library. Called once, at the start.
pub fn keep_for_the_next_frame() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    for (parameter, value) in [
        (libc::M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES),
        (libc::M_TOP_PAD, TOP_PAD_BYTES),
        (libc::M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES),
    ] {
        // SAFETY: takes plain numbers; an unknown parameter or value is refused by the return value.
        let accepted = unsafe { libc::mallopt(parameter, value) };
        debug_assert_eq!(accepted, 1, "mallopt({parameter}, {value})");
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_allocator_takes_the_settings() {
        // In a debug build a refusal panics.
        super::keep_for_the_next_frame();
        assert_eq!(vec![1_u8; 1 << 20].iter().map(|&one| u64::from(one)).sum::<u64>(), 1 << 20);
    }
}
