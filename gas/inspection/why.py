"""Why a pod waits, and what would let it run: every suggestion has been placed before it is made.

The reasons are the extender's own refusals. Suggestions change one thing and place the pod again: its requests, one of
its annotations or labels, the rules that keep it off nodes, the labels that close cards, the pods that hold them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from dataclasses import replace as with_fields
from datetime import UTC, datetime
from itertools import chain
from typing import NamedTuple
from zlib import crc32

from msgspec.structs import replace

from gas.decision.names import TIMESTAMP
from gas.extender.decisions import Decision
from gas.extender.host_resources import CPU
from gas.extender.verdicts import at_once
from gas.inspection.cluster import Cluster, natural, not_offered
from gas.inspection.defrag import VICTIM_STEPS, Move, cards_of, plan_moves
from gas.inspection.objects import (
    UNSCHEDULABLE,
    InspectedPod,
    InspectedPodSpec,
    PodAffinity,
    Toleration,
    held_back,
    last_attempt,
)
from gas.inspection.reasons import Reason, diagnose
from gas.ledger.eviction_cost import Evictable
from gas.ledger.ledger import Booking, NodeSums
from gas.ledger.victims import CandidateNode, smallest_victims
from gas.placement.choice import Choice
from gas.placement.inventory import UNUSED
from gas.placement.need import PodNeed
from gas.placement.place import place
from gas.placement.reason import card_details
from gas.placement.refusal import Refusal
from gas.values.amounts import MalformedQuantity, SortedAmounts, describe, gigabytes, is_bytes, parse_rounded_up
from gas.values.quoted import listed
from gas.vocabularies.pod_parts import from_limit_range
from gas.vocabularies.protocol import BadNeed

MOST_ENDS = 50  # nodes on which pods are found that hold cards and do not end by themselves
ENOUGH = 3  # suggestions to end pods that are shown, and moves that one suggestion may have
ONE_BY_ONE = 16  # requests up to this amount are tried one by one; of larger ones, less always fits if more does


@dataclass(frozen=True, slots=True)
class Suggestion:
    text: str  # of the change, as a sentence without its end
    node: str  # on which the pod fits then, and ``cards`` that it gets there
    cards: tuple[str, ...]
    pod: InspectedPod | None = None  # the pod with the change; None if it stays as it is
    gone: tuple[str, ...] = ()  # UIDs of the pods that must end
    moves: tuple[Move, ...] = ()  # of pods that run, in their order


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a pod waits, or why it has its cards."""

    line: str  # the one-line reason
    nodes: int = 0  # how many nodes were looked at
    groups: tuple[Reason, ...] = ()
    suggestions: tuple[Suggestion, ...] = ()
    # further sentences: about a pod that runs, and about the last decision
    details: tuple[str, ...] = ()
    is_complete: bool = True  # whether there was time to look at everything


class _Axis(NamedTuple):
    """One request of one container, CPU in thousandths of a core. ``init`` says in which list the container is."""

    init: bool
    position: int
    container: str
    resource: str
    amount: int


def explain(cluster: Cluster, pod: InspectedPod, is_late: Callable[[], bool] = lambda: False) -> Explanation:
    """Explain a GPU pod. ``is_late`` returns whether no further suggestions should be looked for."""
    if pod.is_over:
        return Explanation("the pod has ended, so it holds no cards")
    return _why_here(cluster, pod) if pod.node_name else _WaitingPod(cluster, pod, is_late).explain()


