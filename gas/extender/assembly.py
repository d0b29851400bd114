"""Wire the core of the extender and the parts that are on."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from gas.cluster import paths
from gas.cluster.connection import ApiServer
from gas.cluster.events import Events
from gas.cluster.listing import Lister
from gas.cluster.objects import bind_pod, get_pod, patch_pod_metadata
from gas.cluster.watch import Watch
from gas.decision.names import EXPIRED_BINDING
from gas.extender.announcer import Announcer
from gas.extender.bind import Binder
from gas.extender.decider import Decider, options_of, random_name
from gas.extender.filter import Filter, PendingBinds, in_turns
from gas.extender.flags import Flags
from gas.extender.late_bindings import ChangeVersion, PodRequests, Settler, end_earlier_bindings
from gas.extender.metrics import Metrics
from gas.extender.part import Additions, Core
from gas.extender.parts import PARTS
from gas.extender.readiness import Alone, Leader, Readiness, lister_of_pods, read_bound_pods
from gas.extender.selected_nodes import ClaimingPod, selected_nodes
from gas.extender.server import ServedVerb
from gas.objects.stored import HostPod, Node, Pod
from gas.placement.order import resource_of
from gas.values.timing import SYSTEM_TIMING, Timing

if TYPE_CHECKING:
    from gas.extender.admission.app import Reviewer

logger = logging.getLogger(__name__)

PROMISES_INTERVAL = 1.0  # seconds between two looks whether the time of promises is over
UNKNOWN_MEMORY_INTERVAL = 30.0  # seconds between two looks for pods that wait because the memory of cards is unknown


class Extender:
    """The decider, with its watches and writes on one API server. Nothing runs before `run`."""

    def __init__(
        self,
        api: ApiServer,
        flags: Flags,
        metrics: Metrics,
        *,
        identity: str | None = None,
        timing: Timing = SYSTEM_TIMING,
    ) -> None:
        parts = [part for part in PARTS if part.is_on(flags)]
        self._are_stale = asyncio.Event()  # verdicts of nodes that have changed
        self._may_list = asyncio.Event()  # set once a list of pods may be read
        options = options_of(flags)
        self.decider = decider = Decider(
            options,
            new_name=partial(random_name, timing.spread),
            clock=timing.monotonic,
            on_stale=self._are_stale.set,
        )
        self.node_watch = watch_nodes(api, decider, timing)
        requests = PodRequests(partial(get_pod, api, urgent=True), _change_version(api, timing), timing.monotonic)
        core = Core(
            api=api,
            flags=flags,
            decider=decider,
            pending_binds=PendingBinds(clock=timing.monotonic),
            metrics=metrics,
            node_watch=self.node_watch,
            verbs=frozenset[str]().union(*(part.verbs for part in parts)),
            why_not_ready=self._why_not_ready,
            chosen=self._chosen,
            settler=Settler(decider.bookings, decider.pods, requests),
            events=Events(api, instance=identity, timing=timing),
            identity=identity,
            timing=timing,
        )
        self._core = core
        self._parts: list[Additions] = []
        for part in parts:
            self._parts.append(part.build(core))
            decider.add(self._parts[-1].hooks)
        self.pod_watch = watch_pods(api, decider, timing)
        self.watches: dict[str, Watch[Any]] = {"nodes": self.node_watch, "pods": self.pod_watch}
        needed = {kind: watch for part in self._parts for kind, watch in part.watches.items() if kind in part.needed}
        self.leader: Leader = next((part.leader for part in self._parts if part.leader), Alone(self._chosen))
        self.readiness = Readiness(self.watches | needed, self.leader, self._catch_up)
        self._announcer = Announcer(
            core.events, decider, metrics, acts=core.may_act, has_begun=self.readiness.has_begun
        )
        self.binder = Binder(
            decider,
            core.pending_binds,
            metrics,
            bind_pod=partial(bind_pod, api, labels=options.vocabularies.label_annotations),
            settler=core.settler,
            why_not_ready=core.why_not_ready,
            timing=timing,
        )
        decider.observers.add(core.pending_binds, core.settler, self._announcer)
        self.filter = Filter(
            decider,
            core.pending_binds,
            metrics,
            why_not_ready=core.why_not_ready,
            on_refused=self._announcer.pod_refused,
            timing=timing,
        )
        self.verbs = {"filter": ServedVerb(self.filter), "bind": ServedVerb(self.binder, is_undisturbed=True)}
        self.webhooks: dict[str, Reviewer] = {}  # served to the API server, by name
        self.documents: dict[str, Callable[[], bytes]] = {}  # JSON for the plain port, by path
        for added in self._parts:
            self.verbs |= added.verbs
            self.verbs |= {path: self.verbs[name] for path, name in added.other_paths.items()}
            self.webhooks |= added.webhooks
            self.documents |= added.documents
            self.watches |= added.watches
        self._show_metrics(metrics)

    async def run(self) -> None:
        if not self.leader.leads:
            self._may_list.set()  # if this replica leads later, it reads the pods again
        try:
            await self._run_tasks()
        finally:
            self.readiness.chosen(False)  # it no longer catches up

    async def _run_tasks(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            runs: tuple[Callable[[], Coroutine[Any, Any, None]], ...] = (
                self.node_watch.run,
                self._watch_pods,
                self._core.events.run,
                self._look_ahead,
                self._announce_unknown_memory,
                self._end_late_promises,
                partial(self.readiness.report, self._begin_to_act),
                self.leader.run,
                *(watch.run for part in self._parts for watch in part.watches.values()),
                *(task for part in self._parts for task in part.tasks),
            )
            for run in runs:
                tasks.create_task(run())

    async def finish(self, patience: float) -> None:
        """Find out which pods are bound, then release the Lease. To be awaited before `run` ends.

        If a bind is still in progress after ``patience`` seconds, the Lease is not released but expires, since no other
        replica may decide before that.
        """
        try:
            async with asyncio.timeout(patience):
                await self._settle()
        except TimeoutError:
            logger.warning("stopping with binds of unknown outcome; the pods will be read at the next start")
            return
        await self.leader.release()

    def _chosen(self, leads: bool) -> None:  # noqa: FBT001 -- the form of a leader's callback
        self.readiness.chosen(leads)

    def _why_not_ready(self) -> str | None:
        return self.readiness.why_not()

    async def _catch_up(self) -> None:
        """End the Bindings of an earlier replica, or of the process before this one, and learn which pods are bound."""
        core = self._core
        list_waiting = lister_of_pods(core.api, ClaimingPod, self.decider.asks_for_cards, "spec.nodeName=")
        waiting: list[ClaimingPod] = []

        async def listed() -> list[Pod]:
            waiting[:] = await list_waiting()
            return list(waiting)

        change_version, note = core.settler.requests.change_version, self.readiness.note
        try:
            await end_earlier_bindings(listed, change_version, on_trouble=note, clock=core.timing.monotonic)
        finally:
            note("")
        must_read = self._may_list.is_set()  # else the watch will list the pods from now on
        self._may_list.set()
        await self._settle()  # of an earlier lead: its reservations may be of cards that others were given since
        for part in self._parts:
            for prepare in part.prepare:
                await prepare()
        await self.pod_watch.synced.wait()
        if must_read:
            await read_bound_pods(lister_of_pods(core.api, Pod, self.decider.pods.needs), self.decider.pods.learn)
        for pod, node in await selected_nodes(core.api, waiting):
            self.decider.promises.tie(pod, node)

    async def _settle(self) -> None:
        """Wait until no bind is in progress, and find out which pods are bound."""
        await self.binder.finished()
        await self._core.settler.all_settled()

    async def _watch_pods(self) -> None:
        """Watch pods once the nodes are known: a bound pod is checked against its node when it is first seen."""
        await self._may_list.wait()
        await self.node_watch.synced.wait()
        await self.pod_watch.run()

    async def _look_ahead(self) -> None:
        """Compute the states of all nodes, later the verdicts of changed ones, before a filter needs them."""
        await self.pod_watch.synced.wait()
        self._check_order()
        verdicts, are_stale = self.decider.verdicts, self._are_stale
        await in_turns(verdicts.look_ahead())
        while True:
            await are_stale.wait()
            are_stale.clear()
            if not self.readiness.may_act():
                continue
            try:
                await in_turns(verdicts.refresh())
            except Exception:
                logger.exception("changed nodes could not be judged ahead; the next filter judges them")

    def _check_order(self) -> None:
        """Warn if the order of cards names a resource that no card has. It may be misspelt."""
        order = self.decider.options.need.card_order
        resource, known = resource_of(order), self.decider.nodes.resources()
        if resource is not None and known and resource not in known:
            logger.warning(
                "order of cards %s: no card of the cluster has the resource %s, so cards are tried in natural order;"
                " expected one of %s",
                order,
                resource,
                ", ".join(sorted(known)),
            )

    async def _announce_unknown_memory(self) -> None:
        while True:
            await asyncio.sleep(UNKNOWN_MEMORY_INTERVAL)
            if self.readiness.may_act():
                self._announcer.announce_unknown_memory(await in_turns(self.decider.waiting_for_unknown_memory()))

    async def _end_late_promises(self) -> None:
        while True:
            await asyncio.sleep(PROMISES_INTERVAL)
            self.decider.promises.drop_late()

    def _begin_to_act(self) -> None:
        self._announcer.announce_all()
        for part in self._parts:
            for begin in part.begin:
                begin()

    def _show_metrics(self, metrics: Metrics) -> None:
        metrics.ready.set_function(self.readiness.may_act)
        metrics.leader.set_function(lambda: self.leader.leads)
        metrics.unannotated_pods.set_function(lambda: _count_troubles(self.decider, unannotated=True))
        metrics.unreadable_annotations.set_function(lambda: _count_troubles(self.decider, unannotated=False))
        for kind, watch in self.watches.items():
            metrics.watches.follow(kind, watch)


def watch_pods(api: ApiServer, decider: Decider, timing: Timing = SYSTEM_TIMING) -> Watch[Any]:
    """Return the watch of the pods that a handler needs; it decodes no others, since many pods ask for no cards."""
    kind = HostPod if decider.counts_hosts else Pod
    lister: Lister[Any] = Lister(api, paths.PODS, kind, keep=decider.must_see)
    return Watch(lister, decider.pod_handlers, timing=timing)


def watch_nodes(api: ApiServer, decider: Decider, timing: Timing = SYSTEM_TIMING) -> Watch[Node]:
    return Watch(Lister(api, paths.NODES, Node), decider.node_handlers, timing=timing)


def _change_version(api: ApiServer, timing: Timing) -> ChangeVersion:
    async def change_version(namespace: str, name: str, uid: str) -> bool:
        mark = {EXPIRED_BINDING: str(timing.nanoseconds())}
        return await patch_pod_metadata(api, namespace, name, uid, mark, urgent=True)

    return change_version


def _count_troubles(decider: Decider, *, unannotated: bool) -> int:
    troubles = (bound.trouble for bound in decider.pods.in_trouble.values())
    return sum(trouble is not None and trouble.unannotated == unannotated for trouble in troubles)
