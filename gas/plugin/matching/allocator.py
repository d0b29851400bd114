"""Reply to kubelet's calls with a pod's decided cards if the pod is known, and with sensible cards otherwise."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass

from gas.daemon.logs import VERBOSE
from gas.decision.annotations import format_container_tiles
from gas.placement.choice import ContainerChoice
from gas.placement.need import Role
from gas.plugin.card_pods import AddToContainer
from gas.plugin.devices.allocation import Allocation, card_allocation, check_one_card, gpus_of
from gas.plugin.devices.allocation_policy import preferred_ids
from gas.plugin.devices.device_ids import (
    NO_IDS,
    AllocateRequest,
    DeviceId,
    Ids,
    PreferredRequest,
    card_of,
    in_order,
    known_ids,
    short_name,
)
from gas.plugin.flags import Flags
from gas.plugin.kubelet.pod_resources import Listing
from gas.plugin.matching.gpu_pods import Demand, GpuPod, node_facts
from gas.plugin.matching.matcher import Match, Matcher, Target
from gas.plugin.matching.pod_resolver import PodResolver
from gas.plugin.matching.progress import Confidence
from gas.plugin.metrics import Metrics
from gas.values.card_facts import CardFacts
from gas.values.cards import Card
from gas.values.quoted import quoted
from gas.vocabularies.combined import Vocabularies, closeness_to

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class Allocator:
    """Serve kubelet's calls for all card resources. `Matcher` remembers them; this class does not."""

    matcher: Matcher
    resolver: PodResolver
    environments: IssuedEnvironments
    metrics: Metrics
    flags: Flags
    _: KW_ONLY
    gpus: Callable[[], Collection[CardFacts]]
    clock: Callable[[], float]

    def __post_init__(self) -> None:
        vocabularies = Vocabularies(self.flags.vocabularies)
        self._together, self._one_card = vocabularies.together_resources, vocabularies.one_card_resources

    async def prefer(self, request: PreferredRequest) -> Sequence[str]:
        """Return the offered ids of the container's decided cards, followed by ids that the policy chooses."""
        preference = await self.resolver.resolve(request)
        ids = preferred_ids(
            self.flags.allocation_policy,
            request,
            decided=preference.ids,
            spared=preference.spared,
            closeness=lambda card: closeness_to(card, self.gpus()),
        )
        match = preference.match
        if match.doubt or logger.isEnabledFor(logging.DEBUG):
            known = known_ids(ids)
            joined = _joined(known, Counter(map(card_of, known)))
            fields = {"ids": joined, "container": _name(match), "confidence": match.confidence.value}
            if match.doubt:
                logger.info("guessed which container kubelet asks for", extra={**fields, "because": match.doubt})
            else:
                logger.debug("preferred devices for a container", extra=fields)
        return ids

    def allocate(self, request: AllocateRequest) -> Allocation:
        """Return what a container gets with these ids, including its vocabulary's variables.

        Raises NoSuchCards, and SeveralCards for a container without a decision.
        """
        now = self.clock()
        match = self.matcher.allocate(request, now=now)
        self._report(request, match)
        if match.target is None or match.target.decided is None:
            check_one_card(request, self._one_card)
        gpus = gpus_of([*request.counts, *self._shared_cards(request, match.target)], self.gpus())
        added = self.environments.issue(request, gpus, match.target, at=now)
        return added.plus(card_allocation(gpus, self.flags.presentation))

    def _shared_cards(self, request: AllocateRequest, target: Target | None) -> Iterator[Card]:
        """Yield the decided cards of the pod's other app containers, if its vocabulary gives them to each."""
        is_shared = request.resource in self._together and target is not None and target.demand.role is Role.APP
        if target is None or not is_shared or target.pod.decided is None:
            return
        for role, chosen in zip(target.pod.roles, target.pod.decided.containers, strict=True):
            if role is Role.APP:
                yield from chosen.cards

    def _report(self, request: AllocateRequest, match: Match) -> None:
        resource = short_name(request.resource)
        decided = match.target.decided if match.target else None
        reason = match.doubt
        if match.target is None:
            outcome, level = "unknown", logging.WARNING
        elif decided is None:
            outcome, level = "undecided", VERBOSE
        elif request.counts.keys() == set(decided.cards):
            outcome, level = "as-decided", VERBOSE
        else:
            outcome, level = "otherwise", logging.WARNING
            reason = reason or why_other_cards(match)
        if match.target is not None and match.target.pod.trouble:
            level, reason = logging.WARNING, reason or match.target.pod.trouble
        self.metrics.allocations.labels(resource, outcome).inc()
        self.metrics.matches.labels(match.confidence.value).inc()
        fields = {"resource": resource, "ids": _joined(request.ids, request.counts), "container": _name(match)}
        if match.confidence is not Confidence.NONE:
            fields["confidence"] = match.confidence.value
        if decided is not None:
            fields["decided"] = ",".join(map(str, decided.cards))
        if reason:
            fields["because"] = reason
        logger.log(level, _SENTENCES[outcome], extra=fields)


