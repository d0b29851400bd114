"""Score nodes for single pods, learn from each pod that arrives, and serve the verb prioritize."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import starmap

import msgspec

from gas.extender.decider import Decider
from gas.extender.filter import in_turns
from gas.extender.hooks import Hooks, Observer
from gas.extender.host_resources import pod_requests
from gas.extender.metrics import Metrics
from gas.extender.readiness import check_ready
from gas.extender.scoring.scores import Scores, as_scores
from gas.extender.verdicts import Turns
from gas.extender.wire import FilterArgs, decode_filter
from gas.objects.stored import AskedPod, Pod
from gas.placement.need import PodNeed
from gas.placement.order import NodeScore
from gas.vocabularies.protocol import BadNeed

logger = logging.getLogger(__name__)


class Scoring(Observer):
    """Score nodes by what the pods that have arrived ask for. ``policy`` is for pods that choose none."""

    def __init__(self, policy: NodeScore, decider: Decider) -> None:
        decider.count_hosts()
        self._decider = decider
        self.scores = Scores(policy, decider)
        self._has_learned = False

    @property
    def hooks(self) -> Hooks:
        return Hooks(choosing=(self.scores.chosen_need,), observers=(self.scores, self))

    def prioritize(self, args: FilterArgs) -> Turns[list[tuple[str, int]]]:
        """Score nodes for a pod: (name, score), the highest and best score first. Books nothing.

        All are 0 if no node is to be preferred, also for a pod whose need cannot be read.
        """
        names = args.node_names or [] if args.nodes is None else [sent.node.name for sent in args.nodes]
        scores = self.scores
        try:
            need = self._decider.need(args.pod)
        except BadNeed:
            return [(name, 0) for name in names]
        if scores.policy(need) is NodeScore.NONE:
            return [(name, 0) for name in names]
        requests, promised = pod_requests(args.pod), self._decider.promises.to_others(args.pod)
        if args.nodes is None:
            costs = yield from scores.of(args.pod.uid, need, requests, names, promised)
        else:
            facts = self._decider.nodes.as_sent(each.node for each in args.nodes)
            free = {each.node.name: self._decider.hosts.free_of(each.node) for each in args.nodes}
            names = list(facts)
            sent = {name: (facts[name], free[name]) for name in names}
            costs = yield from scores.as_sent(args.pod.uid, need, requests, sent, promised)
        return as_scores(names, costs)

    def demand_json(self) -> bytes:
        """Return the body of ``/debug/demand``: what nodes are scored by.

        arrivals  how many pods were learned from
        pods      the shapes that the costs in use are made from: cards, amounts of each card, their number (older pods
                  count for less than one), and what they request besides cards
        cards     by kind of card: what pods request besides a whole card, and by hundredths of a card that are left how
                  many thousandths will stay unused
        pressure  how much pods that are limited to some nodes ask for cards of a kind of node; 1 is all of them
        """
        mix, pressures = self.scores.mix()
        kinds = {
            tuple(capacity.items())
            for _, facts in self._decider.nodes
            for capacity in facts.inventory.capacity.values()
        }
        return msgspec.json.encode(
            {
                "arrivals": self.scores.demand.arrivals,
                "pods": [
                    {
                        "containers": [
                            {"cards": part.cards, "of_each": dict(part.per_card), "ratios": list(map(str, part.ratios))}
                            for part in each.shape
                        ],
                        "restricted": each.restriction is not None,
                        "number": each.weight,
                        "host": dict(each.host),
                    }
                    for each in mix.asked
                ],
                "cards": [
                    {"card": dict(kind), "per_card": seen.per_card, "unused": seen.waste}
                    for kind in sorted(kinds)
                    for seen in (mix.on(dict(kind)),)
                ],
                "pressure": [
                    {"cards": len(pool.cards), "cpu": pool.cpu, "pressure": pressure}
                    for pool, pressure in pressures.items()
                ],
            }
        )

    def asked(self, pod: Pod, need: PodNeed, names: Sequence[str]) -> None:
        """Learn from a pod that has arrived; before the first one, from those that are bound already."""
        if not self._has_learned:
            self._has_learned = True
            for uid, bound in self._decider.pods.bound():
                self.scores.learn(uid, bound.need, self._decider.hosts.pods.requested(uid) or ())
        restriction = pod.node_restriction if isinstance(pod, AskedPod) else None
        self.scores.learn(pod.uid, need, pod_requests(pod), restriction, names)


class _HostPriority(msgspec.Struct, rename="pascal", gc=False):
    host: str
    score: int


@dataclass(frozen=True, slots=True, eq=False)
class Prioritize:
    """Score nodes on request: called with the body of a request, returns the body of the response.

    The response has no field for an error: kube-scheduler goes on without these scores if there is one.
    """

    decider: Decider
    scoring: Scoring
    metrics: Metrics
    why_not_ready: Callable[[], str | None]  # returns the reason while this replica may not decide, else None

    async def __call__(self, body: bytes) -> bytes:
        check_ready(self.why_not_ready)
        args = decode_filter(body)
        begun = time.perf_counter()
        scores = await in_turns(self.scoring.prioritize(args))
        self.decider.decisions.scored(args.pod.uid, scores, time.perf_counter() - begun)
        self.metrics.requests.labels("prioritize", "scored").inc()
        logger.debug("%d nodes scored", len(scores), extra={"pod": args.pod.key})
        return msgspec.json.encode(list(starmap(_HostPriority, scores)))
