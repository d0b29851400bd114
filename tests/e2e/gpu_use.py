"""Use of fake cards: files in place of those of the processes of a real node, which look like clients of a card."""

from __future__ import annotations

from tests.e2e.gpu_node import GpuNode

OTHERS = 7
"""MiB that each process uses for which a test states nothing."""


class Overlay:
    """The tree in place of ``/proc``. `show` states what a process uses; all others use `OTHERS`."""

    def __init__(self, gpu_node: GpuNode) -> None:
        self._node = gpu_node.node
        self._proc = gpu_node.tree / "proc"
        self._proc.mkdir(exist_ok=True)
        self._gpus = gpu_node.gpus
        self._clients = 0

    def cover(self) -> None:
        """Give every process of the node that has none yet a client of the first card."""
        for pid in self._node.run("ls", "/proc").split():
            if pid.isdigit() and not (self._proc / pid).exists():
                self.show(int(pid), OTHERS)

    def show(self, pid: int, mib: int, *, card: int = 0, client: int | None = None) -> None:
        """State what a process uses of a card, in place of what it used before."""
        self._clients += 1
        files = self._proc / str(pid) / "fdinfo"
        files.mkdir(parents=True, exist_ok=True)
        link = self._proc / str(pid) / "cgroup"
        if not link.is_symlink():
            link.symlink_to(f"/proc/{pid}/cgroup")
        (files / "3").write_text(
            f"pos:\t0\ndrm-driver:\ti915\ndrm-client-id:\t{client or 1000 + self._clients}\n"
            f"drm-pdev:\t{self._gpus[card].pci_address}\ndrm-resident-local0:\t{mib} MiB\ndrm-engine-render:\t0 ns\n"
        )
