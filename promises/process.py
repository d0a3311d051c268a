"""What a process has used since a moment: processor time in nanoseconds, and its highest memory."""

from __future__ import annotations

import time
from pathlib import Path

MIB = 1 << 20


def cpu_seconds(pid: int) -> float:
    """Processor time of all threads of a process, ended ones included, to the nanosecond.

    The clock of another process has the number that clock_getcpuclockid(3) makes of its id.
    """
    return time.clock_gettime(~pid << 3 | 2)


class Meter:
    """Looks at a process from now on."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        # Sets the high-water mark back to what is resident now (proc_pid_clear_refs(5)).
        Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")
        self._peak = self._high_water_bytes()
        self._cpu = cpu_seconds(pid)

    def _high_water_bytes(self) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii", errors="replace")
        line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024

    def cpu_ms(self) -> float:
        """Processor time since then, in milliseconds."""
        return (cpu_seconds(self.pid) - self._cpu) * 1000

    def growth_mib(self) -> float:
        """How far memory has ever been above what it was then, in MiB."""
        return (self._high_water_bytes() - self._peak) / MIB
