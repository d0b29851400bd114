"""Koordinator's rules for what containers request together, and the defaults of new pods by these rules.

Every need is read by the rules, so they hold without the webhooks as well. Amounts are by the resources of
`gas.vocabularies.koordinator.names`. Except for the number of cards, an amount of 0 means the same as none.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gas.objects.json_patch import Operation, Patch, pointer
from gas.objects.stored import Container, NewContainer, NewPod, Quantity
from gas.values.amounts import MalformedQuantity, parse_quantity
from gas.vocabularies.koordinator import names
from gas.vocabularies.koordinator.names import CORE, GPU, MEMORY, MEMORY_RATIO, SHARED, full_name

OF_A_CARD = 100  # hundredths of compute, percent of memory and device ids of one card
_DIVIDED = (CORE, MEMORY_RATIO)  # amounts of which each card gets a whole part


@dataclass(frozen=True, slots=True)
class Share:
    """The share of each of their cards that containers take; ``memory`` or ``memory_ratio`` is 0."""

    cards: int
    core: int
    memory: int
    memory_ratio: int


def completed(asked: Mapping[str, int]) -> dict[str, int]:
    """Return the amounts in the current form, with a number of cards. Complete amounts stay as they are."""
    amounts = rewritten(asked)
    if amounts:
        amounts.setdefault(SHARED, _default_cards(amounts))
    return amounts


def fault(asked: Mapping[str, int]) -> str:
    """Return the rule that the amounts break, as a sentence with what to do; empty if they break none."""
    if GPU in asked and (other := next((name for name in (CORE, MEMORY_RATIO, MEMORY) if name in asked), None)):
        return f"{full_name(GPU)} states compute and memory already; remove it or {full_name(other)}"
    amounts = rewritten(asked)
    stated = [name for name in (MEMORY, MEMORY_RATIO) if amounts.get(name)]
    if len(stated) > 1:
        return f"{full_name(MEMORY)} and {full_name(MEMORY_RATIO)} both state memory; use only one of them"
    if not stated:
        if zero := next((name for name in (MEMORY, MEMORY_RATIO, GPU) if name in asked), ""):
            return f"{full_name(zero)}: expected 1 or more, found 0; memory is mandatory"
        name = full_name(CORE if CORE in asked else SHARED)
        return f"{name} is not enough, memory is mandatory; add {full_name(MEMORY)} or {MEMORY_RATIO}"
    if SHARED not in amounts:
        name = full_name(GPU if GPU in asked else stated[0])
        return f"{name} needs {full_name(SHARED)}, the number of cards, which the webhook adds; add it"
    if (cards := amounts[SHARED]) == 0:
        return f"{full_name(SHARED)}: expected 1 card or more, found 0"
    for name in _DIVIDED:
        amount = amounts.get(name, 0)
        if amount % cards:
            return f"{full_name(name)}: expected a multiple of {SHARED}, which is {cards}, found {amount}"
        if amount > OF_A_CARD * cards:
            return (
                f"{full_name(name)}: expected at most {OF_A_CARD} for each of {cards} card(s), found {amount};"
                f" raise {SHARED}"
            )
    return ""


def share(asked: Mapping[str, int]) -> Share | None:
    """Return what the amounts are on each card, None if they are nothing.

    Amounts that break a rule count as far as possible, since other systems have placed such pods: parts are rounded up,
    and bytes count rather than percent.
    """
    amounts = completed(asked)
    if not any(amount for name, amount in amounts.items() if name != SHARED or SHARED in asked):
        return None
    cards = max(amounts[SHARED], 1)
    memory = amounts.get(MEMORY, 0)
    ratio = 0 if memory else amounts.get(MEMORY_RATIO, 0)
    return Share(cards, -(-amounts.get(CORE, 0) // cards), -(-memory // cards), -(-ratio // cards))


def rewritten(asked: Mapping[str, int]) -> dict[str, int]:
    """Return the amounts with the old form rewritten, unless they have the current form as well."""
    amounts = dict(asked)
    if GPU in amounts and amounts.keys() <= {GPU, SHARED}:
        amount = amounts.pop(GPU)
        amounts |= {CORE: amount, MEMORY_RATIO: amount}
    return amounts


def total(each: Sequence[Mapping[str, int]]) -> Mapping[str, int]:
    """Return the amounts of several containers together."""
    if len(each) == 1:
        return each[0]
    amounts: dict[str, int] = {}
    for asked in map(rewritten, each):
        for name, amount in asked.items():
            amounts[name] = amounts.get(name, 0) + amount
    return amounts


def _default_cards(amounts: Mapping[str, int]) -> int:
    """Return the number of whole cards that the amounts are, 1 if they are parts of cards.

    The percentage of memory decides if there is one, otherwise the compute.
    """
    amount = amounts.get(MEMORY_RATIO) or amounts.get(CORE, 0)
    return amount // OF_A_CARD if amount and amount % OF_A_CARD == 0 else 1


def completion(pod: NewPod) -> Patch:
    """Rewrite the old form, add the number of cards, and state requests and limits alike.

    A pod with the label of an isolation is kept to nodes with it.
    """
    labels, selector = pod.metadata.labels or {}, pod.spec.node_selector
    wanted = {names.ISOLATION: labels[names.ISOLATION]} if labels.get(names.ISOLATION) else {}
    isolation: Patch = ()
    if (complete := wanted | (selector or {})) != (selector or {}):
        isolation = (Operation("add", pointer("spec", "nodeSelector"), complete),)
    return isolation + tuple(
        operation
        for field, containers in (("initContainers", pod.spec.init_containers), ("containers", pod.spec.containers))
        for index, container in enumerate(containers or ())
        for operation in _completed(container, pointer("spec", field, str(index), "resources"))
    )


def _completed(container: Container, where: str) -> Iterator[Operation]:
    """Yield what completes the resources of a container; nothing for amounts that cannot be read."""
    requests = container.requests
    limits = _limits(container)
    stated = {name: text for name, text in {**limits, **requests}.items() if name in _RESOURCES}
    try:
        asked = {_RESOURCES[name]: parse_quantity(text) for name, text in stated.items()}
    except MalformedQuantity:
        return
    if not asked:
        return
    wanted = completed(asked)
    for field, present in (("requests", requests), ("limits", limits)):
        kept = {
            name: text for name, text in present.items() if _RESOURCES.get(name, "") in wanted or name not in stated
        }
        added = {
            full_name: stated.get(full_name, str(amount))
            for name, amount in wanted.items()
            if (full_name := names.full_name(name)) not in kept
        }
        if (complete := kept | added) != present:
            yield Operation("add", f"{where}/{field}", complete)


def _limits(container: Container) -> Mapping[str, Quantity]:
    resources = container.resources if isinstance(container, NewContainer) else None
    return (resources.limits if resources else None) or {}


_RESOURCES = {names.full_name(name): name for name in names.RESOURCES}
