"""A tree that looks like ``/proc``, with processes of pods and of the node."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from tests.plugin.pods_for_plugin import container_id, pod_uid

CARD0, CARD1 = "0000:03:00.0", "0000:04:00.0"
MIB = 2**20


def cgroup(pod: int | None) -> str:
    """Return ``/proc/PID/cgroup`` of a process of a container, or of the node itself."""
    if pod is None:
        return "0::/system.slice/sshd.service\n"
    return f"0::/kubepods/burstable/pod{pod_uid(pod)}/{container_id(1)}\n"


def xe(client: int = 1, *, address: str = CARD0, vram: int = 0, cycles: int = 0, total: int = 0) -> str:
    """Return the fdinfo of an xe client; ``vram`` is in MiB."""
    return (
        "pos:\t0\nflags:\t0100002\nmnt_id:\t26\nino:\t685\n"
        f"drm-driver:\txe\ndrm-client-id:\t{client}\ndrm-pdev:\t{address}\n"
        "drm-total-system:\t0\ndrm-resident-system:\t64 MiB\ndrm-resident-gtt:\t192 KiB\n"
        f"drm-total-vram0:\t{vram} MiB\ndrm-shared-vram0:\t0\ndrm-resident-vram0:\t{vram} MiB\n"
        "drm-resident-stolen:\t8 MiB\n"
        f"drm-cycles-rcs:\t{cycles}\ndrm-total-cycles-rcs:\t{total}\n"
        f"drm-cycles-ccs:\t{cycles}\ndrm-total-cycles-ccs:\t{total}\ndrm-engine-capacity-ccs:\t4\n"
    )


PLAIN_FILE = "pos:\t0\nflags:\t0100002\nmnt_id:\t14\nino:\t9\n"
"""The fdinfo of a file that is not a card's."""


class Processes:
    """Processes in a directory. Each call changes the tree at once."""

    def __init__(self, proc: Path) -> None:
        self.proc = proc
        proc.mkdir(parents=True, exist_ok=True)
        (proc / "meminfo").write_text("MemTotal: 1 kB\n")

    def add(self, pid: int, pod: int | None, *files: str, cgroup_text: str = "") -> Path:
        """Add a process with these fdinfo texts, in place of one with the same id."""
        shutil.rmtree(self.proc / str(pid), ignore_errors=True)
        directory = self.proc / str(pid)
        (directory / "fdinfo").mkdir(parents=True)
        (directory / "cgroup").write_text(cgroup_text or cgroup(pod))
        self.write(pid, dict(enumerate(files, start=3)))
        return directory

    def write(self, pid: int, files: Mapping[int, str]) -> None:
        """Write the fdinfo of some of a process's files."""
        for number, text in files.items():
            (self.proc / str(pid) / "fdinfo" / str(number)).write_text(text)

    def end(self, pid: int) -> None:
        shutil.rmtree(self.proc / str(pid))