class _WaitingPod:
    """The search for reasons and suggestions for one pod that waits."""

    def __init__(self, cluster: Cluster, pod: InspectedPod, is_late: Callable[[], bool]) -> None:
        self._cluster = cluster
        self._decider = cluster.decider
        self._options = cluster.settings.options
        self._pod = pod
        self._is_late = is_late
        self._cut_short = False
        self._promised = cluster.decider.promises.to_others(pod)
        self._excluded = cluster.eligible(pod)
        self._allowed = [name for name, rule in cluster.rules(pod).items() if not rule]
        self._names = [name for name, rule in self._excluded.items() if not rule]

    def explain(self) -> Explanation:
        total = len(self._excluded)
        found = diagnose(self._cluster, self._pod)
        need = self._need(self._pod)
        vocabulary = self._options.vocabularies.vocabulary_of(self._pod)
        of_limit_range = from_limit_range(self._pod, vocabulary.asking.resources if vocabulary is not None else ())
        kept = "" if isinstance(need, str) else self._kept_for_others(need)
        details = tuple(filter(None, (held_back(self._pod) or last_attempt(self._pod), of_limit_range, kept)))
        if isinstance(need, str):
            return Explanation(found.line, total, found.reasons, tuple(self._without_metadata()), details)
        if found.passing:
            return Explanation(found.line, total, details=past_details(self._cluster.decisions, self._pod.uid))
        cannot_help = held_back(self._pod) or self._cluster.decider.faults(self._pod)
        suggestions = chain(
            self._smaller_requests(),
            self._without_metadata(),
            self._on_excluded_nodes(),
            self._with_open_cards(need),
            self._after_ends(need),
            self._after_moves(),
        )
        return Explanation(
            found.line,
            total,
            found.reasons,
            () if cannot_help else tuple(suggestions),
            details=(*details, *past_details(self._cluster.decisions, self._pod.uid)),
            is_complete=not self._cut_short,
        )

    def _kept_for_others(self, need: PodNeed) -> str:
        """Return which nominated pods have cards that this one would get, as a sentence; empty if none."""
        decider, own = self._decider, self._pod
        taken = [name for name in self._names if name in self._promised]
        promised = [
            f"{each.nominated.pod} on {name}"
            for name in taken
            if isinstance(decider.verdicts.choose(need, name), Choice)
            for each in decider.promises.on(name)
            if each.footprint.amounts and each.nominated.priority >= own.priority and each.nominated.uid != own.uid
        ]
        kept = "its place is promised to a pod that kube-scheduler has yet to bind"
        return f"{kept}: {listed(promised)}" if promised else ""

    def _late(self) -> bool:
        self._cut_short = self._cut_short or self._is_late()
        return self._cut_short

    def _need(self, pod: InspectedPod) -> PodNeed | str:
        """Return the need of a pod, or the sentence why it cannot be read."""
        try:
            return self._decider.need(pod)
        except BadNeed as bad:
            return str(bad)

    def _cards_on(self, pod: InspectedPod, name: str) -> tuple[str, ...] | None:
        """Return the cards that a pod would get on a node now; None if it does not fit."""
        need = self._need(pod)
        if isinstance(need, str) or self._cluster.shortage(self._cluster.other_requests(pod), name):
            return None
        choice = self._decider.verdicts.choose(need, name, self._promised.get(name, ()))
        return None if isinstance(choice, Refusal) else cards_of(choice)

    def _sums(self, name: str) -> NodeSums:
        """Return what is booked on a node, or promised there to other pods."""
        return self._decider.ledger.sums(name, self._promised.get(name, ()))

    def _first_place(self, pod: InspectedPod, text: str, node: str = "") -> Iterator[Suggestion]:
        """Yield a suggestion if a changed pod fits anywhere.

        That is on a node with its preferred card, as the extender's filter has it, else on this node or the first.
        """
        names = [name for name, rule in self._cluster.eligible(pod).items() if not rule]
        need = self._need(pod)
        if isinstance(need, str):
            return
        verdicts = zip(names, at_once(self._decider.verdicts.of(need, names, self._promised)), strict=True)
        passing = {name: verdict.preferred for name, verdict in verdicts if verdict.refusal is None}
        if passing:
            name = max(passing, key=lambda each: (passing[each], each == node))
            if (cards := self._cards_on(pod, name)) is not None:
                yield Suggestion(text, name, cards, pod)

    # Requests

    def _smaller_requests(self) -> Iterator[Suggestion]:
        """Yield the smallest changes of single requests, or if none is enough, of several together."""
        axes = [axis for axis in _axes(self._pod) if self._asks(_with_requests(self._pod, {axis: 1})) != self._asks()]
        states: dict[tuple[object, ...], str] = {}
        for name in sorted(self._allowed, key=lambda each: crc32(each.encode())):
            free = self._cluster.free_other_resources(name)
            state = self._decider.verdicts.states.of(name, self._promised.get(name, ()))
            states.setdefault((state, *free.items()), name)
        names = list(states.values())
        found = False
        for axis in axes:
            amount, node = self._largest(axis, {}, names, axis.amount - 1)
            if amount:
                found = True
                yield from self._asking({axis: amount}, node)
        if found or len(axes) < 2 or self._late():
            return
        chosen = dict.fromkeys(axes, 1)
        for axis in axes:
            others = {each: amount for each, amount in chosen.items() if each != axis}
            amount, node = self._largest(axis, others, names, axis.amount)
            if not amount:
                return
            chosen[axis] = amount
        changed = {axis: amount for axis, amount in chosen.items() if amount != axis.amount}
        if changed:
            yield from self._asking(changed, node)

    def _asks(self, pod: InspectedPod | None = None) -> tuple[PodNeed | str, SortedAmounts]:
        pod = pod or self._pod
        return self._need(pod), self._cluster.other_requests(pod)

    def _asking(self, changes: Mapping[_Axis, int], node: str) -> Iterator[Suggestion]:
        pod = _with_requests(self._pod, changes)
        words = [
            f"{_amount(axis.resource, amount)} of {axis.resource} in container {axis.container} instead of"
            f" {_amount(axis.resource, axis.amount)}"
            for axis, amount in changes.items()
        ]
        return self._first_place(pod, f"ask for {' and '.join(words)}", node)

    def _largest(self, axis: _Axis, others: Mapping[_Axis, int], names: Sequence[str], most: int) -> tuple[int, str]:
        """Return the largest amount up to ``most`` with which the pod fits on one of the nodes, and that node."""

        def fits(name: str, amount: int) -> bool:
            return self._cards_on(_with_requests(self._pod, {**others, axis: amount}), name) is not None

        if most <= ONE_BY_ONE:
            for amount in range(most, 0, -1):
                for name in names:
                    if self._late():
                        return 0, ""
                    if fits(name, amount):
                        return amount, name
            return 0, ""
        best, where = 0, ""
        for name in names:
            if self._late() or best >= most:
                break
            if not fits(name, best + 1):
                continue
            low, high = best + 1, most
            while low < high:
                middle = (low + high + 1) // 2
                low, high = (middle, high) if fits(name, middle) else (low, middle - 1)
            best, where = low, name
        return best, where

    # Rules

    def _without_metadata(self) -> Iterator[Suggestion]:
        """Yield the annotations and labels of the pod without which it fits."""
        metadata, before = self._pod.metadata, self._need(self._pod)
        for kind, texts in (("annotation", metadata.annotations or {}), ("label", metadata.labels or {})):
            for name in sorted(texts):
                if self._late():
                    return
                rest = {key: text for key, text in texts.items() if key != name}
                pod = replace(self._pod, metadata=replace(metadata, **{f"{kind}s": rest}))
                if self._need(pod) != before:
                    yield from self._first_place(pod, f"remove the {kind} {name}")

    def _on_excluded_nodes(self) -> Iterator[Suggestion]:
        """Yield the rules of Kubernetes without which the pod fits on a node that they exclude."""
        spec = self._pod.spec
        changes: list[tuple[str, InspectedPodSpec]] = []
        if spec.node_selector:
            changes.append(("remove its node selector", replace(spec, node_selector=None)))
        if spec.affinity is not None and spec.affinity.node_affinity is not None:
            affinity: PodAffinity = replace(spec.affinity, node_affinity=None)
            changes.append(("remove its required node affinity", replace(spec, affinity=affinity)))
        taints: dict[str, None] = {}
        for name, rule in self._excluded.items():
            if rule:
                node = self._cluster.nodes.records[name]
                taints.update(dict.fromkeys(taint.key for taint in node.spec.taints or ()))
                if node.spec.unschedulable:
                    taints[UNSCHEDULABLE.key] = None
        for key in taints:
            tolerations = (*(spec.tolerations or ()), Toleration(key=key, operator="Exists"))
            changes.append((f"let it tolerate the taint {key}", replace(spec, tolerations=tolerations)))
        for text, changed in changes:
            if self._late():
                return
            yield from self._first_place(replace(self._pod, spec=changed), text)

    def _with_open_cards(self, need: PodNeed) -> Iterator[Suggestion]:
        """Yield the first node on which the pod fits once telemetry labels no longer close cards or tiles."""
        for name in self._names:
            facts = self._decider.nodes.facts(name)
            if facts is None or not (facts.inventory.disabled or facts.inventory.closed_tiles):
                continue
            if self._late():
                return
            opened = with_fields(facts.inventory, disabled=frozenset(), closed_tiles={})
            choice = place(need, opened, self._sums(name).usage(), step_limit=self._options.step_limit)
            if isinstance(choice, Choice):
                text = f"open the closed cards of {name}, if they are well; gas inspect {name} shows what closes them"
                yield Suggestion(text, name, cards_of(choice))
                return

    # Other pods

    def _after_ends(self, need: PodNeed) -> Iterator[Suggestion]:
        """Yield the nodes on which the fewest pods must end for this one, and where these could go instead."""
        found: list[Suggestion] = []
        possible: dict[int, bool] = {}
        ones = 0
        records = self._cluster.pods.records
        of_old = {each.node_name for each in records.values() if self._pod.waits_for(each)}
        for name in sorted(self._allowed, key=lambda each: each not in of_old):
            facts = self._decider.nodes.facts(name)
            booked = self._decider.ledger.on_node(name)
            if facts is None or not booked:
                continue
            if ones >= ENOUGH or len(found) >= MOST_ENDS or self._late():
                break
            if (fits := possible.get(id(facts))) is None:
                found_one = place(need, facts.inventory, UNUSED, step_limit=self._options.step_limit)
                fits = possible[id(facts)] = isinstance(found_one, Choice)
            if not fits:
                continue
            pods = [
                Evictable(
                    uid=uid,
                    priority=self._permanence(uid) == 1,
                    footprint=booking.footprint,
                    requests=self._cluster.requested(uid),
                )
                for uid, booking in sorted(booked.items(), key=self._importance)
            ]
            free = self._cluster.free_other_resources(name)
            requests = self._cluster.other_requests(self._pod)
            if not_offered(requests, free):
                continue
            victims = smallest_victims(
                need,
                requests,
                CandidateNode(inventory=facts.inventory, sums=self._sums(name), free=free),
                pods,
                step_limit=self._options.step_limit,
                victim_steps=VICTIM_STEPS,
                is_late=self._is_late,
            )
            if victims is None or not victims.pods:
                continue
            uids = tuple(each.uid for each in victims.pods)
            ones += len(uids) == 1 and self._permanence(uids[0]) < 1
            found.append(Suggestion(self._ending(uids), name, cards_of(victims.choice), gone=uids))
        found.sort(key=lambda each: (sum(self._permanence(uid) == 1 for uid in each.gone), len(each.gone)))
        yield from found[:ENOUGH]

    def _permanence(self, uid: str) -> int:
        """Return 0 for a pod that ends by itself, -1 for one that ends once this one runs, 1 for all others."""
        pod = self._cluster.pods.records.get(uid)
        return 0 if pod is None or pod.ends else -1 if self._pod.waits_for(pod) else 1

    def _ending(self, uids: Iterable[str]) -> str:
        """Return what ends these pods: time, if they end by themselves, or a change of what owns them."""
        pods = sorted((self._cluster.pods.records[uid] for uid in uids), key=lambda each: natural(each.key))
        steps: list[str] = []
        if names := [pod.key for pod in pods if pod.ends]:
            steps.append(f"wait for the end of {'pod' if len(names) == 1 else 'pods'} {' and '.join(names)}")
        for pod in pods:
            if pod.ends:
                continue
            if self._pod.waits_for(pod):
                recreate = "" if pod.controller.kind == "DaemonSet" else ", or type: Recreate,"
                steps.append(
                    f"set maxSurge: 0 and maxUnavailable: 1{recreate} in the update strategy of {pod.owner}, whose old"
                    f" pod {pod.key} ends only once the new one runs"
                )
                continue
            how = f"keep {pod.owner} off {pod.node_name}" if "DaemonSet" in pod.owner else f"scale down {pod.owner}"
            steps.append(f"{how}, whose pod {pod.key} does not end by itself" if pod.owner else f"delete pod {pod.key}")
        return " and ".join(dict.fromkeys(steps))

    def _after_moves(self) -> Iterator[Suggestion]:
        """Yield the plan with the fewest moves of pods that run."""
        if self._late():
            return
        plan = plan_moves(self._cluster, self._pod, self._is_late, most_moves=ENOUGH)
        self._late()
        if plan.moves:
            words = ", then ".join(
                f"{move.pod} to {' '.join(move.target_cards) + ' of ' if move.target == move.node else ''}{move.target}"
                for move in plan.moves
            )
            text = f"move {words}; nothing is evicted by this command"
            yield Suggestion(text, plan.node, plan.cards, moves=plan.moves)

    def _importance(self, booked: tuple[str, Booking]) -> tuple[int, int, object]:
        """Return a key that sorts pods, the most important first; the same in every run."""
        uid, booking = booked
        pod = self._cluster.pods.records.get(uid)
        return -self._permanence(uid), 0 if pod is None else -pod.priority, natural(booking.pod)


