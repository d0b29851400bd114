"""The extender's parts and who tells whom. Everything is wired here, by hand."""

from __future__ import annotations

import asyncio
import logging
import socket
import uuid
from functools import partial

from cachetools import TTLCache

from gas.cluster import paths
from gas.cluster.connection import ApiServer
from gas.cluster.events import Events, Involved
from gas.cluster.lease import LeaderElection
from gas.cluster.listing import Lister
from gas.cluster.objects import bind_pod, get_pod, patch_node_annotations, patch_pod_labels
from gas.cluster.watch import Watch
from gas.errors import GasError
from gas.extender.bind import Binder
from gas.extender.descheduling import Descheduler
from gas.extender.expected_binds import ExpectedBinds
from gas.extender.filter import Filter
from gas.extender.flags import Flags
from gas.extender.metrics import Metrics
from gas.extender.nodes import Nodes
from gas.extender.pods import Pods, asks_for_gpu
from gas.extender.readiness import Readiness
from gas.extender.refusals import PodRefusal, Refusals
from gas.extender.verdicts import Verdicts
from gas.extender.waking import Waker
from gas.ledger import Ledger
from gas.objects import Node, Pod
from gas.placement.place import DEFAULT_STEP_LIMIT

logger = logging.getLogger(__name__)

TELL_AGAIN = 300.0
"""Seconds before an event tells again that a pod waits for the same reasons."""

LEADERS_WRITE_TIMEOUT = 4.0
"""Seconds for a Binding: less than lies between the end of a leader's time and the first moment of the next one's."""


