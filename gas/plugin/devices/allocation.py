"""The allocation of a container: device nodes, mounts, environment variables, CDI names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePosixPath

from gas.plugin.devices.device_ids import AllocateRequest
from gas.values.card_facts import CardFacts
from gas.values.cards import Card
from gas.values.errors import GasError

ROOT = PurePosixPath("/")
DEV = PurePosixPath("/dev")
DRI = DEV / "dri"
BY_PATH = DRI / "by-path"


class NoSuchCards(GasError):
    """None of the requested cards is on this node any more."""


class SeveralCards(GasError):
    """No card has as many free ids as a container wants that gets one card only."""


class ByPath(StrEnum):
    """Which links of /dev/dri/by-path a container gets. They show programs a card's PCI address."""

    SINGLE = "single"  # those of the container's cards, each mounted separately; the runtime mounts what they point to
    NONE = "none"
    ALL = "all"  # the whole directory: links stay links, but those of all cards are visible


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A device node that the container may read and write."""

    host_path: str
    container_path: str


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or directory of the host that the container may read, and write unless it is ``read_only``."""

    host_path: str
    container_path: str
    read_only: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """Everything that kubelet adds to the container, with full names of CDI devices."""

    env: Mapping[str, str] = field(default_factory=dict)
    device_nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    cdi: tuple[str, ...] = ()
    # for the container runtime; they do not appear on the pod
    annotations: Mapping[str, str] = field(default_factory=dict)

    def plus(self, other: Allocation) -> Allocation:
        """Return both together. A variable or annotation that both have gets the value of ``other``."""
        return Allocation(
            env={**self.env, **other.env},
            device_nodes=(*self.device_nodes, *other.device_nodes),
            mounts=(*self.mounts, *other.mounts),
            cdi=(*self.cdi, *other.cdi),
            annotations={**self.annotations, **other.annotations},
        )


EditAllocation = Callable[[Allocation, str, Collection[CardFacts]], Allocation]
"""Returns a changed allocation of these cards for a resource, which is a full name. A container with several resources
gets an allocation for each, and they must not collide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Presentation:
    # the prefix of paths on the host, ``/`` outside of tests; paths in the container never have it
    host_root: PurePosixPath = ROOT
    by_path: ByPath = ByPath.SINGLE


def gpus_of(cards: Iterable[Card], gpus: Iterable[CardFacts]) -> tuple[CardFacts, ...]:
    """Return the facts of the cards that are there, each once, in natural order. Raises NoSuchCards if none is."""
    wanted = set(cards)
    found = tuple(sorted((gpu for gpu in gpus if gpu.card in wanted), key=lambda gpu: gpu.card))
    if not found:
        names = ", ".join(map(str, sorted(wanted)))
        gone = f"none of the cards {names} is on this node any more"
        raise NoSuchCards(f"{gone if names else 'kubelet named no device of a card'}; nothing can be allocated")
    return found


def check_one_card(request: AllocateRequest, one_card: Container[str]) -> None:
    """Raise SeveralCards if kubelet chose ids of several cards; ``one_card`` are the resources that never have them."""
    if request.resource in one_card and len(request.counts) > 1:
        raise SeveralCards(
            f"no card has {request.size} of {request.resource} free, and a container gets one card; free a card, or"
            " create the pod again without nodeName"
        )


def card_allocation(gpus: Collection[CardFacts], presentation: Presentation) -> Allocation:
    return Allocation(
        env=_variables(gpus),
        device_nodes=card_nodes(gpus, presentation),
        mounts=by_path_mounts(gpus, presentation),
        cdi=tuple(gpu.cdi_name for gpu in gpus if gpu.cdi_name),
    )


def monitoring_allocation(gpus: Iterable[CardFacts], presentation: Presentation) -> Allocation:
    """Return access to every healthy card and its management engine. A missing device node would fail the container."""
    healthy = [gpu for gpu in gpus if gpu.healthy]
    engines = dict.fromkeys(name for gpu in healthy for name in gpu.mei)
    return Allocation(
        device_nodes=card_nodes(healthy, presentation)
        + tuple(_device_node(DEV / name, presentation) for name in engines),
        mounts=by_path_mounts(healthy, presentation),
    )


def card_nodes(gpus: Iterable[CardFacts], presentation: Presentation) -> tuple[DeviceNode, ...]:
    """Return the device nodes of the cards, each once: some belong to all cards of a driver."""
    paths = dict.fromkeys(
        path
        for gpu in gpus
        for path in (*(DRI / name for name in gpu.device_nodes), *(DEV / name for name in gpu.other_nodes))
    )
    return tuple(_device_node(path, presentation) for path in paths)


def _variables(gpus: Iterable[CardFacts]) -> dict[str, str]:
    """Return the cards' variables. Different values of one variable are joined with commas."""
    values: dict[str, dict[str, None]] = {}
    for gpu in gpus:
        for name, value in gpu.variables:
            values.setdefault(name, {})[value] = None
    return {name: ",".join(each) for name, each in values.items()}


def by_path_mounts(gpus: Iterable[CardFacts], presentation: Presentation) -> tuple[Mount, ...]:
    """Return the mounts of by-path links; none if the node has no such links."""
    links = [BY_PATH / name for gpu in gpus for name in gpu.by_path]
    match presentation.by_path:
        case ByPath.NONE:
            paths = []
        case ByPath.SINGLE:
            paths = links
        case ByPath.ALL:
            paths = [BY_PATH] if links else []
    return tuple(Mount(_on_host(path, presentation), str(path)) for path in paths)


def _device_node(path: PurePosixPath, presentation: Presentation) -> DeviceNode:
    return DeviceNode(_on_host(path, presentation), str(path))


def _on_host(path: PurePosixPath, presentation: Presentation) -> str:
    return str(presentation.host_root / path.relative_to(ROOT))
