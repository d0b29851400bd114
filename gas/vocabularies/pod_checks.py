"""The rules for a pod when it is created: what makes the API server refuse it, and what its owner is warned of.

The admission webhooks refuse what a filter would refuse on every node, in the same words, and ``gas doctor`` reports
the same for pods that were created without the webhooks.
"""

from collections import Counter
from collections.abc import Generator, Iterable, MutableMapping
from dataclasses import dataclass, replace
from heapq import nsmallest

from gas.decision.names import CHECKED, DESCHEDULED_BY_US, EXPIRED_BINDING, RECEIPT, WRITTEN_ANNOTATIONS
from gas.objects.json_patch import Operation, Patch
from gas.objects.stored import NewPod, Pod, Workload
from gas.placement.inventory import UNUSED, Inventory
from gas.placement.lack import lack_of_cards
from gas.placement.need import PodNeed
from gas.placement.order import resource_of
from gas.placement.place import place
from gas.placement.refusal import Refusal, ResourceNotOnNode, SearchLimitHit
from gas.values.amounts import is_bytes
from gas.values.quoted import did_you_mean, listed, quoted, shown
from gas.vocabularies.combined import MOST_CONTAINERS, TooLarge, Vocabularies, container_count
from gas.vocabularies.pod_parts import NODE_SCORE, from_limit_range
from gas.vocabularies.protocol import BadNeed, NeedOptions, NodeFacts, Vocabulary

DEFAULT_SCHEDULER = "default-scheduler"

MOST_KINDS = 1000  # different nodes that are searched for room for one pod; beyond that, one of the others may have it

MOST_SEARCHED_CONTAINERS = 30
"""Containers with cards of a pod for which nodes are searched; larger pods are taken to fit."""

STEPS = 500  # Of the search on an empty node. A pod that needs more is taken to fit.
LONGEST_WARNING = 256  # Characters of the longest sentence. The API server may cut longer warnings.

_MOST_REASONS = 2
_MOST_UNKNOWN = 20  # unknown annotations that are reported; each is compared with all known ones
_PREFIX = "gas-"
_UUIDS = ("gpu-", "mig-")
_WRITTEN = frozenset({*WRITTEN_ANNOTATIONS, DESCHEDULED_BY_US})
_OWN = _WRITTEN | {CHECKED, EXPIRED_BINDING}


CountedFacts = tuple[NodeFacts, int]  # what nodes state about their cards, and how many nodes state it
Known = MutableMapping[PodNeed, tuple[str, ...]]  # the warnings that depend on nodes, while the nodes stay the same


@dataclass(frozen=True, slots=True)
class Findings:
    """The faults of a pod, and warnings, one sentence each."""

    bad_need: str = ""  # the reason why no node could ever run it; empty if there is none
    # other reasons to refuse it when it is created; a pod that exists all the same is scheduled
    faults: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()  # what its owner probably did not mean

    @property
    def refusals(self) -> tuple[str, ...]:
        return (self.bad_need, *self.faults) if self.bad_need else self.faults

    @property
    def all(self) -> tuple[str, ...]:
        return (*self.refusals, *self.warnings)


NOTHING = Findings()