def _why_here(cluster: Cluster, pod: InspectedPod) -> Explanation:
    """Explain the cards of a pod that has a node."""
    booking = cluster.decider.ledger.booking(pod.uid)
    bound = cluster.decider.pods.bound_pod(pod.uid)
    trouble = bound.trouble.sentence if bound is not None and bound.trouble is not None else ""
    if booking is None:
        without = cluster.fault(pod) or "it needs none"
        return Explanation(f"is on node {pod.node_name} without booked cards: {without}")
    cards = ", ".join(map(str, booking.footprint.amounts))
    details = [f"its annotations: {trouble}"] if trouble else []
    if text := pod.annotations.get(TIMESTAMP):
        details.append(f"its cards were decided at {as_time(text)}")
    details += past_details(cluster.decisions, pod.uid)
    for card, amounts in booking.footprint.amounts.items():
        words = ", ".join(describe(name, amount) for name, amount in amounts)
        details.append(f"of {card} it holds {words}")
    facts = cluster.decider.nodes.facts(pod.node_name)
    need: PodNeed | None = None
    with suppress(BadNeed):
        need = cluster.decider.need(pod)
    if facts is not None and need is not None:
        sums = cluster.decider.ledger.sums(pod.node_name)
        sums.take(pod.uid, booking.footprint)
        again = place(need, facts.inventory, sums.usage(), step_limit=cluster.settings.options.step_limit)
        if isinstance(again, Choice):
            same = set(cards_of(again)) == set(map(str, booking.footprint.amounts))
            others = "the same cards" if same else " ".join(cards_of(again))
            details.append(f"placed on this node again now, without itself, it would get {others}")
        else:
            details.append(f"placed on this node again now, without itself, it would not fit: {again}")
        details += [f"now, without it, {line}" for line in card_details(need, facts.inventory, sums.usage())]
    return Explanation(f"has {cards} of node {pod.node_name}", details=tuple(details))


