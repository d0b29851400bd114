"""Why a pod waits: the reasons of the nodes, the one that is nearest to fitting first.

Nodes that offer what the pod asks for and that no rule of Kubernetes excludes come first: it waits for room on one of
them. Lists, `kubectl gas why`, `kubectl gas fit`, the doctor and the page say this in the same words.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gas.extender.verdicts import Verdict, at_once
from gas.inspection.cluster import Cluster, not_offered, shortages
from gas.inspection.objects import InspectedPod, node_rules, yet_to_come
from gas.placement.lack import Lack, lack_of_cards
from gas.placement.need import PodNeed
from gas.placement.plan import plan_of
from gas.placement.refusal import NoCards, ResourceNotOnNode
from gas.values.amounts import SortedAmounts
from gas.vocabularies.protocol import BadNeed


@dataclass(frozen=True, slots=True)
class Reason:
    text: str
    nodes: int
    nearest: str = ""  # the node or card that lacks least, with what is free there; empty if no amount is short
    may_fit: bool = False  # whether these nodes offer what the pod asks for and no rule excludes them

    def __str__(self) -> str:
        return f"{self.text}; nearest: {self.nearest}" if self.nearest else self.text


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The reasons of all nodes for which a pod waits."""

    line: str  # everything in one sentence
    passing: int = 0  # how many nodes have room
    reasons: tuple[Reason, ...] = ()  # of all nodes; empty if one has room, or if there are none


class Diagnoses:
    """The diagnoses of pods. Pods that ask for the same and may use the same nodes share one until a change."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known_at = (0, 0)
        self._known: dict[tuple[PodNeed, bytes, SortedAmounts, str, str, int, str], Diagnosis] = {}

    def of(self, pod: InspectedPod) -> Diagnosis:
        cluster = self._cluster
        try:
            need = cluster.decider.need(pod)
        except BadNeed:
            return diagnose(cluster, pod)
        if self._known_at != (now := (cluster.nodes.version, cluster.pods.version)):
            self._known_at = now
            self._known.clear()
        requests, faults = cluster.other_requests(pod), cluster.decider.faults(pod)
        nominated = pod.uid if pod.nominated_node else ""  # what is promised to it is not promised to others
        key = need, node_rules(pod), requests, yet_to_come(pod), faults, pod.priority, nominated
        if key not in self._known:
            self._known[key] = diagnose(cluster, pod)
        return self._known[key]


def of_numbers(groups: Sequence[Reason], passing: int, total: int, faults: str, pod: InspectedPod) -> Diagnosis:
    """Return the extender's numbers as a diagnosis, for a user who may not read the nodes."""
    if passing or not groups:
        rules = faults or f"selectors, taints, CPU and memory of nodes were not looked at; {yet_to_come(pod)}"
        return Diagnosis(f"has room on the cards of {passing} of {total} nodes; {rules}", passing)
    return Diagnosis("; ".join(filter(None, (_line(groups, total), faults))), reasons=tuple(groups))


def diagnose(cluster: Cluster, pod: InspectedPod, only: Sequence[str] | None = None) -> Diagnosis:
    """Ask the nodes for which a pod waits.

    only  the nodes that it is limited to, whatever the rules of Kubernetes say; None for all of the cluster
    """
    rules = cluster.rules(pod) if only is None else dict.fromkeys(only, "")
    try:
        need = cluster.decider.need(pod)
    except BadNeed as bad:
        line = "; ".join((str(bad), *bad.others))
        return Diagnosis(line, reasons=(Reason(line, len(rules)),))
    if not rules:
        absent = f"the cluster has no node {pod.node_name}" if pod.node_name else "the cluster has no nodes"
        return Diagnosis(absent, reasons=(Reason(absent, 0),))
    return _Question(cluster, pod, need, rules).diagnosis()