@dataclass(frozen=True, slots=True)
class PodChecks:
    """The rules, for the vocabularies and the options of one extender."""

    vocabularies: Vocabularies
    options: NeedOptions
    scheduler_name: str | None = None  # of GPU pods that have the default one; None if it stays
    scores_nodes: bool = True

    def pod(self, pod: Pod) -> Findings:
        """Check a pod that is to be created, or one that waits; nothing if it asks for no GPU."""
        if (vocabulary := self.vocabularies.vocabulary_of(pod)) is None:
            return NOTHING
        others: tuple[str, ...] = ()
        try:
            need, bad_need = self.vocabularies.need(pod, self.options), ""
        except TooLarge as large:
            return Findings(str(large))
        except BadNeed as bad:
            need, bad_need, others = None, str(bad), bad.others
        faults = (*others, *vocabulary.faults(pod))
        warnings = (*self._annotation_warnings(pod, vocabulary), *_written_annotations(pod))
        if not self.scores_nodes and NODE_SCORE in vocabulary.user_annotations and pod.annotations.get(NODE_SCORE):
            warnings += (f"annotation {NODE_SCORE} has no effect, because the extender runs without --node-score",)
        for each in (vocabulary, *vocabulary.guests):
            warnings += tuple(each.warnings(pod, self.options))
        warnings += _few_bytes(need) if need is not None and need.stated_memory is None else ()
        if need is not None and need.wants_cards and pod.node_name:
            where = f"the pod names its node itself, {quoted(pod.node_name)}"
            warnings = (*warnings, f"{where}, so no cards are chosen for it; use a nodeSelector instead")
        if given := from_limit_range(pod, vocabulary.asking.resources):
            faults, warnings = ((*faults, given), warnings) if bad_need or faults else (faults, (given, *warnings))
        return Findings(bad_need, faults, warnings)

    def _annotation_warnings(self, pod: Pod, vocabulary: Vocabulary) -> tuple[str, ...]:
        """Return warnings of annotations with gas's prefix that mean nothing in the pod's vocabulary."""
        of_others = frozenset[str]().union(*(each.user_annotations for each in self.vocabularies))
        known = vocabulary.user_annotations | _OWN
        found = (name for name in pod.annotations if name.startswith(_PREFIX) and "/" not in name and name not in known)
        return tuple(
            f"annotation {name} has no effect on a pod in the words of {vocabulary.name}"
            if name in of_others
            else _unknown_annotation(name, vocabulary.user_annotations)
            for name in nsmallest(_MOST_UNKNOWN, found)
        )

    def rolling_update(self, workload: Workload, pod: Pod) -> tuple[str, ...]:
        """Return a warning of a workload whose update needs free cards; ``pod`` is one of its pods."""
        try:
            wants_cards = self.vocabularies.need(pod, self.options).wants_cards
        except BadNeed:
            return ()
        return (_NEEDS_SPARE_CARDS,) if wants_cards and workload.adds_pods_first else ()

    def in_cluster(
        self, pod: Pod, nodes: Iterable[CountedFacts], known: Known
    ) -> Generator[None, None, tuple[str, ...]]:
        """Return warnings of a pod that depend on the nodes, which may change. Yields when other work should run."""
        try:
            need = self.vocabularies.need(pod, self.options)
        except BadNeed:
            return ()
        if not 0 < sum(container.count > 0 for container in need.containers) <= MOST_SEARCHED_CONTAINERS:
            return ()
        if need not in known:
            inventories = [(facts.inventory, count) for facts, count in nodes]
            is_chosen = need.order != self.options.card_order
            warnings = _unknown_resource(need, [inventory for inventory, _ in inventories]) if is_chosen else ()
            # A card's UUID is known as a name only from the first filter on that asks for it.
            by_uuid = any(isinstance(each, str) and each.startswith(_UUIDS) for each in need.allowed or ())
            never = "" if by_uuid else (yield from _why_never(need, inventories))
            known[need] = (*warnings, never) if never else warnings
        return known[need]

    def change(self, old: Pod, new: Pod, *, may_write_receipts: bool = False) -> tuple[str, ...]:
        """Return the warnings of a changed pod that the old one did not have.

        Of a bound pod these are changes of annotations that state what it holds. ``may_write_receipts``: the
        change may be the device plugin's.
        """
        if not new.node_name:
            before = self.pod(old).all
            return tuple(each for each in self.pod(new).all if each not in before)
        if not self.vocabularies.is_gpu_pod(new):
            return ()
        return tuple(
            f"{quoted(name)} {_BOUND_RECEIPT if name in RECEIPT else _BOUND}"
            for name in sorted(self.vocabularies.metadata - set(RECEIPT if may_write_receipts else ()))
            if (old.annotations.get(name) or "") != (new.annotations.get(name) or "")
        )

    def complete(self, pod: NewPod) -> Patch:
        """Return what a new GPU pod lacks. A pod that was completed is complete.

        A pod that names its node itself is not scheduled, so it stays as it is, unless the vocabulary has it scheduled
        after all. One with too many containers is refused, so it is not completed.
        """
        vocabulary = self.vocabularies.vocabulary_of(pod)
        if vocabulary is None or pod.is_mirror or container_count(pod) > MOST_CONTAINERS:
            return ()
        patch = vocabulary.complete(pod)
        if pod.node_name and not any(each.path == "/spec/nodeName" for each in patch):
            return ()
        name = pod.spec.scheduler_name or DEFAULT_SCHEDULER
        if self.scheduler_name and name == DEFAULT_SCHEDULER != self.scheduler_name:
            patch = (*patch, Operation("add", "/spec/schedulerName", self.scheduler_name))
        return patch


