"""A cell: private mounts and processes, so that kubelet and containerd have their fixed paths and end together."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.e2e.programs import Program, ProgramError
from tests.e2e.waiting import wait_for

_SYSCTLS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""Sysctls that kubelet would otherwise set on the whole machine. It writes only those that differ from these values."""

_NEEDED_PROGRAMS = ("unshare", "nsenter", "setpriv", "containerd", "runc", "busybox")
_CAP_SYS_ADMIN = 21
_CAP_MKNOD = 27


def missing_for_cells() -> str | None:
    """Return a sentence why this machine allows no cell, or None if it does."""
    if os.geteuid() != 0:
        return "a node with a real kubelet needs root"
    status = Path("/proc/self/status").read_text()
    capabilities = int(next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), 16)
    for name, bit in (("CAP_SYS_ADMIN", _CAP_SYS_ADMIN), ("CAP_MKNOD", _CAP_MKNOD)):
        if not capabilities >> bit & 1:
            return f"a node with a real kubelet needs {name}"
    for program in _NEEDED_PROGRAMS:
        if shutil.which(program) is None:
            return f"a node with a real kubelet needs {program}, which tests/e2e/set-up.sh installs"
    if not os.access("/sys/fs/cgroup", os.W_OK) or not any(Path("/sys/fs/cgroup").iterdir()):
        return "a node with a real kubelet needs a writable /sys/fs/cgroup"
    if not Path("/dev/kmsg").exists():
        return "a node with a real kubelet needs /dev/kmsg"
    if "overlay" not in Path("/proc/filesystems").read_text().split():
        return "a node with a real kubelet needs the file system overlay"
    return None


class Cell:
    """Namespaces over one directory; everything started in them is killed with them, also when this run is killed.

    Inside, ``/var/lib/kubelet`` is ``DIRECTORY/kubelet``, ``/var/log/pods`` is ``DIRECTORY/log/pods``, and
    ``/run/containerd`` is empty; all other files are those of the machine.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.kubelet_directory = directory / "kubelet"
        self.pod_logs = directory / "log/pods"
        self._script = directory / "cell.sh"
        self._ready = directory / "cell-is-ready"
        self._holder = Program(
            "cell",
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", str(self._script)],
            log=directory / "cell.log",
        )
        self._init = 0
        self._programs: list[CellProgram] = []

    def start(self) -> None:
        """Create the namespaces and mounts. Raises ProgramError if that fails."""
        self._script.write_text(self._lines())
        self._ready.unlink(missing_ok=True)
        self._holder.start()
        wait_for("the cell", lambda: self._ready.exists() or not self._holder.is_running, every=0.02)
        if not self._ready.exists():
            raise ProgramError(f"the namespaces for a kubelet cannot be made\n{self._holder.log_tail()}")
        self._init = _only_child(self._holder.pid)

    def stop(self) -> None:
        """Kill everything in the cell: the kernel kills all processes of a namespace with its first one."""
        if self._init and self._holder.is_running:
            os.kill(self._init, signal.SIGKILL)
            wait_for("the end of all in the cell", lambda: not self._holder.is_running, every=0.01)
        for program in (*self._programs, self._holder):
            program.kill()

    def command(self, command: Sequence[str]) -> list[str]:
        """Return the command that runs a command in the cell, in the directory ``/``."""
        return ["nsenter", f"--target={self._init}", "--mount", "--pid", "--", *command]

    def run(self, *command: str) -> str:
        """Run a command and return its output. Raises ProgramError if it fails."""
        done = subprocess.run(self.command(command), capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise ProgramError(f"in the cell, {shlex.join(command)} failed: {done.stderr.strip()}")
        return done.stdout

    def program(self, name: str, command: Sequence[str], *, env: Mapping[str, str] | None = None) -> CellProgram:
        """Return a program that is started in the cell later. Its log is ``DIRECTORY/NAME.log``."""
        program = CellProgram(name, self.command(command), log=self.directory / f"{name}.log", env=env)
        self._programs.append(program)
        return program

    def _lines(self) -> str:
        binds = {
            self.kubelet_directory: "/var/lib/kubelet",
            self.pod_logs: "/var/log/pods",
            self.directory / "log/containers": "/var/log/containers",
        }
        lines = ["set -e"]
        for source, target in binds.items():
            source.mkdir(parents=True, exist_ok=True)
            # Outside of the cell these stay empty: they are only there to be mounted on.
            lines += [f"mkdir -p {target}", f"mount --bind {shlex.quote(str(source))} {target}"]
        lines += ["mkdir -p /run/containerd", "mount -t tmpfs tmpfs /run/containerd"]
        for name, value in _SYSCTLS.items():
            file = self.directory / f"sysctl.{name.replace('/', '.')}"
            file.write_text(f"{value}\n")
            lines.append(f"mount --bind {shlex.quote(str(file))} /proc/sys/{name}")
        lines += [f"touch {shlex.quote(str(self._ready))}", "exec tail -f /dev/null"]
        return "\n".join(lines) + "\n"


class CellProgram(Program):
    """A process in a cell. Outside of the cell, nsenter waits for the process and ends with its exit status."""

    @property
    def inner_pid(self) -> int:
        """The process id outside of the cell."""
        return wait_for(f"{self.name} in its cell", lambda: _only_child(self.pid), every=0.01)

    def terminate(self, *, seconds: float = 30) -> int:
        """Send SIGTERM to the process itself, because nsenter does not forward it."""
        os.kill(self.inner_pid, signal.SIGTERM)
        try:
            wait_for(f"the end of {self.name}", self._has_ended, seconds=seconds, every=0.02)
        except TimeoutError as error:
            raise ProgramError(f"{error}\n{self.log_tail()}") from None
        return super().terminate(seconds=1)

    def _has_ended(self) -> bool:
        """Return whether nsenter has ended; continue it, as it may stop itself when it notices that its child was."""
        if self.is_running:
            os.kill(self.pid, signal.SIGCONT)
        return not self.is_running


def _only_child(pid: int) -> int:
    """Return the only child of a process; 0 while it has none."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(children[0]) if children else 0
