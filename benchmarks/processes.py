"""Processor time and memory of processes, from /proc."""

import os
from pathlib import Path

MB = 1e6
_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Return the processor time of all threads of a process so far, in user and kernel mode."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def seconds_of_others() -> float:
    """Return the processor time of all programs but this one and those that it has started and that have ended."""
    user, nice, system, _idle, _iowait, _irq, _softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + steal) / _TICKS - sum(os.times()[:4])


def resident_bytes(pid: int, *, peak: bool = False) -> int:
    """Return the resident memory of a process: now, or its peak."""
    name = "VmHWM" if peak else "VmRSS"
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(f"process {pid} has ended")
