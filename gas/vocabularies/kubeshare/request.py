"""Read a pod's request in KubeShare's words from its annotations and resources, and state the defaults of new pods.

The defaults are resources that kube-scheduler and kubelet know, and an affinity in place of a named node.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from itertools import islice
from typing import Any

from gas.objects.json_patch import Operation, Patch, pointer
from gas.objects.stored import NewPod, Pod
from gas.placement.need import ContainerNeed, Role
from gas.values.amounts import MAX_AMOUNT, MEMORY_MAX, MILLICORES, MILLICORES_OF_A_CARD, sorted_amounts
from gas.values.errors import GasError
from gas.values.quoted import did_you_mean, quoted
from gas.vocabularies.kubeshare import names
from gas.vocabularies.pod_parts import need_facts, requested, with_resources
from gas.vocabularies.protocol import BadNeed, Beginnings, ContainerFacts, Faults, NeedFacts, NeedOptions, Vocabulary

_FRACTION = re.compile(r"[0-9]{1,9}(\.[0-9]{0,18})?|\.[0-9]{1,18}", re.ASCII)  # exact in 28 digits
_LONGEST = 253  # characters of a label, or of the name of a card
_BYTES = re.compile(r"[0-9]{1,19}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Share:
    """The part of each of its cards that a pod takes: thousandths of the card, and bytes of memory."""

    millicores: int
    memory: int

    @property
    def amounts(self) -> dict[str, int]:
        """The amounts by the names that ledgers use; none that is 0."""
        return {name: amount for name, amount in ((MILLICORES, self.millicores), (MEMORY_MAX, self.memory)) if amount}


@dataclass(frozen=True, slots=True)
class Asking:
    """One container of a pod, and what it asks for."""

    container: ContainerFacts
    cards: int  # how many
    # the amounts that it requests as resources, for all its cards together; None if it requests none
    stated: Share | None

    def need(self, share: Share | None) -> ContainerNeed:
        """Return the need of the container; ``share`` is None for all but one of the containers."""
        amounts = {names.UNITS: 1, **(share.amounts if share is not None else {})} if self.cards else {}
        return ContainerNeed(self.container.name, self.cards, sorted_amounts(amounts), self.container.role)


def share_of(annotations: Mapping[str, str]) -> Share:
    """Return the share that annotations ask for. Raises BadNeed with a sentence for the owner of the pod."""
    faults = Faults()
    parts = [faults.of(_fraction, annotations, name) for name in (names.GPU_REQUEST, names.GPU_LIMIT)]
    memory = faults.of(_bytes, annotations)
    request, limit = (faults.none_in(part) for part in parts)
    if limit > 1:
        raise BadNeed(f"{names.GPU_LIMIT}: expected at most 1.0, a whole card, found {limit}; lower it")
    if request > limit:
        raise BadNeed(
            f"{names.GPU_REQUEST}: expected at most {names.GPU_LIMIT}, {limit}, found {request}; lower the request or"
            " raise the limit"
        )
    return Share(_thousandths(request), faults.none_in(memory))


def _bytes(annotations: Mapping[str, str]) -> int:
    memory = _text(annotations, names.GPU_MEM, "a number of bytes")
    if _BYTES.fullmatch(memory) is None or int(memory) > MAX_AMOUNT:
        raise BadNeed(
            f"{names.GPU_MEM}: expected a whole number of bytes from 0 to 2^63-1 such as 1073741824, found"
            f" {quoted(memory)}"
        )
    return int(memory)


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


def label_text(annotations: Mapping[str, str], name: str) -> str:
    """Return a label or a name of a card, which may have spaces, empty without one. Raises BadNeed."""
    text = annotations.get(name, "")
    if not _is_label(text):
        raise BadNeed(
            f"{name}: expected at most {_LONGEST} printable characters, the first one not '(', found {quoted(text)}"
        )
    return text


def readable_label(annotations: Mapping[str, str], name: str) -> str:
    text = annotations.get(name, "")
    return text if _is_label(text) else ""


def _is_label(text: str) -> bool:
    return len(text) <= _LONGEST and text.isprintable() and not text.startswith("(")


def _text(annotations: Mapping[str, str], name: str, what: str) -> str:
    if not (text := annotations.get(name, "")):
        others = " and ".join(each for each in names.AMOUNTS if each != name)
        raise BadNeed(f"{name}: expected {what}, found none; set it beside {others}")
    return text


def _thousandths(part: Decimal) -> int:
    return int((part * MILLICORES_OF_A_CARD).to_integral_value(ROUND_CEILING))


_MOST_UNKNOWN = 5

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class MalformedAffinity(GasError):
    """A pod's affinity is not one."""


class KubeShareAdmission(Vocabulary):
    """Add the resources by which kube-scheduler and kubelet know these pods, and let the scheduler bind every pod."""

    completed = Beginnings(annotations=(names.PREFIX,))

    def warnings(self, pod: Pod, options: NeedOptions) -> Sequence[str]:
        return tuple(islice(_unknown_annotations(pod.annotations), _MOST_UNKNOWN))

    def complete(self, pod: NewPod) -> Patch:
        """Return what a new pod lacks; nothing for a pod that will be refused."""
        try:
            share = share_of(pod.annotations)
            asking = asking_containers(need_facts(pod))
            affinity = with_node(pod.node_name or "", pod.spec.affinity)
        except (BadNeed, MalformedAffinity):
            return ()
        init = len(pod.spec.init_containers or ())
        bears = bearer(asking)
        is_stated = any(each.stated is not None for each in asking)
        operations: list[Operation] = []
        for at, each in enumerate(asking):
            container = (*(pod.spec.init_containers or ()), *(pod.spec.containers or ()))[at]
            wanted = {names.VGPU: str(each.cards)} if each.cards else {}
            if at == bears and not is_stated:
                # An amount of 0 is stated as well, so that an annotation cannot raise it.
                wanted[names.MILLICORES] = str(share.millicores * each.cards)
                wanted[names.MEMORY] = str(share.memory * each.cards)
            place = ("spec", "initContainers", str(at)) if at < init else ("spec", "containers", str(at - init))
            operations += with_resources(container, place, wanted)
        if pod.node_name:
            # the scheduler binds the pod, with cards, to the node that its user named
            operations.append(Operation("remove", pointer("spec", "nodeName")))
            operations.append(Operation("add", pointer("spec", "affinity"), affinity))
        return tuple(operations)


def with_node(node: str, affinity: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return an affinity that allows only this node, and only if the given one allows it as well.

    Raises MalformedAffinity if the given one is not that of a pod.
    """
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    result = dict(affinity or {})
    try:
        of_nodes = dict(result.get("nodeAffinity") or {})
        required = dict(of_nodes.get(_REQUIRED) or {})
        terms = required.get("nodeSelectorTerms") or [{}]
        required["nodeSelectorTerms"] = [
            {**term, "matchFields": [*(term.get("matchFields") or ()), field]} for term in terms
        ]
    except (TypeError, ValueError):
        raise MalformedAffinity("spec.affinity: expected that of a pod; correct it") from None
    of_nodes[_REQUIRED] = required
    result["nodeAffinity"] = of_nodes
    return result


def _unknown_annotations(annotations: Mapping[str, str]) -> Iterator[str]:
    for name in sorted(annotations):
        if name.startswith(names.PREFIX) and name not in names.ANNOTATIONS:
            hint = did_you_mean(name, names.ANNOTATIONS, "docs/from-kubeshare.md lists those that have one")
            yield f"annotation {quoted(name)} is not known and has no effect; {hint}"
