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
    from gas.cluster.watch import Watch
    from gas.extender.admission.app import Reviewer
    from gas.extender.decider import Decider
    from gas.extender.filter import PendingBinds
    from gas.extender.flags import Flags
    from gas.extender.late_bindings import ChangeVersion
    from gas.extender.metrics import Metrics
    from gas.extender.readiness import Leader
    from gas.extender.server import ServedVerb
    from gas.values.timing import Timing


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """The core of the extender, as far as parts use it.

    identity       unique among all replicas that ever run; None for a random one
    verbs          names of the verbs that parts which are on serve
    why_not_ready  returns the reason while this replica may not decide, else None
    catch_up       is awaited by a part that elects a leader before this replica's first decision
    """

    api: ApiServer
    flags: Flags
    decider: Decider
    pending_binds: PendingBinds
    metrics: Metrics
    node_watch: Watch[Any]
    verbs: frozenset[str]
    why_not_ready: Callable[[], str | None]
    change_version: ChangeVersion
    catch_up: Callable[[], Awaitable[None]]
    identity: str | None
    timing: Timing

    def may_act(self) -> bool:
        return self.why_not_ready() is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Additions:
    """The additions of one part to the program.

    verbs        served to kube-scheduler, by name
    other_paths  at which verbs are served as well, with their names
    webhooks     served to the API server, by name
    documents    JSON on the plain port, by path
    watches      by kind; run like tasks, and shown in the metrics
    tasks        run until the program ends
    begin        called when this replica begins to decide
    finish       awaited when the program ends, before the leadership is handed over
    leader       decides which replica decides; at most one part has one
    """

    hooks: Hooks = NO_HOOKS
    verbs: Mapping[str, ServedVerb] = field(default_factory=dict)
    other_paths: Mapping[str, str] = field(default_factory=dict)
    webhooks: Mapping[str, Reviewer] = field(default_factory=dict)
    documents: Mapping[str, Callable[[], bytes]] = field(default_factory=dict)
    watches: Mapping[str, Watch[Any]] = field(default_factory=dict)
    tasks: tuple[Callable[[], Coroutine[Any, Any, None]], ...] = ()
    begin: tuple[Callable[[], None], ...] = ()
    finish: tuple[Callable[[], Awaitable[None]], ...] = ()
    leader: Leader | None = None


def _no_permissions(_flags: Flags, _namespace: str) -> frozenset[Permission]:
    return frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One optional feature of the extender.

    is_on        returns whether these flags switch it on
    build        returns what it adds to the program; called once, only if it is on
    flags        the class of its flags, None if it has none
    warn         returns a sentence about flags of the part that have no effect, empty if all have
    metrics      those that it registers when it is built
    permissions  returns those that it needs besides the core's, by its flags and the extender's namespace
    verbs        names of the verbs that it serves
    """

    is_on: Callable[[Flags], bool]
    build: Callable[[Core], Additions]
    flags: type[PartFlags] | None = None
    warn: Callable[[Flags], str] = lambda _flags: ""
    metrics: tuple[Metric, ...] = ()
    permissions: Callable[[Flags, str], frozenset[Permission]] = _no_permissions
    verbs: frozenset[str] = frozenset()