def as_time(nanoseconds: str) -> str:
    """Return a time since 1970 as people write it; the text itself if it is none."""
    try:
        return f"{datetime.fromtimestamp(int(nanoseconds) // 10**9, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return f"{TIMESTAMP}={nanoseconds}"


def explanation_data(explanation: Explanation) -> dict[str, object]:
    return {
        "reason": explanation.line,
        "nodes": explanation.nodes,
        "groups": [{"reason": each.text, "nodes": each.nodes, "best": each.nearest} for each in explanation.groups],
        "suggestions": [
            {"change": each.text, "node": each.node, "cards": list(each.cards)} for each in explanation.suggestions
        ],
        "details": list(explanation.details),
        "complete": explanation.is_complete,
    }


def explanation_lines(pod: str, explanation: Explanation, *, searched: bool = True) -> Iterator[str]:
    """Yield the explanation as lines of text, which are not escaped yet. ``searched``: suggestions were looked for."""
    yield f"{pod}: {explanation.line}"
    yield from (f"  {detail}" for detail in explanation.details)
    if explanation.groups:
        yield ""
    for group in explanation.groups:
        yield f"on {group.nodes} of {explanation.nodes} nodes: {group}"
    if explanation.suggestions:
        yield ""
        yield "Any one of these would let it run:"
    for suggestion in explanation.suggestions:
        cards = f" with {' '.join(suggestion.cards)}" if suggestion.cards else ""
        yield f"- {suggestion.text} (fits on {suggestion.node}{cards})"
    if searched and explanation.groups and not explanation.suggestions:
        yield ""
        yield "No single change was found that would let it run."


