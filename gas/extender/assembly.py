"""The extender's parts and their connections. Everything is wired here, by hand."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from gas.cluster import paths
from gas.cluster.connection import ApiServer
from gas.cluster.events import Events
from gas.cluster.listing import Lister
from gas.cluster.objects import (
    bind_pod,
    get_pod,
    patch_node_annotations,
    patch_pod_annotations,
    patch_pod_metadata,
)
from gas.cluster.watch import Handlers, Watch
from gas.decision.names import EXPIRED_BINDING
from gas.extender.admission.app import Reviewer
from gas.extender.admission.flags import AdmissionFlags
from gas.extender.announcer import Announcer
from gas.extender.bind import Binder
from gas.extender.binding_reviews.reviews import BindReviews
from gas.extender.binding_reviews.unbound_pods import UnboundPods
from gas.extender.card_names import random_name
from gas.extender.decider import Decider, Options
from gas.extender.filter import Filter, in_turns
from gas.extender.flags import Flags
from gas.extender.leadership.catching_up import CatchUp, ListPods
from gas.extender.leadership.leadership import Alone, Leadership, own_namespace
from gas.extender.leadership.part import DEFAULT_LEASE_NAME, LeadershipFlags
from gas.extender.metrics import Metrics
from gas.extender.pending_binds import PendingBinds
from gas.extender.pod_webhooks.part import PodWebhookFlags
from gas.extender.pod_webhooks.reviews import PodReviews
from gas.extender.preemption.part import PREEMPTION
from gas.extender.preemption.verb import Preempt
from gas.extender.readiness import Readiness
from gas.extender.reports import Reports
from gas.extender.requeuing.requeuer import Requeuer
from gas.extender.scoring.part import SCORING, ScoringFlags
from gas.extender.scoring.prioritize import Prioritize
from gas.extender.sharepods.controller import SharePods
from gas.extender.sharepods.part import SHAREPODS
from gas.extender.telemetry.descheduler import Descheduler
from gas.objects.stored import DisruptionBudget, HostPod, Node, Pod
from gas.placement.order import resource_of
from gas.placement.place import DEFAULT_STEP_LIMIT
from gas.values.timing import SYSTEM_TIMING, Timing
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.pod_checks import PodChecks
from gas.vocabularies.protocol import NeedOptions, NodeFacts

logger = logging.getLogger(__name__)

UNKNOWN_MEMORY_INTERVAL = 30.0
"""Seconds between two looks for pods that wait because the memory of cards is unknown."""

MOST_REVIEWED_NEEDS = 64
"""Needs of reviewed pods that are remembered: a workload creates many equal pods in a row. Each takes at most 0.2 MB,
since no need of a larger content than LARGEST_REMEMBERED is."""

LEADERS_WRITE_TIMEOUT = 4.0
"""Seconds for a Binding: less than lies between the end of a leader's time and the first moment of the next one's."""


class Extender:
    """The decider, with its watches and writes on one API server. Nothing runs before `run`.

    identity  of this replica among those that ever run; chosen by chance if there is none

    filter, binder, preempt, prioritize  the verbs; the last two are None unless they are switched on
    webhooks                             of the API server, by name; served only if --admission-port is given
    budget_watch                         None unless ``preempt`` is switched on
    sharepods                            None unless it is switched on
    """

    def __init__(
        self,
        api: ApiServer,
        flags: Flags,
        metrics: Metrics,
        *,
        identity: str | None = None,
        timing: Timing = SYSTEM_TIMING,
    ) -> None:
        clock = timing.monotonic
        admission_port = flags.of(AdmissionFlags).port
        election = flags.of(LeadershipFlags)
        options = Options(
            vocabularies=Vocabularies(flags.vocabularies),
            need=NeedOptions(allowlist=flags.allowlist, denylist=flags.denylist, card_order=flags.order_of_cards),
            step_limit=flags.search_steps or DEFAULT_STEP_LIMIT,
            preemption=PREEMPTION.is_on(flags),
            count_hosts=SCORING.is_on(flags),
            node_score=flags.of(ScoringFlags).node_score,
        )
        self._order = options.need.card_order
        is_gpu_pod = options.vocabularies.is_gpu_pod
        reports = Reports(metrics)
        self.decider = decider = Decider(options, reports, new_name=partial(random_name, timing.spread), clock=clock)
        unbound = UnboundPods(is_gpu_pod) if admission_port else None
        self.pod_watch = watch_pods(api, decider, unbound, timing)
        self.node_watch = watch_nodes(api, decider, timing)
        self.budget_watch = watch_disruption_budgets(api, decider, timing)
        catch_up = CatchUp(
            list_pods=_list_pods(api, is_gpu_pod),
            list_waiting=_list_pods(api, is_gpu_pod, "spec.nodeName="),
            learn=self._learn,
            synced=self.pod_watch.synced,
            change_version=partial(_change_version, api, timing) if admission_port else None,
            clock=clock,
        )
        self.leadership = (
            Leadership(
                api,
                election.lease_namespace or own_namespace(),
                election.lease_name or DEFAULT_LEASE_NAME,
                catch_up=catch_up,
                identity=identity,
                timing=timing,
            )
            if election.leader_elect
            else None
        )
        self._alone = Alone(catch_up) if admission_port and not election.leader_elect else None
        self.readiness = Readiness({"nodes": self.node_watch, "pods": self.pod_watch}, self.leadership or self._alone)
        may_act = self.readiness.may_act
        self._events = Events(api, instance=identity, timing=timing)
        self._announcer = Announcer(
            self._events, reports.announcements, decider, acts=may_act, has_begun=self.readiness.has_begun
        )
        self._requeuer = Requeuer(
            reports.freed_nodes,
            decider,
            metrics,
            patch_node=partial(patch_node_annotations, api),
            acts=may_act,
            timing=timing,
        )
        self._descheduler = Descheduler(
            reports.changed_nodes, decider, metrics, patch_pod=partial(patch_pod_metadata, api), acts=may_act
        )
        self.sharepods = SharePods(api, acts=may_act) if SHAREPODS.is_on(flags) else None
        pending_binds = PendingBinds(clock=clock)
        self.filter = Filter(
            decider,
            pending_binds,
            metrics,
            why_not_ready=self.readiness.why_not,
            on_refused=self._announcer.pod_refused,
            timing=timing,
        )
        self.prioritize = (
            Prioritize(decider, metrics, why_not_ready=self.readiness.why_not) if SCORING.is_on(flags) else None
        )
        self.bind_reviews = (
            BindReviews(
                decider,
                unbound,
                pending_binds,
                metrics,
                get_pod=partial(get_pod, api, urgent=True),
                change_version=partial(_change_version, api, timing),
                why_not_ready=self.readiness.why_not,
                timing=timing,
            )
            if unbound is not None
            else None
        )
        self.binder = Binder(
            decider,
            pending_binds,
            metrics,
            bind_pod=partial(bind_pod, api),
            get_pod=partial(get_pod, api),
            why_not_ready=self.readiness.why_not,
            vanished=reports.vanished_pods,
            write_timeout=LEADERS_WRITE_TIMEOUT if election.leader_elect else None,
            reviews=self.bind_reviews,
            timing=timing,
        )
        self.preempt = (
            Preempt(
                decider,
                pending_binds,
                metrics,
                why_not_ready=self._why_not_preempting,
                reviews=self.bind_reviews,
            )
            if decider.preemption is not None
            else None
        )
        # Its needs are remembered apart: reviews may be forged, and must not displace those of real pods.
        reviewed = Vocabularies(flags.vocabularies, most_needs=MOST_REVIEWED_NEEDS)
        checks = PodChecks(
            reviewed,
            options.need,
            flags.of(PodWebhookFlags).scheduler_name,
            scores_nodes=SCORING.is_on(flags),
        )
        pod_reviews = PodReviews(checks, nodes=self._known_nodes)
        self.webhooks: dict[str, Reviewer] = {"validate": pod_reviews.validate, "complete": pod_reviews.complete}
        if self.bind_reviews is not None:
            self.webhooks["bind"] = self.bind_reviews
        self._show_metrics(metrics)

    async def run(self) -> None:
        """Run all tasks until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for loop in (
                self.node_watch,
                self.binder,
                self._requeuer,
                self._descheduler,
                self._announcer,
                self._events,
            ):
                tasks.create_task(loop.run())
            if self.budget_watch is not None:
                tasks.create_task(self.budget_watch.run())
            if self.sharepods is not None:
                tasks.create_task(self.sharepods.run())
            tasks.create_task(self._watch_pods())
            tasks.create_task(self._look_ahead())
            tasks.create_task(self._announce_unknown_memory())
            tasks.create_task(self.readiness.report(self._begin_to_act))
            if self.leadership is not None:
                tasks.create_task(self.leadership.run())
            if self._alone is not None:
                tasks.create_task(self._alone.run())

    async def finish(self, patience: float) -> None:
        """Read the pods that may or may not be bound, then hand the Lease over. To be awaited before `run` ends.

        If a bind is still in progress after ``patience`` seconds, the Lease is kept until it runs out, since no other
        replica must decide before that.
        """
        try:
            async with asyncio.timeout(patience):
                await self.binder.settle()
                if self.bind_reviews is not None:
                    await self.bind_reviews.finish()
        except TimeoutError:
            logger.warning("stopping with binds of unknown outcome; the pods will be read at the next start")
            return
        if self.leadership is not None:
            await self.leadership.release()

    async def _watch_pods(self) -> None:
        """Watch pods once the nodes are known: a bound pod is checked against its node when it is first seen."""
        await self.node_watch.synced.wait()
        await self.pod_watch.run()

    async def _look_ahead(self) -> None:
        """Find out the states of all nodes before the first filter needs them."""
        await self.pod_watch.synced.wait()
        self._check_order()
        await in_turns(self.decider.verdicts.look_ahead())

    def _check_order(self) -> None:
        """Warn if the order of cards goes by a resource that no card has. It may be misspelt."""
        resource, known = resource_of(self._order), self.decider.nodes.resources()
        if resource is not None and known and resource not in known:
            logger.warning(
                "order of cards %s: no card of the cluster has the resource %s, so cards are tried in natural order;"
                " expected one of %s",
                self._order,
                resource,
                ", ".join(sorted(known)),
            )

    async def _announce_unknown_memory(self) -> None:
        """Write events on pods that wait because the memory of cards is unknown, again and again."""
        while True:
            await asyncio.sleep(UNKNOWN_MEMORY_INTERVAL)
            if self.readiness.may_act():
                self._announcer.announce_unknown_memory(await in_turns(self.decider.waiting_for_unknown_memory()))

    def _known_nodes(self) -> Iterator[NodeFacts] | None:
        """Return the facts of all nodes, None before the first list of them has been read."""
        if not self.node_watch.synced.is_set():
            return None
        return (facts for _, facts in self.decider.nodes)

    def _why_not_preempting(self) -> str | None:
        """Return why pods cannot be evicted now, None if they can; filter and bind do not need disruption budgets."""
        watch = self.budget_watch
        if watch is not None and watch.refused is not None:
            return f"PodDisruptionBudgets cannot be watched: {watch.refused}"
        if watch is not None and not watch.synced.is_set():
            return "the first list of PodDisruptionBudgets is still being read"
        return self.readiness.why_not()

    def _learn(self, pods: list[Pod]) -> None:
        self.decider.pods.learn(pods)

    def _begin_to_act(self) -> None:
        self._announcer.announce_all()
        self._requeuer.requeue_all()
        if self.sharepods is not None:
            self.sharepods.look_at_all()

    def _show_metrics(self, metrics: Metrics) -> None:
        leadership, pods = self.leadership, self.decider.pods
        metrics.ready.set_function(self.readiness.may_act)
        metrics.leader.set_function(lambda: leadership.leads if leadership is not None else 1)
        metrics.unannotated_pods.set_function(lambda: _count_troubles(self.decider, unannotated=True))
        metrics.unreadable_annotations.set_function(lambda: _count_troubles(self.decider, unannotated=False))
        metrics.descheduled_pods.set_function(lambda: len(pods.descheduled))
        metrics.watches.follow("nodes", self.node_watch)
        metrics.watches.follow("pods", self.pod_watch)
        if self.budget_watch is not None:
            metrics.watches.follow("poddisruptionbudgets", self.budget_watch)
        if self.sharepods is not None:
            metrics.watches.follow("sharepods", self.sharepods.share_watch)