_SENTENCES = {
    "unknown": "an unknown container got cards; its receipt will show which pod it belongs to",
    "undecided": "a container without decided cards got cards",
    "as-decided": "a container got its decided cards",
    "otherwise": "a container got cards that the extender did not decide",
}


def _name(match: Match) -> str:
    return str(match.target) if match.target else "unknown"


_MOST_IDS_LOGGED = 64


def _joined(ids: Collection[DeviceId], counts: Mapping[Card, int]) -> str:
    """List the ids; if there are very many, which stand for memory, only their number for each card."""
    if len(ids) <= _MOST_IDS_LOGGED:
        return ",".join(sorted(ids, key=in_order))
    return ",".join(f"{number} of {card}" for card, number in sorted(counts.items()))


def why_other_cards(match: Match) -> str:
    """Return a clause for the log about why an identified container got other cards than decided.

    Each reason is a choice of kubelet's that a plugin cannot influence.
    """
    target, question = match.target, match.question
    decided: set[Card] = set(target.decided.cards) if target and target.decided else set()
    if question is None:
        if target is not None and any(
            earlier.role is Role.INIT and earlier.resource == target.demand.resource
            for earlier in target.pod.demands
            if earlier.index < target.demand.index
        ):
            return "kubelet did not ask for a preference: it reuses devices of the pod's init containers"
        return "kubelet did not ask for a preference"
    if kept := {id_.card for id_ in question.must_include} - decided:
        return f"kubelet keeps {_listed(kept)}, which an init container of the pod had"
    if missing := {card for card in decided if not question.has(card, 1)}:
        return f"kubelet did not offer {_listed(missing)}: its devices are in use, or on another NUMA node"
    return "kubelet did not follow the preference"


def _listed(cards: Collection[Card]) -> str:
    return ", ".join(map(str, sorted(cards)))


@dataclass(frozen=True, slots=True)
class IssuedEnvironment:
    """The reply to one Allocate: the cards as they were then, and the container's variables (``ZE_AFFINITY_MASK``)."""

    ids: Ids
    cards: Sequence[CardFacts]
    env: Mapping[str, str]
    at: float  # by the clock of `IssuedEnvironments.compare`


