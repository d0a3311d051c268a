//! Facts about the machine and figures of processes, read from `/proc`.

use std::{fs, path::Path, time::Duration};

use serde::{Deserialize, Serialize};

use crate::error::{BenchError, failed, io_error};

/// What was measured on. The results page shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// CPU model.
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Memory in MiB.
    pub ram_mib: u64,
    /// Kernel release.
    pub kernel: String,
    /// Version of Vedette.
    pub vedette: String,
    /// Compiler.
    pub rustc: String,
    /// Version of ONNX Runtime's library.
    pub onnxruntime: String,
}

impl Facts {
    /// Reads them; what cannot be read is "unknown".
    #[must_use]
    pub fn read(runtime_lib: &Path) -> Self {
        let unknown = || "unknown".to_owned();
        let lib = fs::read(runtime_lib).unwrap_or_default();
        let machine = client_sim::machine::figures();
        Self {
            cpu: if machine.cpu.is_empty() { unknown() } else { machine.cpu },
            cores: machine.cores,
            ram_mib: machine.memory_bytes >> 20,
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            vedette: env!("CARGO_PKG_VERSION").to_owned(),
            rustc: env!("BENCH_RUSTC").to_owned(),
            onnxruntime: onnxruntime_version(&lib).unwrap_or_else(unknown),
        }
    }
}

/// Cores that this process may use: as many workers as a server here starts.
#[must_use]
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// ONNX Runtime's version out of its library: the linker's version node `VERS_1.2.3`, under which its
/// one exported function stands.
fn onnxruntime_version(library: &[u8]) -> Option<String> {
    const NODE: &[u8] = b"VERS_";
    let at = library.windows(NODE.len()).position(|window| window == NODE)?;
    let rest = &library[at + NODE.len()..];
    let end = rest.iter().position(|byte| !matches!(byte, b'0'..=b'9' | b'.'))?;
    String::from_utf8(rest[..end].to_vec()).ok().filter(|version| !version.is_empty())
}

/// A line such as `VmRSS:   1234 kB`.
fn kib_field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let value = line.strip_prefix(name)?.strip_prefix(':')?;
        value.trim().strip_suffix(" kB")?.trim().parse().ok()
    })
}

/// A process's memory, in MiB.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Memory {
    /// Resident now.
    pub resident_mib: f64,
    /// Largest that was resident since the process began.
    pub peak_mib: f64,
}

/// Memory of process `pid`.
///
/// # Errors
/// When the process is gone.
pub fn memory(pid: u32) -> Result<Memory, BenchError> {
    let path = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&path).map_err(io_error(path))?;
    parse_memory(&text)
        .ok_or_else(|| failed("memory of the server")("the process has ended without a word"))
}

fn parse_memory(status: &str) -> Option<Memory> {
    let mib = |name| kib_field(status, name).map(|kib| kib as f64 / 1024.0);
    Some(Memory { resident_mib: mib("VmRSS")?, peak_mib: mib("VmHWM")? })
}

/// CPU time that process `pid` has used since it began, of all its threads, user and system. Counted
/// in ticks of usually 10 ms.
///
/// # Errors
/// When the process is gone.
pub fn cpu_time(pid: u32) -> Result<Duration, BenchError> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read_to_string(&path).map_err(io_error(path))?;
    let ticks = parse_ticks(&text)
        .ok_or_else(|| failed("CPU time of the server")("/proc/PID/stat is laid out otherwise"))?;
    Ok(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
}

/// `utime + stime` of a `/proc/PID/stat`: fields 14 and 15. The name in field 2 may hold spaces and
/// parentheses, so that fields are counted from its end.
fn parse_ticks(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

/// A date and time as in `2024-02-29 23:59 UTC`, from seconds since the Unix epoch.
#[must_use]
pub fn utc(unix_seconds: u64) -> String {
    let (mut days, seconds) = (unix_seconds / 86_400, unix_seconds % 86_400);
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let (hour, minute) = (seconds / 3600, seconds % 3600 / 60);
    format!("{year}-{month:02}-{:02} {hour:02}:{minute:02} UTC", days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_lines() {
        let status = "Name:\tx\nVmHWM:\t   2048 kB\nVmRSS:\t   1536 kB\n";
        let memory = Memory { resident_mib: 1.5, peak_mib: 2.0 };
        assert_eq!(parse_memory(status), Some(memory));
        assert_eq!(parse_memory("Name:\tzombie\n"), None);
    }

    #[test]
    fn the_library_names_its_version() {
        let version = |bytes: &[u8]| onnxruntime_version(bytes);
        assert_eq!(version(b"\x7fELF..VERS_1.32.0\0rest").as_deref(), Some("1.32.0"));
        assert_eq!(version(b"\x7fELF"), None);
        assert_eq!(version(b"VERS_\0"), None);
    }

    #[test]
    fn ticks_despite_odd_names() {
        let stat = "7 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 120 30 0 0 20 0 1 0";
        assert_eq!(parse_ticks(stat), Some(150));
        assert_eq!(parse_ticks("7 (x) S 1 2"), None);
    }

    #[test]
    fn this_process_can_be_read() {
        let pid = std::process::id();
        let memory = memory(pid).expect("readable");
        assert!(memory.resident_mib > 0.0 && memory.peak_mib >= memory.resident_mib);
        assert!(cpu_time(pid).is_ok());
        assert!(super::memory(u32::MAX).is_err());
    }

    #[test]
    fn dates() {
        assert_eq!(utc(0), "1970-01-01 00:00 UTC");
        assert_eq!(utc(951_782_400 + 86_399), "2000-02-29 23:59 UTC");
        assert_eq!(utc(1_709_251_200), "2024-03-01 00:00 UTC");
        assert_eq!(utc(1_735_689_599), "2024-12-31 23:59 UTC");
    }
}