def watch_pods(
    api: ApiServer, decider: Decider, unbound: UnboundPods | None = None, timing: Timing = SYSTEM_TIMING
) -> Watch[Any]:
    """Return the watch of the pods that ask for cards.

    It keeps all pods with a node as well if their requests are counted, and all pods without a node if Bindings are
    reviewed. Otherwise it decodes no more than it needs: a large cluster has many pods without cards.
    """
    kind, needed = (Pod, decider.follows) if decider.hosts is None else (HostPod, decider.needs_pod)
    if unbound is None:
        return Watch(api, paths.pods(), kind, Handlers(*decider.pod_handlers), keep=needed, timing=timing)
    handlers = Handlers(*decider.pod_handlers, unbound)

    def keep(pod: Any) -> bool:
        return needed(pod) or unbound.needs(pod)

    return Watch(api, paths.pods(), kind, handlers, keep=keep, timing=timing)


def _list_pods(api: ApiServer, is_gpu_pod: Callable[[Pod], bool], field_selector: str | None = None) -> ListPods:
    lister = Lister(api, paths.pods(), Pod, keep=is_gpu_pod, field_selector=field_selector)

    async def fetch() -> list[Pod]:
        return (await lister.fetch()).objects

    return fetch


async def _change_version(api: ApiServer, timing: Timing, namespace: str, name: str, uid: str) -> bool:
    mark = {EXPIRED_BINDING: str(timing.nanoseconds())}
    return await patch_pod_annotations(api, namespace, name, uid, mark, urgent=True)


def watch_nodes(api: ApiServer, decider: Decider, timing: Timing = SYSTEM_TIMING) -> Watch[Node]:
    """Return the watch of the nodes."""
    return Watch(api, paths.nodes(), Node, Handlers(*decider.node_handlers), timing=timing)


def watch_disruption_budgets(
    api: ApiServer, decider: Decider, timing: Timing = SYSTEM_TIMING
) -> Watch[DisruptionBudget] | None:
    """Return the watch of the disruption budgets, None unless pods may be evicted."""
    if decider.preemption is None:
        return None
    return Watch(api, paths.disruption_budgets(), DisruptionBudget, decider.preemption.budgets, timing=timing)


def _count_troubles(decider: Decider, *, unannotated: bool) -> int:
    troubles = (bound.trouble for bound in decider.pods.in_trouble.values())
    return sum(trouble is not None and trouble.unannotated == unannotated for trouble in troubles)