class _Question:
    """One pod that waits, and the nodes with the rules that keep it off them."""

    def __init__(self, cluster: Cluster, pod: InspectedPod, need: PodNeed, rules: Mapping[str, str]) -> None:
        self._cluster = cluster
        self._decider = cluster.decider
        self._pod = pod
        self._need = need
        self._rules = rules
        self._requests = cluster.other_requests(pod)
        self._resources = plan_of(need).names if need.wants_cards else ()
        self._promised = cluster.decider.promises.to_others(pod)
        self._of_state: dict[int, Lack] = {}
        self._eligible = cluster.eligible(pod)
        self._missing: dict[tuple[int, int], tuple[str, ...]] = {}  # by identity, since equal nodes share both

    def diagnosis(self) -> Diagnosis:
        total = len(self._rules)
        allowed = [name for name, rule in self._rules.items() if not rule]
        verdicts = dict(
            zip(allowed, at_once(self._decider.verdicts.of(self._need, allowed, self._promised)), strict=True)
        )
        if not self._need.wants_cards:
            verdicts = {}
        passing = 0
        nearest: dict[str, tuple[Lack, str]] = {}
        counts: Counter[str] = Counter()
        excluded: Counter[str] = Counter()
        absent: Counter[tuple[str, ...]] = Counter()
        served, classes = self._cluster.by_dra(self._pod, allowed)
        for name, rule in self._rules.items():
            if name in served:
                excluded[f"it is served {classes}"] += 1
            elif missing := self._not_offered(name):
                absent[missing] += 1
            elif rule:
                excluded[rule] += 1
            elif (lack := self._lack(name, verdicts.get(name))) is None:
                passing += 1
            else:
                counts[lack.text] += 1
                if lack.text not in nearest or lack.gap < nearest[lack.text][0].gap:
                    nearest[lack.text] = lack, name
        faults = self._cluster.decider.faults(self._pod)
        nodes = "1 node serves" if len(served) == 1 else f"{len(served)} nodes serve"
        by_dra = f"{nodes} it {classes}" if served else ""
        if passing:
            sentences = (faults, f"fits on {passing} of {total} nodes", by_dra, yet_to_come(self._pod))
            return Diagnosis("; ".join(filter(None, sentences)), passing)
        found = sorted(nearest.values(), key=lambda each: (each[0].gap, -counts[each[0].text], each[0].text))
        reasons = [
            Reason(lack.text, counts[lack.text], f"{name} {lack.nearest}" if lack.nearest else "", may_fit=True)
            for lack, name in found
        ]
        reasons += [Reason(*each) for each in excluded.most_common()]
        not_there: Counter[str] = Counter()
        for missing, count in absent.items():
            not_there[self._sentence(missing)] += count
        reasons += [Reason(*each) for each in not_there.most_common()]
        line = self._nowhere(absent) if not found and not excluded else _line(reasons, total)
        if classes and classes in line:
            by_dra = ""  # it is the first reason
        return Diagnosis("; ".join(filter(None, (line, by_dra, faults))), reasons=tuple(reasons))

    def _not_offered(self, name: str) -> tuple[str, ...]:
        """Return the resources that the pod asks for and a node does not have."""
        facts, stated = self._decider.nodes.facts(name), self._decider.hosts.nodes.records.get(name, ())
        key = id(facts), id(stated)
        if (found := self._missing.get(key)) is None:
            cards = facts.inventory.capacity.values() if facts is not None else ()
            on_node = not_offered(self._requests, dict(stated))
            named = {name.rpartition("/")[2] for name in on_node}
            found = self._missing[key] = (
                *on_node,
                *(each for each in self._resources if each not in named and not any(card.get(each) for card in cards)),
            )
        return found

    def _sentence(self, missing: Sequence[str]) -> str:
        """Return what a node says that does not have these resources."""
        if missing[0] not in self._resources:
            return f"the node has no {missing[0]}"
        return str(NoCards() if len(missing) == len(self._resources) else ResourceNotOnNode(missing[0]))

    def _nowhere(self, absent: Mapping[tuple[str, ...], int]) -> str:
        """Return which resource is nowhere where the others are; ``absent`` has what all the nodes do not have."""
        if everywhere := tuple(name for name in next(iter(absent)) if all(name in each for each in absent)):
            absent = {everywhere: sum(absent.values())}
        missing = min(absent, key=lambda each: (len(each), -absent[each], each))
        if any(missing[0] not in each for each in absent):
            others = sorted({name for each in absent for name in each} - set(missing))
            return f"no node has {missing[0]} together with {' and '.join(others)}"
        if missing[0] in self._resources:
            return _line([Reason(self._sentence(missing), absent[missing])], len(self._rules))
        return f"no node has {missing[0]}"

    def _lack(self, name: str, verdict: Verdict | None) -> Lack | None:
        """Return what a node lacks most that offers everything; None if the pod fits."""
        found: Lack | None = None
        if verdict is not None and verdict.refusal is not None:
            promised = self._promised.get(name, ())
            state = self._decider.verdicts.states.of(name, promised)
            if (found := self._of_state.get(state)) is None:
                facts = self._decider.nodes.facts(name)
                found = self._of_state[state] = (
                    lack_of_cards(
                        self._need, facts.inventory, self._decider.ledger.sums(name, promised).usage(), verdict.refusal
                    )
                    if facts is not None
                    else Lack(1.0, verdict.sentence)
                )
        if self._eligible.get(name):
            for text, gap, free in shortages(self._requests, self._cluster.free_other_resources(name)):
                if found is None or gap > found.gap:
                    found = Lack(gap, text, f"with {free}" if free else "")
        return found


def _line(reasons: Sequence[Reason], total: int) -> str:
    """Return the first reason, with how many of all the nodes give it and how many cannot take the pod at all."""
    first = reasons[0]
    if first.nodes == total:
        return str(first)
    others = sum(each.nodes for each in reasons if not each.may_fit) if first.may_fit else 0
    rest = f"; excluded or without what it asks for: {others}" if others else ""
    return f"{first} ({first.nodes} of {total} nodes{rest})"
