"""Decide which pods leave which node, so that a pod of higher priority gets its cards there. Serve the verb preempt.

kube-scheduler proposes pods by the sums of the node, which do not show single cards. Here each proposal becomes
the smallest set of pods after whose eviction the pod really fits, or the node drops out.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from gas.extender.decider import Decider
from gas.extender.filter import PendingBinds, in_turns
from gas.extender.hooks import FilterDecision, Hooks
from gas.extender.host_resources import pod_requests
from gas.extender.late_bindings import Settler
from gas.extender.metrics import Metrics
from gas.extender.preemption.disruption import AssignedPod, DisruptionBudgets, assigned_pod
from gas.extender.preemption.nominations import Nominations
from gas.extender.preemption.wire import PreemptArgs, Proposal, decode_preempt, encode_preempt_result
from gas.extender.readiness import check_ready
from gas.extender.verdicts import PATIENCE, Turns
from gas.ledger.eviction_cost import Evictable
from gas.ledger.victims import CandidateNode, Victims, smallest_victims
from gas.objects.stored import DisruptionBudget, Pod, PreemptorPod
from gas.placement.choice import Footprint, footprint
from gas.placement.need import PodNeed
from gas.values.amounts import SortedAmounts, add
from gas.vocabularies.protocol import BadNeed, NodeFacts

logger = logging.getLogger(__name__)

NODE_PATIENCE = 0.2  # seconds of the search on one node after which the best set found so far is taken
REVIEW_PATIENCE = 0.5  # seconds for settling reviews of Bindings on the proposed nodes: a read and a write of each pod
LOWEST_PRIORITY = -(2**31)  # the priority of a pod that is not known: it is named last


class Preemption:
    """Decide which pods leave, from what the watches have shown to `budgets` and `nominations`."""

    def __init__(self, decider: Decider) -> None:
        decider.count_hosts(describe=assigned_pod)
        self.budgets = DisruptionBudgets()
        self.nominations = Nominations(decider)
        self._decider = decider
        self._nodes = decider.nodes
        self._ledger = decider.ledger
        self._pods = decider.pods
        self._hosts = decider.hosts
        self._clock = decider.clock

    @property
    def hooks(self) -> Hooks:
        return Hooks(promised=(self.nominations.promised,), restricting=(self.restrict,), handlers=(self.nominations,))

    def restrict(
        self, _pod: Pod, need: PodNeed, decision: FilterDecision, facts: Callable[[str], NodeFacts | None]
    ) -> Turns[FilterDecision]:
        """Name the failed nodes on which no eviction helps, so that kube-scheduler proposes none there."""
        if not decision.failed:
            return decision
        if not need.wants_cards:
            return replace(decision, hopeless=list(decision.failed))
        return replace(decision, hopeless=(yield from self._decider.verdicts.hopeless(need, decision.failed, facts)))

    def preempt(self, args: PreemptArgs) -> Turns[dict[str, Proposal]]:
        """Return which pods to evict from which nodes, so that a pod gets its cards. Evicts and books nothing.

        A proposal for a pod that needs no cards, or that is bound and waits for a resize, is returned unchanged. A pod
        whose need cannot be read, or that is booked already, gets no node.
        """
        proposals = {node: each for node, each in args.proposals.items() if not self._names_others(node, each)}
        if args.pod.node_name:
            return proposals
        if self._ledger.booking(args.pod.uid) is not None:
            return {}
        try:
            need = self._decider.need(args.pod)
        except BadNeed:
            return {}
        if not need.wants_cards:
            return proposals
        return (yield from self.victims(args.pod, need, proposals))

    def _names_others(self, node: str, proposal: Proposal) -> bool:
        """Return whether a proposal names pods of other nodes, as one for a PodGroup may.

        kube-scheduler cannot read such victims back, and its whole attempt fails.
        """
        hosted = (self._hosts.pods.records.get(uid) for uid in proposal.uids)
        return any(each is not None and each.node != node for each in hosted)

    def victims(
        self, pod: PreemptorPod, need: PodNeed, proposals: Mapping[str, Proposal]
    ) -> Turns[dict[str, Proposal]]:
        """Return the pods to evict from each node that remains a candidate, the most important first.

        A node is dropped if it is not known, if the pod fits there as it is, if it does not fit there without all pods
        of lower priority, or if there was no time left to find out.
        """
        requests = pod_requests(pod)
        until = self._clock() + PATIENCE
        found: dict[str, Proposal] = {}
        footprints: dict[str, Footprint] = {}
        for node, proposal in proposals.items():
            is_late = partial(self._is_after, min(until, self._clock() + NODE_PATIENCE))
            victims = self._on_node(pod, need, requests, node, proposal, is_late=is_late)
            if victims is not None and victims.pods and (facts := self._nodes.facts(node)) is not None:
                found[node] = Proposal(tuple(each.uid for each in victims.pods), victims.violations)
                footprints[node] = footprint(need, victims.choice, facts.inventory.capacity)
            yield
        self.nominations.chosen(pod.uid, footprints)
        return found

    def _is_after(self, moment: float) -> bool:
        return self._clock() >= moment

    def _on_node(
        self,
        pod: PreemptorPod,
        need: PodNeed,
        requests: SortedAmounts,
        name: str,
        proposal: Proposal,
        *,
        is_late: Callable[[], bool],
    ) -> Victims | None:
        facts, free = self._nodes.facts(name), self._hosts.free_amounts(name)
        if facts is None or free is None:
            return None
        for requested in self.nominations.of_others(name, pod):
            for resource, amount in requested:
                if resource in free:
                    free[resource] -= amount
        promised = self._decider.promises.to_others(pod).get(name, ())
        node = CandidateNode(inventory=facts.inventory, sums=self._ledger.sums(name, promised), free=free)
        allowed: list[int] = []
        in_the_way = self._in_the_way(requests, free, proposal) if pod.avoids_pods else frozenset()
        return smallest_victims(
            need,
            requests,
            node,
            self._evictable(pod, name, proposal, in_the_way, allowed),
            allowed,
            step_limit=self._decider.options.step_limit,
            is_late=is_late,
        )

    def _in_the_way(self, requests: SortedAmounts, free: Mapping[str, int], proposal: Proposal) -> frozenset[str]:
        """Return the proposed pods that are in the way of a pod for other reasons than resources.

        kube-scheduler proposes no pod that could stay if the others leave. So if the node had enough of everything with
        such a pod back on it, the pod is in the way for another reason.
        """
        freed = dict(free)
        for uid in proposal.uids:
            add(freed, self._hosts.pods.requested(uid) or ())
        return frozenset(
            uid
            for uid in proposal.uids
            if all(
                freed.get(name, amount) - dict(self._hosts.pods.requested(uid) or ()).get(name, 0) >= amount
                for name, amount in requests
            )
        )

    def _evictable(
        self, pod: Pod, node: str, proposal: Proposal, in_the_way: frozenset[str], allowed: list[int]
    ) -> list[Evictable]:
        """Return the pods that may leave a node, the most important first, and fill ``allowed`` for their budgets.

        Proposed pods that have no cards, or are not known here, leave in any case, since the reason why kube-scheduler
        proposed them is not known here. So do those ``in_the_way`` for other reasons than resources. All other pods are
        GPU pods of lower priority, proposed or not.
        """
        bookings = self._ledger.on_node(node)
        positions: dict[tuple[str | None, str], int] = {}
        found: list[tuple[tuple[int, float], Evictable]] = []
        for uid in dict.fromkeys((*proposal.uids, *bookings)):
            seen: AssignedPod | None = self._hosts.pods.details(uid, node)
            if seen is None and uid in proposal.uids and (bound_just_now := self._pods.waiting.get(uid)) is not None:
                seen = assigned_pod(bound_just_now)  # the watch does not show it on its node yet
            if seen is None:
                if uid in proposal.uids:
                    found.append(
                        ((-LOWEST_PRIORITY, math.inf), Evictable(uid=uid, priority=LOWEST_PRIORITY, must_go=True))
                    )
                continue
            has_cards = uid in bookings or self._pods.bound_pod(uid) is not None
            if has_cards and seen.priority >= pod.priority:
                continue
            budgets = [_position(budget, positions, allowed) for budget in self.budgets.of(seen)]
            evictable = Evictable(
                uid=uid,
                priority=seen.priority,
                footprint=bookings[uid].footprint if uid in bookings else Footprint(),
                requests=self._hosts.pods.requested(uid) or (),
                budgets=tuple(budgets),
                leaving=seen.leaving,
                must_go=not has_cards or uid in in_the_way,
            )
            found.append((seen.importance, evictable))
        return [evictable for _, evictable in sorted(found, key=lambda each: (each[0], each[1].uid))]


def _position(budget: DisruptionBudget, positions: dict[tuple[str | None, str], int], allowed: list[int]) -> int:
    """Return the position of a budget in ``allowed``, after adding it if it is new."""
    key = (budget.metadata.namespace, budget.metadata.name)
    if key not in positions:
        positions[key] = len(allowed)
        allowed.append((budget.status.disruptions_allowed if budget.status is not None else None) or 0)
    return positions[key]


@dataclass(frozen=True, slots=True, eq=False)
class Preempt:
    """Decide preempt requests: called with the body of a request, returns the body of the response.

    A review of a Binding may be forged, and what it reserved is free again after a moment. So no pod is evicted because
    of one: reviews for the proposed nodes are settled first, and nodes that still have an open one drop out.
    """

    decider: Decider
    preemption: Preemption
    pending_binds: PendingBinds
    metrics: Metrics
    settler: Settler
    why_not_ready: Callable[[], str | None]  # returns the reason while this replica may not decide, else None
    review_patience: float = REVIEW_PATIENCE

    async def __call__(self, body: bytes) -> bytes:
        check_ready(self.why_not_ready)
        args = decode_preempt(body)
        await self.pending_binds.wait(self.decider.together(args.pod))
        victims = await self._victims(args)
        self.metrics.requests.labels("preempt", "victims" if victims else "no-victims").inc()
        logger.info(
            "preemption helps on %d of %d nodes", len(victims), len(args.proposals), extra={"pod": args.pod.key}
        )
        return encode_preempt_result(victims)

    async def _victims(self, args: PreemptArgs) -> dict[str, Proposal]:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.review_patience):
                await self.settler.settled_on(args.proposals.keys())
        in_doubt = self._nodes_in_doubt()
        proposals = {node: each for node, each in args.proposals.items() if node not in in_doubt}
        victims = await in_turns(self.preemption.preempt(replace(args, proposals=proposals)))
        in_doubt = self._nodes_in_doubt()  # a review may have come meanwhile
        return {node: each for node, each in victims.items() if node not in in_doubt}

    def _nodes_in_doubt(self) -> frozenset[str]:
        return frozenset(self.decider.bookings.in_doubt().values())
