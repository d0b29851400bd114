"""Declare an optional part of the extender, and what it adds to the program once it is on.

`gas.extender.parts` lists the parts by hand. A declaration imports only what is light; `Part.build` imports the rest.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gas.daemon.flags import PartFlags
from gas.daemon.metric import Metric
from gas.daemon.permissions import Permission
from gas.extender.hooks import NO_HOOKS, Hooks

if TYPE_CHECKING:
    from gas.cluster.connection import ApiServer
    from gas.cluster.events import Events
    from gas.cluster.watch import Watch
    from gas.extender.admission.app import Reviewer
    from gas.extender.decider import Decider
    from gas.extender.filter import PendingBinds
    from gas.extender.flags import Flags
    from gas.extender.late_bindings import Settler
    from gas.extender.metrics import Metrics
    from gas.extender.readiness import Leader
    from gas.extender.server import ServedVerb
    from gas.values.timing import Timing


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    api: ApiServer
    flags: Flags
    decider: Decider
    pending_binds: PendingBinds
    metrics: Metrics
    node_watch: Watch[Any]
    verbs: frozenset[str]  # names of the verbs that parts which are on serve
    why_not_ready: Callable[[], str | None]  # returns the reason while this replica may not decide, else None
    chosen: Callable[[bool], None]  # is called by the leader with whether this replica is to decide
    settler: Settler
    events: Events
    identity: str | None  # unique among all replicas that ever run; None for a random one
    timing: Timing

    def may_act(self) -> bool:
        return self.why_not_ready() is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Additions:
    hooks: Hooks = NO_HOOKS
    verbs: Mapping[str, ServedVerb] = field(default_factory=dict)  # served to kube-scheduler, by name
    other_paths: Mapping[str, str] = field(default_factory=dict)  # at which verbs are served as well, with their names
    webhooks: Mapping[str, Reviewer] = field(default_factory=dict)  # served to the API server, by name
    documents: Mapping[str, Callable[[], bytes]] = field(default_factory=dict)  # JSON on the plain port, by path
    watches: Mapping[str, Watch[Any]] = field(default_factory=dict)  # by kind; run like tasks, and shown in the metrics
    needed: frozenset[str] = frozenset()  # kinds of these whose first list must be read before this replica decides
    # awaited before this replica's first decision, once no earlier Binding can be stored
    prepare: tuple[Callable[[], Awaitable[None]], ...] = ()
    tasks: tuple[Callable[[], Coroutine[Any, Any, None]], ...] = ()  # run until the program ends
    begin: tuple[Callable[[], None], ...] = ()  # called when this replica begins to decide
    leader: Leader | None = None  # decides which replica decides; at most one part has one


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    is_on: Callable[[Flags], bool]  # returns whether these flags switch it on
    build: Callable[[Core], Additions]  # returns what it adds to the program; called once, only if it is on
    flags: type[PartFlags] | None = None  # the class of its flags, None if it has none
    # returns a sentence about flags of the part that have no effect, empty if all have
    warn: Callable[[Flags], str] = lambda _flags: ""
    metrics: tuple[Metric, ...] = ()  # those that it registers when it is built
    # returns those that it needs besides the core's, by its flags and the extender's namespace
    permissions: Callable[[Flags, str], frozenset[Permission]] = lambda _flags, _namespace: frozenset()
    verbs: frozenset[str] = frozenset()  # names of the verbs that it serves