class Extender:
    """Everything that decides, with its watches and writes on one API server. Nothing runs before `run`."""

    def __init__(self, api: ApiServer, flags: Flags, metrics: Metrics) -> None:
        self._api = api
        self._metrics = metrics
        self._told: TTLCache[tuple[str, frozenset[str]], None] = TTLCache(10_000, TELL_AGAIN)
        self._catching_up: asyncio.Task[None] | None = None
        self._found_waiting: frozenset[str] = frozenset()
        self.refusals = Refusals()
        expected_binds = ExpectedBinds()
        self.events = Events(api)
        self.ledger = Ledger(on_change=self._node_changed)
        self.nodes = Nodes(on_change=self._node_object_changed)
        self.pods = Pods(
            self.ledger,
            on_bound=self._pod_bound,
            on_release=self._released,
            on_gone=self.refusals.drop,
            tiles_of_cards=self.nodes.tiles_of_cards,
            on_correction=self._corrected,
            on_trouble=self._tell_trouble,
        )
        self.pod_watch = Watch(api, paths.pods(), Pod, self.pods, keep=asks_for_gpu)
        self.node_watch = Watch(api, paths.nodes(), Node, self.nodes)
        self.election = (
            LeaderElection(
                api,
                flags.lease_namespace,
                flags.lease_name,
                identity=f"{socket.gethostname()}_{uuid.uuid4()}",
                on_change=self._leadership_changed,
            )
            if flags.leader_elect
            else None
        )
        self.readiness = Readiness(
            {"nodes": self.node_watch, "pods": self.pod_watch},
            election=self.election,
        )
        self.waker = Waker(partial(patch_node_annotations, api), metrics, anybody_waits=self._anybody_waits)
        self.descheduler = Descheduler(
            self.nodes,
            self.pods,
            self.ledger,
            metrics,
            patch_labels=partial(patch_pod_labels, api),
            acts=self.readiness.may_act,
        )
        self.verdicts = Verdicts(
            self.nodes,
            self.ledger,
            balanced=flags.balanced_resource,
            step_limit=flags.search_steps or DEFAULT_STEP_LIMIT,
        )
        self.filter = Filter(
            self.verdicts,
            self.ledger,
            self.refusals,
            expected_binds,
            metrics,
            nodes=self.nodes,
            allowlist=flags.allowlist,
            denylist=flags.denylist,
            why_not_ready=self.readiness.why_not,
            on_refused=self._tell_refused,
        )
        self.binder = Binder(
            self.verdicts,
            self.ledger,
            self.pods,
            self.refusals,
            expected_binds,
            metrics=metrics,
            allowlist=flags.allowlist,
            denylist=flags.denylist,
            bind_pod=partial(bind_pod, api),
            get_pod=partial(get_pod, api),
            why_not_ready=self.readiness.why_not,
            on_release=self._released,
            write_timeout=LEADERS_WRITE_TIMEOUT if flags.leader_elect else None,
        )
        self._show_metrics()

    async def run(self) -> None:
        """Watch, elect, patch and tell, until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for loop in (self.node_watch, self.waker, self.descheduler, self.events):
                    tasks.create_task(loop.run())
                tasks.create_task(self._watch_pods())
                tasks.create_task(self._look_ahead())
                if self.election is not None:
                    tasks.create_task(self.election.run())
                tasks.create_task(self._report_ready())
        finally:
            if self._catching_up is not None:
                self._catching_up.cancel()

    async def _watch_pods(self) -> None:
        """After the nodes: whether a pod's annotations name cards that there are is asked when the pod is seen."""
        await self.node_watch.synced.wait()
        await self.pod_watch.run()

    async def _look_ahead(self) -> None:
        """So that the first question does not have to look into the books of every node."""
        await self.pod_watch.synced.wait()
        await self.verdicts.look_ahead()

    async def finish(self, patience: float) -> None:
        """Look at what may or may not have been bound, then hand the Lease over. To be awaited before `run` ends.

        With a bind still under way the Lease is kept until it runs out, as nobody else must decide before that.
        """
        try:
            await asyncio.wait_for(self.binder.settle(), patience)
        except TimeoutError:
            logger.warning(
                "stopping although it is not known of every pod whether it was bound; the next start reads it"
            )
            return
        if self.election is not None:
            await self.election.release()

    def _node_object_changed(self, node: str) -> None:
        self._node_changed(node)
        self._released(node)  # a label that is gone or a larger resource makes room, too
        facts = self.nodes.facts(node)
        if facts is not None and facts.problems and self.readiness.may_act():
            self._tell_problems(node, facts.problems)

    def _node_changed(self, node: str) -> None:
        self.verdicts.forget(node)
        self.descheduler.check(node)

    def _pod_bound(self, node: str) -> None:
        self.descheduler.check(node)

    def _released(self, node: str) -> None:
        if self.readiness.may_act():
            self.waker.released(node)

    def _anybody_waits(self) -> bool:
        """Whether a pod waits that was refused here, or that somebody may have refused before we were ready."""
        waiting = self.pods.waiting
        refused = any(uid in waiting and not refusal.is_final for uid, refusal in self.refusals)
        return refused or not self._found_waiting.isdisjoint(waiting)

    def _leadership_changed(self, leads: bool) -> None:  # noqa: FBT001 -- the election's own form
        self.readiness.catching_up = True
        if self._catching_up is not None:
            self._catching_up.cancel()
        self._catching_up = asyncio.get_running_loop().create_task(self._catch_up()) if leads else None

    async def _catch_up(self) -> None:
        """List the pods once more: the last binds of the old leader may still be on their way to our watch."""
        lister = Lister(self._api, paths.pods(), Pod, keep=asks_for_gpu)
        while True:
            await self.pod_watch.synced.wait()
            try:
                listing = await lister.fetch()
                self.pods.learn(listing.objects)
            except GasError as error:
                logger.warning("cannot read yet what the last leader did: %s", error)
            except Exception:
                logger.exception("what the last leader did could not be taken in")
            else:
                self.readiness.catching_up = False
                return
            await asyncio.sleep(1.0)

    async def _report_ready(self) -> None:
        """Log every change of readiness; there is no other place where all of its reasons meet."""
        before: str | None = ""
        while True:
            why_not = self.readiness.why_not()
            if why_not != before:
                logger.info("ready" if why_not is None else f"not ready: {why_not}")
                if why_not is None:
                    self._tell_all_problems()
                    self._wake_those_found_waiting()
            before = why_not
            await asyncio.sleep(0.05)

    def _wake_those_found_waiting(self) -> None:
        """Room may have come free while nobody was there to say so."""
        self._found_waiting = frozenset(self.pods.waiting)
        for name, _ in self.nodes:
            self._released(name)

    def _tell_all_problems(self) -> None:
        for bound in self.pods.in_trouble.values():
            if bound.trouble is not None:
                self._tell_trouble(bound.object, bound.trouble.sentence)
        for name, facts in self.nodes:
            if facts.problems:
                self._tell_problems(name, facts.problems)

    def _tell_problems(self, node: str, problems: tuple[str, ...]) -> None:
        # kubectl describe looks for a node's events under its name as UID, as kubelet writes them.
        involved = Involved(kind="Node", name=node, uid=node)
        self.events.post(involved, severity="Warning", reason="GPULabelsMakeNoSense", message="; ".join(problems))

    def _tell_refused(self, pod: Pod, refusal: PodRefusal) -> None:
        key = (pod.uid, frozenset(refusal.reasons))
        if key not in self._told and pod.uid in self.pods.waiting:  # somebody may ask about a pod that is not there
            self._told[key] = None
            self.events.post(_involved(pod), severity="Warning", reason="NoGPUCardFits", message=refusal.summary())

    def _corrected(self, pod: Pod) -> None:
        self._metrics.corrections.inc()
        sentence = "kubelet gave it other cards than were decided; the books follow the receipt on it"
        if self.readiness.may_act():
            self.events.post(_involved(pod), severity="Warning", reason="GPUCardsCorrected", message=sentence)

    def _tell_trouble(self, pod: Pod, sentence: str) -> None:
        if self.readiness.may_act():
            self.events.post(_involved(pod), severity="Warning", reason="GPUCardsNotAsBooked", message=sentence)

    def _show_metrics(self) -> None:
        metrics = self._metrics
        metrics.ready.set_function(self.readiness.may_act)
        election = self.election
        metrics.leader.set_function(lambda: election.leads if election is not None else 1)
        troubles = self.pods.in_trouble
        metrics.unannotated_pods.set_function(
            lambda: sum(pod.trouble is not None and pod.trouble.unannotated for pod in troubles.values())
        )
        metrics.unreadable_annotations.set_function(
            lambda: sum(pod.trouble is not None and not pod.trouble.unannotated for pod in troubles.values())
        )
        metrics.descheduled_pods.set_function(lambda: len(self.pods.descheduled))
        metrics.watches.follow("nodes", self.node_watch)
        metrics.watches.follow("pods", self.pod_watch)


def _involved(pod: Pod) -> Involved:
    return Involved(kind="Pod", name=pod.metadata.name, uid=pod.uid, namespace=pod.metadata.namespace or "default")