def _axes(pod: InspectedPod) -> Iterator[_Axis]:
    """Yield the requests of a pod that may be lowered."""
    for init, containers in ((True, pod.spec.init_containers), (False, pod.spec.containers)):
        for position, container in enumerate(containers or ()):
            requests = (container.resources.requests if container.resources is not None else None) or {}
            for resource, quantity in requests.items():
                with suppress(MalformedQuantity):
                    if (amount := parse_rounded_up(quantity, thousandths=resource == CPU)) > 1:
                        yield _Axis(init, position, container.name, resource, amount)


def _with_requests(pod: InspectedPod, amounts: Mapping[_Axis, int]) -> InspectedPod:
    lists = {True: list(pod.spec.init_containers or ()), False: list(pod.spec.containers or ())}
    for axis, amount in amounts.items():
        container = lists[axis.init][axis.position]
        if container.resources is not None:
            written = f"{amount}m" if axis.resource == CPU else amount
            requests = {**(container.resources.requests or {}), axis.resource: written}
            resources = replace(container.resources, requests=requests)
            lists[axis.init][axis.position] = replace(container, resources=resources)
    return replace(pod, spec=replace(pod.spec, init_containers=lists[True], containers=lists[False]))


def _amount(resource: str, amount: int) -> str:
    """Write an amount as it stands in a manifest, bytes also in GB."""
    if resource == CPU:
        return f"{amount}m"
    return f"{amount} ({gigabytes(amount)} GB)" if is_bytes(resource.rpartition("/")[2]) else str(amount)


def past_details(decisions: Iterable[Decision], uid: str) -> tuple[str, ...]:
    """Return sentences about the last decision on a pod; none if it is not known."""
    last = next((each for each in decisions if each.uid == uid), None)
    if last is None:
        return ()
    took = ", ".join(f"{verb} {amount:.1f} ms" for verb, amount in last.milliseconds.items())
    if last.error:
        return (f"the last attempt to bind it, to {last.node}, failed ({took}): {last.error}",)
    found = [f"the decision took {took}"]
    if last.passing is not None:
        score = f"; the score of {last.node} was {last.score}" if last.score is not None else ""
        nodes = "1 node" if last.passing == 1 else f"{last.passing} nodes"
        found.append(f"{nodes} had room then{score}")
    if last.alternatives:
        others = ", ".join(
            each.node if each.score is None else f"{each.node} (score {each.score})" for each in last.alternatives
        )
        found.append(f"it could have had {others} instead")
    return tuple(found)
