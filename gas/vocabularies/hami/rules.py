"""HAMi's rules for what one container requests, and for the annotations with which users choose cards.

The rules hold without a webhook as well: `completed` returns what the webhook adds, and every need is read by it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from gas.placement.inventory import NO_COMPANY
from gas.placement.need import ContainerNeed, PodNeed, Scope
from gas.placement.order import CardOrder, LeastUsedParts, MostUsedParts, NodeScore
from gas.placement.ratio import PERCENT, Ratio
from gas.values.amounts import (
    MEMORY_MAX,
    MILLICORES,
    MILLICORES_OF_A_CARD,
    MemoryUnit,
    SortedAmounts,
    StatedMemory,
    sorted_amounts,
)
from gas.values.card_records import card_name
from gas.values.cards import Card
from gas.values.quoted import quoted
from gas.vocabularies.hami import names
from gas.vocabularies.hami.names import Resources
from gas.vocabularies.pod_parts import ALONE, check_sum, requested
from gas.vocabularies.protocol import BadNeed, ContainerFacts, NeedFacts

MOST_MIB = 2**31 - 1
MOST_ENTRIES = 256  # of a list of cards or models, each of which is compared with every card
LEAST_MIB = 100  # less is probably a mistake, such as 3000m, which is 3
MILLICORES_OF_PERCENT = MILLICORES_OF_A_CARD // PERCENT
_MIB = MemoryUnit.MIB.bytes

EVEN_WEIGHTS: SortedAmounts = ((names.PLACES, 1), (MEMORY_MAX, 1), (MILLICORES, 1))
SPREAD = LeastUsedParts(EVEN_WEIGHTS)  # the order of cards of a pod that chooses none
_WEIGHED = {"slot": names.PLACES, "core": MILLICORES, "memory": MEMORY_MAX}
CARD_POLICIES = ("binpack", "spread", "mutex", "numa", "topology-aware")
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_WHOLE = re.compile(r"\+?[0-9]{1,18}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """The amounts of a container that states none."""

    cards: int = 1
    memory: int = 0  # MiB; 0 means all
    cores: int = 0  # percent
    factor: int = 1  # MiB of 1 gpumem


def amounts_of(container: ContainerFacts, resources: Resources) -> dict[str, int]:
    """Return what a container requests by full name. Raises BadNeed."""
    return {name: requested(container, name) for name in resources.asking if name in container.requests}


def completed(asked: Mapping[str, int], resources: Resources, defaults: Defaults) -> dict[str, int]:
    """Return the amounts with the number of cards and the compute that HAMi's webhook adds."""
    if not asked:
        return {}
    amounts = {resources.gpu: defaults.cards, **asked}
    percent = asked.get(resources.gpumem_percentage)
    is_whole = percent == PERCENT if percent is not None else resources.gpumem not in asked
    return amounts if resources.gpucores in asked or not is_whole else {**amounts, resources.gpucores: PERCENT}


def pod_need(facts: NeedFacts, resources: Resources, defaults: Defaults, *, bound: bool) -> PodNeed:
    """Return what the containers take. Raises BadNeed. Of a ``bound`` pod, a container without a number has no card."""
    asked = [amounts_of(each, resources) for each in facts.containers]
    containers = []
    for container, amounts in zip(facts.containers, asked, strict=True):
        if amounts and resources.gpu not in amounts and not bound:
            raise BadNeed(
                f"container {quoted(container.name)}: {next(iter(amounts))} needs {resources.gpu}, the number of cards,"
                " which the webhook adds; add it"
            )
        containers.append(_container_need(container, amounts, resources, defaults))
    for name in resources.asking:
        check_sum(name, sum(amounts.get(name, 0) for amounts in asked))
    with_cards = [each for each in containers if each.count]
    compute = [dict(each.per_card).get(MILLICORES, 0) for each in with_cards]
    is_exclusive = MILLICORES_OF_A_CARD in compute
    return PodNeed(
        tuple(containers),
        company=ALONE if is_exclusive else NO_COMPANY,
        idle=is_exclusive,
        unfilled=frozenset({MILLICORES}) if 0 in compute else frozenset(),
        count_resources=frozenset({names.PLACES}),
        stated_memory=StatedMemory(resources.gpumem, MemoryUnit.MIB),
    )


