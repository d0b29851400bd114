"""Write trees of real files and links that look like sysfs and ``/dev`` of a node with Intel GPUs.

    write_tree(root, fake_gpus(FLEX_170, 4) + fake_gpus(MAX_1550, 2, first=4))

A marker file at the root shows that the tree is generated; programs that read it must warn about that.
"""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from gas.plugin.discovery.sysfs import FAKE_TREE_MARKER

_NULL = os.makedev(1, 3)  # the device number of ``/dev/null``, used for every fake character device


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model of card. ``memory`` is bytes per tile; None if sysfs does not show it, as on stock kernels."""

    device_id: str
    driver: str
    tiles: int = 1
    memory: int | None = None


FLEX_170 = Model(device_id="0x56c0", driver="i915", memory=16 * 2**30)
MAX_1550 = Model(device_id="0x0bd5", driver="i915", tiles=2, memory=64 * 2**30)
MAX_1550_XE = Model(device_id="0x0bd5", driver="xe", tiles=2, memory=64 * 2**30)


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeGpu:
    card: int
    model: Model
    pci_path: tuple[str, ...]  # directories from the PCI root to the device, as in ``/sys/devices``
    numa_node: int = -1
    virtual_functions: int | None = None  # number of enabled virtual functions; None if the card does not support any
    mei: int | None = None  # number of its management engine; None if it has none
    serial: str = ""  # PCI serial number, ``11-22-33-44-55-66-77-88``; empty if it has none

    @property
    def pci_address(self) -> str:
        return self.pci_path[-1]

    @property
    def render_node(self) -> str:
        return f"renderD{128 + self.card}"


def fake_gpus(
    model: Model, count: int, *, first: int = 0, numa_nodes: int = 1, per_board: int = 1
) -> tuple[FakeGpu, ...]:
    """Return cards of one model, numbered from ``first``.

    numa_nodes  number of NUMA nodes, to which the cards are spread in blocks: 4 cards on 2 nodes are on 0, 0, 1, 1
    per_board   number of cards per board, which share the first three directories of their PCI path
    """
    gpus: list[FakeGpu] = []
    for index in range(count):
        number = first + index
        numa_node = index * numa_nodes // count
        board, on_board = divmod(number, per_board)
        bus = 0x10 * (board % 8) + board // 8
        root = f"pci{numa_node:04x}:{bus:02x}"
        places = (
            f"{bus:02x}:01.0",
            f"{bus + 1:02x}:00.0",
            f"{bus + 2:02x}:{on_board + 1:02x}.0",
            f"{number + 0x90:02x}:00.0",
        )
        path = (root, *(f"{numa_node:04x}:{place}" for place in places))
        gpus.append(FakeGpu(card=number, model=model, pci_path=path, numa_node=numa_node, mei=number))
    return tuple(gpus)


def write_tree(root: Path, gpus: tuple[FakeGpu, ...], *, character_devices: bool = False) -> None:
    """Write the marker and all cards below ``root``. Existing files stay.

    ``character_devices`` creates real device nodes, which containers can use but only root can create, not empty files.
    """
    for directory in ("sys/class/drm", "dev/dri"):
        (root / directory).mkdir(parents=True, exist_ok=True)
    (root / FAKE_TREE_MARKER).write_text("This tree was generated; no GPU is behind it.\n")
    (root / "sys/class/drm/version").write_text("drm 1.1.0 20060810\n")
    for gpu in gpus:
        add_gpu(root, gpu, character_devices=character_devices)


def add_gpu(root: Path, gpu: FakeGpu, *, character_devices: bool = False) -> None:
    """Write one card, as when its driver binds to it."""
    device = device_directory(root, gpu)
    drm = device / "drm" / f"card{gpu.card}"
    for directory in (drm, device / "drm" / gpu.render_node, device / "drm" / f"controlD{64 + gpu.card}"):
        directory.mkdir(parents=True)
    for name, text in (("vendor", "0x8086"), ("device", gpu.model.device_id), ("numa_node", str(gpu.numa_node))):
        (device / name).write_text(f"{text}\n")
    if gpu.serial:
        (device / "serial_number").write_text(f"{gpu.serial}\n")
    if gpu.virtual_functions is not None:
        (device / "sriov_numvfs").write_text(f"{gpu.virtual_functions}\n")
    _write_tiles(gpu, device, drm)
    driver = root / "sys/bus/pci/drivers" / gpu.model.driver
    driver.mkdir(parents=True, exist_ok=True)
    _link(device / "driver", driver)
    _link(drm / "device", device)
    _link(root / "sys/class/drm" / drm.name, drm)
    _link(root / "sys/class/drm" / gpu.render_node, device / "drm" / gpu.render_node)
    _write_device_nodes(root, gpu, character_devices=character_devices)


def device_directory(root: Path, gpu: FakeGpu) -> Path:
    return root.joinpath("sys/devices", *gpu.pci_path)


def _write_tiles(gpu: FakeGpu, device: Path, drm: Path) -> None:
    """Write tiles and memory where the card's driver shows them. A card with one tile shows it too."""
    for tile in range(gpu.model.tiles):
        place = drm / "gt" / f"gt{tile}" if gpu.model.driver == "i915" else device / f"tile{tile}" / f"gt{tile}"
        place.mkdir(parents=True)
        if gpu.model.driver == "xe" and gpu.model.memory is not None:
            (place.parent / "physical_vram_size_bytes").write_text(f"{gpu.model.memory}\n")
    if gpu.model.driver == "i915" and gpu.model.memory is not None:
        (drm / "lmem_total_bytes").write_text(f"{gpu.model.memory}\n")


def _write_device_nodes(root: Path, gpu: FakeGpu, *, character_devices: bool) -> None:
    for node in _device_nodes(root, gpu):
        if character_devices:
            os.mknod(node, stat.S_IFCHR | 0o666, _NULL)
            node.chmod(0o666)  # mknod applies the umask
        else:
            node.touch()
    for link, node in zip(_by_path_links(root, gpu), _device_nodes(root, gpu), strict=False):
        _link(link, node)
    if gpu.mei is not None:
        engine = f"{gpu.model.driver}.mei-gscfi.{256 * (gpu.mei + 1)}"
        (device_directory(root, gpu) / engine / "mei" / f"mei{gpu.mei}").mkdir(parents=True)


def _device_nodes(root: Path, gpu: FakeGpu) -> tuple[Path, ...]:
    nodes = (root / "dev/dri" / f"card{gpu.card}", root / "dev/dri" / gpu.render_node)
    return nodes if gpu.mei is None else (*nodes, root / "dev" / f"mei{gpu.mei}")


def _by_path_links(root: Path, gpu: FakeGpu) -> tuple[Path, ...]:
    by_path = root / "dev/dri/by-path"
    return tuple(by_path / f"pci-{gpu.pci_address}-{what}" for what in ("card", "render"))


def _link(link: Path, target: Path) -> None:
    """Create a relative link, as the kernel does, so that it does not leave the tree."""
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(os.path.relpath(target, link.parent))
