"""Two NUMA nodes for a kubelet on a machine that has one: a directory in place of ``/sys/devices/system/node``."""

from __future__ import annotations

from pathlib import Path

NODES = "/sys/devices/system/node"
_CPUS = Path("/sys/devices/system/cpu")
_KIB = 8 * 1024 * 1024


def write_two_numa_nodes(directory: Path) -> None:
    """Write two NUMA nodes, which share the processors of this machine and have 8 GiB each."""
    cpus = sorted(cpu.name for cpu in _CPUS.glob("cpu[0-9]*"))
    directory.mkdir()
    for number in (0, 1):
        node = directory / f"node{number}"
        node.mkdir()
        (node / "meminfo").write_text(f"Node {number} MemTotal:       {_KIB} kB\n")
        (node / "distance").write_text("10 20\n" if number == 0 else "20 10\n")
        for cpu in cpus[number::2]:
            (node / cpu).symlink_to(_CPUS / cpu)
