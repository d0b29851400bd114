"""The request of a pod in KubeShare's words, as values read from its annotations and its resources."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal

from gas.placement.need import ContainerNeed, Role
from gas.values.amounts import MAX_AMOUNT, MEMORY_MAX, MILLICORES, MILLICORES_OF_A_CARD, sorted_amounts
from gas.values.quoted import quoted
from gas.vocabularies.kubeshare import names
from gas.vocabularies.pod_parts import requested
from gas.vocabularies.protocol import BadNeed, ContainerFacts, NeedFacts

_FRACTION = re.compile(r"[0-9]{1,9}(\.[0-9]{0,18})?|\.[0-9]{1,18}", re.ASCII)  # exact in 28 digits
_BYTES = re.compile(r"[0-9]{1,19}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Share:
    """The part of each of its cards that a pod takes.

    millicores  thousandths of the card
    memory      bytes
    """

    millicores: int
    memory: int

    @property
    def amounts(self) -> dict[str, int]:
        """The amounts by the names that ledgers use; none that is 0."""
        return {name: amount for name, amount in ((MILLICORES, self.millicores), (MEMORY_MAX, self.memory)) if amount}


@dataclass(frozen=True, slots=True)
class Asking:
    """One container of a pod, and what it asks for.

    cards   how many
    stated  the amounts that it requests as resources, for all its cards together; None if it requests none
    """

    container: ContainerFacts
    cards: int
    stated: Share | None

    def need(self, share: Share | None) -> ContainerNeed:
        """Return the need of the container; ``share`` is None for all but one of the containers."""
        amounts = {names.UNITS: 1, **(share.amounts if share is not None else {})} if self.cards else {}
        return ContainerNeed(self.container.name, self.cards, sorted_amounts(amounts), self.container.role)


def share_of(annotations: Mapping[str, str]) -> Share:
    """Return the share that annotations ask for. Raises BadNeed with a sentence for the owner of the pod."""
    request, limit = (_fraction(annotations, name) for name in (names.GPU_REQUEST, names.GPU_LIMIT))
    memory = _text(annotations, names.GPU_MEM, "a number of bytes")
    if _BYTES.fullmatch(memory) is None or int(memory) > MAX_AMOUNT:
        raise BadNeed(
            f"{names.GPU_MEM}: expected a whole number of bytes from 0 to 2^63-1 such as 1073741824, found"
            f" {quoted(memory)}"
        )
    if limit > 1:
        raise BadNeed(f"{names.GPU_LIMIT}: expected at most 1.0, a whole card, found {limit}; lower it")
    if request > limit:
        raise BadNeed(
            f"{names.GPU_REQUEST}: expected at most {names.GPU_LIMIT}, {limit}, found {request}; lower the request or"
            " raise the limit"
        )
    return Share(_thousandths(request), int(memory))


def readable_share(annotations: Mapping[str, str]) -> Share:
    """Return the share as far as annotations can be read: an amount that cannot be counts as 0."""
    request, memory = (annotations.get(name, "") for name in (names.GPU_REQUEST, names.GPU_MEM))
    return Share(
        _thousandths(Decimal(request)) if _FRACTION.fullmatch(request) else 0,
        min(int(memory), MAX_AMOUNT) if _BYTES.fullmatch(memory) else 0,
    )


def asking_containers(facts: NeedFacts) -> list[Asking]:
    """Return the containers in the order in which kubelet starts them. Raises BadNeed for a malformed amount.

    If no container requests ``kubeshare/vgpu``, each asks for the card that the annotations mean.
    """
    cards = [requested(each, names.VGPU) for each in facts.containers]
    implied = 0 if any(cards) else 1
    return [Asking(each, count or implied, _stated(each)) for each, count in zip(facts.containers, cards, strict=True)]


def bearer(asking: Sequence[Asking]) -> int:
    """Return the position of the container that takes the pod's amounts: the first app container with cards.

    The card is booked for as long as the pod lives, so it does not matter which container takes them.
    """
    with_cards = [at for at, each in enumerate(asking) if each.cards]
    return next((at for at in with_cards if asking[at].container.role is Role.APP), with_cards[0])


def stated_share(asking: Sequence[Asking]) -> Share | None:
    """Return the share of each card that the requests of containers fix, None if there are no such requests."""
    stated = [each.stated for each in asking if each.stated is not None]
    if not stated:
        return None
    cards = asking[bearer(asking)].cards
    return Share(sum(each.millicores for each in stated) // cards, sum(each.memory for each in stated) // cards)


def _stated(container: ContainerFacts) -> Share | None:
    if names.MILLICORES not in container.requests and names.MEMORY not in container.requests:
        return None
    return Share(requested(container, names.MILLICORES), requested(container, names.MEMORY))


def _fraction(annotations: Mapping[str, str], name: str) -> Decimal:
    text = _text(annotations, name, "a number from 0 to 1")
    if _FRACTION.fullmatch(text) is None:
        raise BadNeed(f"{name}: expected a number from 0 to 1 such as 0.5, found {quoted(text)}")
    return Decimal(text)


def _text(annotations: Mapping[str, str], name: str, what: str) -> str:
    if not (text := annotations.get(name, "")):
        others = " and ".join(each for each in names.AMOUNTS if each != name)
        raise BadNeed(f"{name}: expected {what}, found none; set it beside {others}")
    return text


def _thousandths(part: Decimal) -> int:
    return int((part * MILLICORES_OF_A_CARD).to_integral_value(ROUND_CEILING))