class IssuedEnvironments:
    """Replies whose container kubelet's list has not shown yet.

    Variables are set in Allocate, for a container that may be a guess, and cannot be changed later. When two pods are
    mistaken for each other and have the same card, no receipt is missing, and only the variables are exchanged. Each
    reply is compared once and forgotten. Replies before this process started are unknown, so nothing is reported.

    of_node    returns all cards of the node
    additions  what parts give containers, in addition to the vocabulary's variables
    """

    def __init__(self, vocabularies: Vocabularies, of_node: Callable[[], Collection[CardFacts]] = tuple) -> None:
        self.additions: Sequence[AddToContainer] = ()
        self._vocabularies = vocabularies
        self._of_node = of_node
        self._issued: dict[tuple[str, Ids], IssuedEnvironment] = {}

    def __len__(self) -> int:
        return len(self._issued)

    def issue(
        self, request: AllocateRequest, cards: Sequence[CardFacts], target: Target | None, *, at: float
    ) -> Allocation:
        """Return what the container that a call is for gets besides its cards, if it is known, and remember it."""
        added = Allocation() if target is None else self._added(target.pod, target.demand, cards)
        self.add(request.resource, IssuedEnvironment(request.ids, cards, added.env, at))
        return added

    def _added(self, pod: GpuPod, demand: Demand, cards: Sequence[CardFacts]) -> Allocation:
        added = Allocation()
        for add in self.additions:
            added = added.plus(add(pod, demand.index, cards))
        node = node_facts(self._of_node(), self._vocabularies)
        return added.plus(Allocation(env=self._vocabularies.environment(pod.raw, demand.container, cards, node)))

    def add(self, resource: str, issued: IssuedEnvironment) -> None:
        """Remember a reply in place of those that had its ids, whose pods were refused, are gone, or passed them on."""
        self._issued = {
            key: each for key, each in self._issued.items() if key[0] != resource or each.ids.isdisjoint(issued.ids)
        }
        self._issued[resource, issued.ids] = issued

    def compare(self, pods: Iterable[GpuPod], listing: Listing, *, asked: float) -> Iterator[tuple[GpuPod, str]]:
        """Yield each watched pod that has a container with wrong variables, with a sentence about them.

        ``asked`` is when kubelet was asked for the listing; later replies appear in a later listing.
        """
        for pod in pods:
            containers = listing.get(pod.key, {})
            for demand in pod.demands:
                key = demand.resource, containers.get(demand.container, {}).get(demand.resource, NO_IDS)
                issued = self._issued.get(key)
                if issued is None or issued.at >= asked:
                    continue
                del self._issued[key]
                if sentence := self._difference(pod, demand, issued):
                    yield pod, sentence

    def forget_before(self, when: float) -> None:
        """Forget earlier replies that no list will show: of ordinary init containers, and of pods refused or over."""
        self._issued = {key: issued for key, issued in self._issued.items() if issued.at >= when}

    def _difference(self, pod: GpuPod, demand: Demand, issued: IssuedEnvironment) -> str:
        """Return a sentence if the container has wrong variables, else an empty text."""
        expected = self._added(pod, demand, issued.cards).env
        decided = pod.decided_for(demand.index)
        differing = [name for name in sorted({*issued.env, *expected}) if issued.env.get(name) != expected.get(name)]
        if differing:
            has = ", ".join(_assigned(name, issued.env) for name in differing)
            should_have = ", ".join(_assigned(name, expected) for name in differing)
            return f"container {quoted(demand.container)} was given {has} instead of {should_have}"
        if not expected and decided is not None and any(decided.tiles) and not _has_all(decided, issued.cards):
            cards = ", ".join(str(each.card) for each in issued.cards)
            return (
                f"container {quoted(demand.container)} can use all tiles of {cards}, but {_tiles(decided)} was decided"
            )
        return ""


def _assigned(name: str, env: Mapping[str, str]) -> str:
    return f"{name}={env[name]}" if name in env else f"no {name}"


def _has_all(decided: ContainerChoice, cards: Iterable[CardFacts]) -> bool:
    """Return whether no mask is needed: the cards have one tile each, and no other tile of them was decided."""
    tiles_of = {each.card: each.tiles for each in cards}
    if max(tiles_of.values(), default=0) > 1:
        return False
    pairs = zip(decided.cards, decided.tiles, strict=False)
    return not any(tile for card, tiles in pairs if card in tiles_of for tile in tiles)


def _tiles(decided: ContainerChoice) -> str:
    pairs = zip(decided.cards, decided.tiles, strict=False)
    return format_container_tiles([[(card, tiles) for card, tiles in pairs if tiles]])