_NEEDS_SPARE_CARDS = (
    "a rolling update needs free cards for one more pod, because maxUnavailable is 0: without them the new pod waits"
    " for the old one, which ends only once the new one runs; set maxSurge: 0 and maxUnavailable: 1, or type: Recreate"
)
_BOUND = (
    "says what the bound pod holds; undo the change: the extender keeps what it decided, but reads the new text when it"
    " starts again, and the containers keep their cards in any case"
)
_BOUND_RECEIPT = (
    "says what kubelet gave the bound pod, and the extender follows it; only the device plugin should write it"
)


def counted(nodes: Iterable[NodeFacts]) -> list[CountedFacts]:
    """Count nodes that state the same; they share one object."""
    every = list(nodes)
    numbers = Counter(map(id, every))
    return [(facts, numbers[key]) for key, facts in {id(facts): facts for facts in every}.items()]


def _unknown_annotation(name: str, known: Iterable[str]) -> str:
    hint = did_you_mean(name, known, "docs/pods.md lists those that have one")
    return f"annotation {quoted(name)} is not known and has no effect; {hint}"


def _written_annotations(pod: Pod) -> tuple[str, ...]:
    """Return warnings of annotations of a decision on a pod for which none was made."""
    return tuple(
        f"annotation {name} is written when the pod is bound; remove it, it seems to be another pod's"
        for name in sorted(pod.annotations.keys() & _WRITTEN)
        if pod.annotations[name]
    )


def _few_bytes(need: PodNeed) -> tuple[str, ...]:
    """Return warnings of containers that ask for fewer bytes of memory than anyone needs."""
    return tuple(
        f"container {quoted(each.name)} asks for {each.count * amount} bytes of {shown(name)}; if MiB are meant, ask"
        f" for {each.count * amount * 2**20}"
        for each in need.containers
        for name, amount in each.per_card
        if is_bytes(name) and 0 < amount < 2**20
    )


def _unknown_resource(need: PodNeed, inventories: list[Inventory]) -> tuple[str, ...]:
    """Return a warning of an order of cards by a resource that no card has, if there are cards."""
    if (resource := resource_of(need.order)) is None:
        return ()
    known = {name for inventory in inventories for amounts in inventory.capacity.values() for name in amounts}
    if not known or resource in known:
        return ()
    hint = did_you_mean(resource, known, f"they have {listed(sorted(known))}")
    return (_cut(f"order of cards {quoted(str(need.order))} has no effect: no card has {quoted(resource)}; {hint}"),)


def _why_never(need: PodNeed, inventories: list[tuple[Inventory, int]]) -> Generator[None, None, str]:
    """Return why no node could run the pod even if it were empty and nothing were disabled; empty if one could.

    The node that lacks least comes first, of those that offer what the pod asks for.
    """
    with_cards = [(inventory, count) for inventory, count in inventories if inventory.capacity]
    if not inventories or len(with_cards) > MOST_KINDS:
        return ""
    if not with_cards:
        return "no node of the cluster has known GPU cards now, so the pod will wait for one"
    counts: Counter[str] = Counter()
    gaps: dict[str, tuple[bool, float]] = {}
    for inventory, count in with_cards:
        open_inventory = replace(inventory, disabled=frozenset(), closed_tiles={})
        result = place(need, open_inventory, UNUSED, step_limit=STEPS)
        if not isinstance(result, Refusal) or isinstance(result, SearchLimitHit):
            return ""
        lack = lack_of_cards(need, open_inventory, UNUSED, result)
        counts[lack.text] += count
        gap = isinstance(result, ResourceNotOnNode), lack.gap
        gaps[lack.text] = min(gap, gaps.get(lack.text, gap))
        yield
    nearest = nsmallest(_MOST_REASONS, counts, key=lambda reason: (*gaps[reason], -counts[reason]))
    first, *others = (f"{reason} ({_nodes(counts[reason])})" for reason in nearest)
    sentence = f"no node of the cluster could run the pod now, even without other pods: {first}"
    for other in others:
        if len(longer := f"{sentence}; {other}") <= LONGEST_WARNING:
            sentence = longer
    return _cut(sentence)


def _cut(sentence: str) -> str:
    return sentence if len(sentence) <= LONGEST_WARNING else f"{sentence[: LONGEST_WARNING - 1]}…"


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"
