"""Declare a part, an optional feature of the plugin, with all that the rest of the program has to know of it.

A declaration imports nothing heavy; ``build`` imports the part's other modules, so that a part that is switched off is
not imported.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from gas.daemon.flags import MeasuredDaemonFlags, PartFlags
from gas.daemon.metric import Metric

if TYPE_CHECKING:
    from gas.plugin.card_pods import AddToContainer, CardPods
    from gas.plugin.devices.allocation import EditAllocation, Presentation
    from gas.plugin.discovery.card_source import AskProcesses, CardRules, CardSource
    from gas.plugin.kubelet.device_server import PreStart
    from gas.plugin.node_writer import Events
    from gas.plugin.writer import Writer
    from gas.values.card_facts import CardFacts
    from gas.vocabularies.protocol import NodeDescription

Record = TypeVar("Record", bound=PartFlags)

Sample = tuple[str, Sequence[str], float]  # the name of a metric, the values of its labels, and its value


class FlagChoice(NamedTuple):
    """A value that a part adds to a flag of the core, and its description in the flag's help."""

    name: str
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PodNeeds:
    """The demands of a part on the DaemonSet's pod in addition to what every plugin needs."""

    host_pid: bool = False  # the plugin must see the node's processes
    capabilities: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()  # directories of the node that it must be able to write in
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreFlags(MeasuredDaemonFlags):
    """The flags of the core that parts read. `gas.plugin.flags.Flags` declares them."""

    card_sources: frozenset[str]
    prefix: Path
    resource_manager: bool
    uninstall: bool
    write_node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """The core of the plugin, as far as parts use it. ``gpus`` returns the cards of this node now."""

    flags: CoreFlags
    presentation: Presentation
    card_rules: CardRules
    gpus: Callable[[], Collection[CardFacts]]
    processes: AskProcesses  # asks the drivers who uses them that do not state it in /proc
    pods: CardPods
    events: Events


def _nothing(*_arguments: object) -> None: ...


async def _at_once() -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    tasks: Sequence[Callable[[], Coroutine[Any, Any, None]]] = ()  # run as long as the plugin does
    samples: Callable[[], Iterable[Sample]] = tuple
    # by path of the plain port, functions that return JSON
    documents: Mapping[str, Callable[[], bytes]] = field(default_factory=dict)
    sources: Sequence[CardSource] = ()  # of cards, after those of the core
    processes: Sequence[AskProcesses] = ()  # ask drivers who uses their cards
    additions: Sequence[AddToContainer] = ()  # what a known container gets in addition to its cards
    edits: Sequence[EditAllocation] = ()  # change what a container gets
    before_start: Sequence[PreStart] = ()  # awaited before each start of a container with cards
    writers: Sequence[Writer[Any]] = ()  # paused while another plugin serves this node
    on_cards: Callable[[Collection[CardFacts]], None] = _nothing
    # called with the description of the node after each change
    on_description: Callable[[NodeDescription], None] = _nothing
    on_pods: Callable[[], None] = _nothing
    before_serving: Callable[[], Awaitable[None]] = _at_once  # awaited before cards are offered to kubelet
    at_end: Callable[[], Awaitable[None]] = _at_once  # awaited when the plugin has ended


def _leave_nothing(_flags: CoreFlags, _own: PartFlags) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Part(Generic[Record]):
    """The declaration of a part. ``is_on``, ``build`` and ``uninstall`` take the part's own flags last."""

    name: str  # of its package
    flags: type[Record]
    is_on: Callable[[CoreFlags, Record], bool]
    build: Callable[[Core, Record], Hooks]
    needs_pods: bool = False  # it works only if the plugin watches the node's pods
    switched_on_by: str  # in words: ``"--usage"``
    settings: frozenset[str] = frozenset()  # names of its flags that have no effect while it is off
    card_source: FlagChoice | None = None  # the value that it adds to --card-sources
    node_writer: FlagChoice | None = None  # the value that it adds to --write-node
    metrics: tuple[Metric, ...] = ()
    # by path of the plain port, the text while the part is off
    documents: Mapping[str, bytes] = field(default_factory=dict)
    pod: PodNeeds = PodNeeds()
    # removes what plugins with this part left on the node; raises GasError
    uninstall: Callable[[CoreFlags, Record], None] = _leave_nothing

    def runs_with(self, flags: CoreFlags) -> bool:
        return self.is_on(flags, flags.of(self.flags)) and (flags.resource_manager or not self.needs_pods)

    def hooks(self, core: Core) -> Hooks:
        return self.build(core, core.flags.of(self.flags))

    def clean_up(self, flags: CoreFlags) -> None:
        """Remove what plugins with this part left on the node. Raises GasError."""
        self.uninstall(flags, flags.of(self.flags))

    def warnings(self, flags: CoreFlags) -> list[str]:
        """Return sentences about given flags of the part that have no effect."""
        if self.runs_with(flags):
            return []
        if self.is_on(flags, flags.of(self.flags)):
            return [f"ignored: {self.switched_on_by}; with --resource-manager=false the plugin does not know the pods"]
        if flags.uninstall and self.uninstall is not _leave_nothing:
            return []
        return [f"ignored: --{name}; it needs {self.switched_on_by}" for name in sorted(self.settings & flags.given)]