def _container_need(
    container: ContainerFacts, asked: Mapping[str, int], resources: Resources, defaults: Defaults
) -> ContainerNeed:
    amounts = completed(asked, resources, defaults)
    if not asked.get(resources.gpu):
        return ContainerNeed(container.name, role=container.role)
    where = f"container {quoted(container.name)}"
    per_card = {names.PLACES: 1}
    ratios: tuple[Ratio, ...] = ()
    mib, percent = amounts.get(resources.gpumem, 0), amounts.get(resources.gpumem_percentage, 0)
    if mib * defaults.factor > MOST_MIB:
        unit = "MiB" if defaults.factor == 1 else f"{defaults.factor} MiB"
        meant = f"; {mib} bytes would be {mib // _MIB // defaults.factor}" if mib >= _MIB else ""
        raise BadNeed(f"{where}: {resources.gpumem} counts {unit}, found {mib}{meant}")
    if percent > PERCENT:
        raise BadNeed(f"{where}: {resources.gpumem_percentage}: expected 0 to {PERCENT}, found {percent}")
    if stated := mib * defaults.factor or (0 if percent else defaults.memory):
        per_card[MEMORY_MAX] = stated * _MIB
    else:
        ratios = (Ratio(MEMORY_MAX, percent or PERCENT),)
    if cores := min(amounts.get(resources.gpucores, defaults.cores), PERCENT):
        per_card[MILLICORES] = cores * MILLICORES_OF_PERCENT
    return ContainerNeed(container.name, amounts[resources.gpu], sorted_amounts(per_card), container.role, ratios)


def with_choices(need: PodNeed, annotations: Mapping[str, str]) -> PodNeed:
    """Return the need with the cards that the annotations allow. Raises BadNeed."""
    mode = annotations.get(names.MODE)
    if mode is not None and names.HAMI_CORE not in mode:
        raise BadNeed(f"{names.MODE}: expected {names.HAMI_CORE}, the mode of every card, found {quoted(mode[:40])}")
    policies = card_policies(annotations)
    return replace(
        need,
        allowed=_cards(annotations, names.USE_UUID) or None,
        denied=_cards(annotations, names.NO_UUID),
        models=frozenset(_entries(annotations, names.USE_TYPE)),
        denied_models=frozenset(_entries(annotations, names.NO_TYPE)),
        scope=Scope.NUMA if annotations.get(names.NUMA_BIND) in _TRUE else Scope.ANYWHERE,
        idle=need.idle or "mutex" in policies,
    )


def card_policies(annotations: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(each.strip() for each in annotations.get(names.CARD_POLICY, "").split(","))


def card_order(annotations: Mapping[str, str]) -> CardOrder | None:
    """Return the order of cards that a pod chooses, None if it chooses none. Raises BadNeed for invalid weights."""
    weights = EVEN_WEIGHTS
    if (text := annotations.get(names.WEIGHTS)) is not None:
        weights = _weights(text)
    policies = card_policies(annotations)
    if policies == ("",) and text is None:
        return None
    first = next((each for each in policies if each in ("binpack", "spread")), "spread")
    return MostUsedParts(weights) if first == "binpack" else LeastUsedParts(weights)


def node_score(annotations: Mapping[str, str]) -> NodeScore | None:
    policy = annotations.get(names.NODE_POLICY)
    return None if not policy else NodeScore.LEAST_LOADED if policy == "spread" else NodeScore.BEST_FIT


def _weights(text: str) -> tuple[tuple[str, int], ...]:
    pairs = [tuple(part.strip() for part in each.split("=", 1)) for each in text.split(",")]
    found = {pair[0]: pair[1] for pair in pairs if len(pair) == 2 and _WHOLE.fullmatch(pair[1])}
    weights = {_WEIGHED[name]: int(weight) for name, weight in found.items() if name in _WEIGHED}
    if len(pairs) != len(_WEIGHED) or len(weights) != len(_WEIGHED) or not any(weights.values()):
        raise BadNeed(
            f"{names.WEIGHTS}: expected whole numbers, not all 0, as in slot=1,core=1,memory=3, found"
            f" {quoted(text[:40])}"
        )
    return sorted_amounts(weights)


def _entries(annotations: Mapping[str, str], name: str) -> list[str]:
    entries = [entry for each in annotations.get(name, "").lower().split(",") if (entry := each.strip())]
    if len(entries) > MOST_ENTRIES:
        raise BadNeed(f"{name}: expected at most {MOST_ENTRIES} entries, found {len(entries)}; shorten it")
    return entries


def _cards(annotations: Mapping[str, str], name: str) -> frozenset[Card | str]:
    return frozenset(map(card_name, _entries(annotations, name)))
