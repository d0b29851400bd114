"""Read a pod's need from its containers' requests and its annotations, and check new pods."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from gas.objects.stored import Pod
from gas.placement.inventory import Company
from gas.placement.need import ContainerNeed, PodNeed, Role, Scope
from gas.values.amounts import MAX_AMOUNT, add
from gas.values.card_records import card_name
from gas.values.cards import Card
from gas.values.quoted import listed, most_similar, quoted
from gas.vocabularies.intel import names
from gas.vocabularies.pod_parts import (
    card_company,
    check_sum,
    is_positive,
    label_of,
    parse_request,
    readable_labels,
    with_preferences,
)
from gas.vocabularies.protocol import LONGEST_SENTENCE, BadNeed, ContainerFacts, Faults, NeedFacts, NeedOptions

_COUNT_RESOURCES = frozenset(names.COUNT_RESOURCES)
_CARD_ITSELF = re.compile(r"card[0-9]+|([0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.ASCII | re.IGNORECASE)
"""A card's number or PCI address."""
_DEVICE_ID = re.compile(r"0x[0-9a-f]{4}", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Request:
    """The requests of one container, not yet divided by its cards."""

    name: str
    role: Role
    count: int  # number of cards
    amounts: dict[str, int]  # by resource, without monitoring and without amounts of 0
    monitoring: bool  # whether it asks for access to all cards of the node


def read_need(facts: NeedFacts, options: NeedOptions) -> PodNeed:
    """Return the need of a pod that is not bound yet. Raises BadNeed with a sentence for its owner."""
    faults = Faults()
    found = [faults.of(_request, each, False) for each in facts.containers]
    # Where a request cannot be read, the container counts as one with a card, so that its annotations are read as well.
    pairs = zip(found, facts.containers, strict=True)
    requests = [request or _Request(each.name, each.role, 1, {}, False) for request, each in pairs]
    faults.of(_check_sums, requests)
    faults.of(_check_kinds, requests)
    containers = tuple(map(_container_need, requests))
    if not any(request.count for request in requests):
        return faults.none_in(PodNeed(containers=containers, count_resources=_COUNT_RESOURCES))

    annotations = facts.annotations
    chosen = faults.of(_chosen_card, annotations, options)
    named = faults.of(label_of, annotations, names.CARD_NAME) if chosen is None else ""
    if named or chosen is not None:
        faults.of(_check_one_card, requests)
    linked = names.ALLOCATE_XELINK in annotations
    if linked and None not in found:
        faults.of(_check_linked, requests)
    same_card = faults.of(_same_card, requests, annotations)
    company = faults.of(_company, annotations)
    faults.of(with_preferences, PodNeed(()), annotations, options)
    faults.none_in(requests)
    need = PodNeed(
        containers=containers,
        allowed=_allowed(annotations, options) if chosen is None else frozenset((chosen,)),
        denied=_named_cards(annotations.get(names.DENY, "")) if options.denylist else frozenset(),
        same_card=same_card or frozenset(),
        linked=linked,
        scope=_scope(annotations),
        company=company or Company(),
        named=named or "",
        count_resources=_COUNT_RESOURCES,
    )
    return with_preferences(need, annotations, options)


def read_booked_need(facts: NeedFacts) -> PodNeed:
    """Return what the containers of a bound pod take. Raises BadNeed.

    The rules in its annotations are ignored: they were met or not, and a user may have edited them since. Only its
    affinity labels and the name of its card count, because other pods depend on them; invalid ones are left out.

    If a container asks for both ``i915`` and ``xe``, the original placed it, and the amount of ``xe`` is the number of
    its cards. An unreadable amount, or a sum that Kubernetes cannot count, is left out unless it is a number of cards:
    kubelet ignores resources that its node does not have, so a pod that names its node itself has its cards anyway.
    """
    requests = [_request(each, True) for each in facts.containers]
    for name, amount in _sums(requests).items():
        if amount > MAX_AMOUNT and name not in names.COUNT_RESOURCES:
            for request in requests:
                request.amounts.pop(name, None)
    _check_sums(requests)
    labels = readable_labels(facts.annotations)
    has_one_card = max(request.count for request in requests) <= 1
    named = labels.get(names.CARD_NAME, "") if has_one_card else ""
    if _CARD_ITSELF.fullmatch(named):
        named = ""  # chosen, not named
    return PodNeed(
        containers=tuple(map(_container_need, requests)),
        scope=Scope.CARD if named else Scope.ANYWHERE,
        company=_company(labels),
        named=named,
        count_resources=_COUNT_RESOURCES,
    )


def _request(container: ContainerFacts, is_booked: bool) -> _Request:  # noqa: FBT001 -- passed on by position
    requests, faults = container.requests, Faults()
    monitoring = False
    amounts: dict[str, int] = {}
    for full_name in sorted(requests):
        name = full_name.removeprefix(names.PREFIX)
        if name == full_name:
            continue
        if not name:
            if not is_booked:
                where = f"container {quoted(container.name)}"
                raise BadNeed(f"{where}: expected the name of a resource after {quoted(names.PREFIX)}, found none")
        elif name in names.MONITORING_RESOURCES:
            monitoring = monitoring or is_positive(requests[full_name], if_unreadable=True)  # never counted
        else:
            counts = not is_booked or name in names.COUNT_RESOURCES
            if amount := (faults if counts else Faults()).of(parse_request, container, full_name, requests[full_name]):
                amounts[name] = amount
    count = next((amounts[name] for name in reversed(names.COUNT_RESOURCES) if name in amounts), 0)
    return faults.none_in(_Request(container.name, container.role, count, amounts, monitoring))


def _check_kinds(requests: Iterable[_Request]) -> None:
    asking = {name: request.name for request in requests for name in names.COUNT_RESOURCES if name in request.amounts}
    if len(asking) > 1:
        (one, first), (other, second) = sorted(asking.items())
        both = [f"{names.PREFIX}{one}", f"{names.PREFIX}{other}"]
        who = (
            f"container {quoted(first)} asks for both {both[0]} and {both[1]}"
            if first == second
            else f"container {quoted(first)} asks for {both[0]} and container {quoted(second)} for {both[1]}"
        )
        raise BadNeed(f"{who}; use only one of them in the whole pod")


def _check_sums(requests: Iterable[_Request]) -> None:
    for name, amount in sorted(_sums(requests).items()):
        check_sum(names.PREFIX + name, amount)


def _sums(requests: Iterable[_Request]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for request in requests:
        add(sums, request.amounts.items())
    return sums


def _container_need(request: _Request) -> ContainerNeed:
    """Divide the requests by the number of cards, rounded up so that no card gets more load than is booked on it."""
    if not request.count:
        return ContainerNeed(request.name, role=request.role)
    shares = sorted((name, -(-amount // request.count)) for name, amount in request.amounts.items())
    return ContainerNeed(request.name, request.count, tuple(shares), request.role)


def _named_cards(text: str) -> frozenset[Card | str]:
    """Return the cards, and other names of cards, that a list has. A name that no card has matches nothing."""
    return frozenset(map(card_name, filter(str.strip, text.split(","))))


def _allowed(annotations: Mapping[str, str], options: NeedOptions) -> frozenset[Card | str] | None:
    return _named_cards(annotations[names.ALLOW]) if options.allowlist and names.ALLOW in annotations else None


def _scope(annotations: Mapping[str, str]) -> Scope:
    single_numa = names.ALLOCATE_SINGLE_NUMA in annotations
    if annotations.get(names.CARD_NAME):
        return Scope.NUMA_CARD if single_numa else Scope.CARD
    return Scope.NUMA if single_numa else Scope.ANYWHERE


def _check_one_card(requests: Iterable[_Request]) -> None:
    for request in requests:
        if request.count > 1:
            raise BadNeed(
                f"{names.CARD_NAME}: container {quoted(request.name)} asks for {request.count} cards, expected at most"
                " 1, because all containers of the pod get the named card"
            )


def _company(annotations: Mapping[str, str]) -> Company:
    return card_company(annotations, names.CARD_AFFINITY, names.CARD_ANTI_AFFINITY, names.CARD_EXCLUSION)


def _chosen_card(annotations: Mapping[str, str], options: NeedOptions) -> Card | str | None:
    """Return the card that ``gas-card-name`` chooses by its number or PCI address; None if it chooses none.

    Raises BadNeed if pods may not choose cards, and for a model, of which there may be many cards.
    """
    text = annotations.get(names.CARD_NAME, "")
    found = f"{names.CARD_NAME}: {quoted(text)}"
    if _DEVICE_ID.fullmatch(text):
        raise BadNeed(f"{found} is a model, not one card; expected a name of your own or one card; use {names.ALLOW}")
    if _CARD_ITSELF.fullmatch(text) is None:
        return None
    if not options.allowlist:
        raise BadNeed(f"{found} chooses a card, which pods may do only if the extender runs with --enableAllowlist")
    if names.ALLOW in annotations:
        raise BadNeed(f"{found} chooses a card, and {names.ALLOW} chooses cards as well; remove one of them")
    card = card_name(text)
    if not isinstance(card, Card) and ":" not in card:
        raise BadNeed(f"{found} is not the number of a card; expected a form such as card1")
    return card


def _check_linked(requests: Iterable[_Request]) -> None:
    for request in requests:
        if not request.count:
            continue
        who = f"{names.ALLOCATE_XELINK}: container {quoted(request.name)}"
        if request.count % 2:
            raise BadNeed(f"{who} asks for {request.count} card(s), expected an even number")
        if (tiles := request.amounts.get(names.TILES, 0)) != request.count:
            raise BadNeed(f"{who} asks for {tiles} tile(s), expected as many as cards, {request.count}")
        if request.monitoring:
            raise BadNeed(f"{who} asks for monitoring, which cannot be combined with linked cards")


def _same_card(requests: list[_Request], annotations: Mapping[str, str]) -> frozenset[int]:
    if (text := annotations.get(names.SAME_GPU)) is None:
        return frozenset()
    if names.ALLOCATE_XELINK in annotations:
        raise BadNeed(f"{names.SAME_GPU} cannot be combined with {names.ALLOCATE_XELINK}; use only one of them")
    wanted = [name.strip() for name in text.split(",")]
    if len(wanted) < 2:
        raise BadNeed(f"{names.SAME_GPU}: expected at least two containers of the pod, found {quoted(text)}")
    if len(set(wanted)) < len(wanted):
        raise BadNeed(f"{names.SAME_GPU}: expected every container once, found {quoted(text)}")
    apps = {request.name: at for at, request in enumerate(requests) if request.role is Role.APP}
    if unknown := [name for name in wanted if name not in apps]:
        are_not = "is not an app container" if len(unknown) == 1 else "are not app containers"
        sentence = f"{names.SAME_GPU}: {listed(unknown)} {are_not} of the pod"
        with_apps = f"{sentence}; it has {listed(apps)}"
        raise BadNeed(with_apps if len(with_apps) <= LONGEST_SENTENCE else sentence)
    for name in wanted:
        _check_same(requests[apps[name]])
    return frozenset(apps[name] for name in wanted)


def _check_same(request: _Request) -> None:
    who = f"{names.SAME_GPU}: container {quoted(request.name)}"
    if request.count != 1:
        raise BadNeed(f"{who} asks for {request.count} cards, expected exactly 1")
    if tiles := request.amounts.get(names.TILES, 0):
        raise BadNeed(
            f"{who} asks for {tiles} tile(s), which cannot be combined with a shared card; "
            "remove the tiles request or take the container out of gas-same-gpu"
        )
    if request.monitoring:
        raise BadNeed(
            f"{who} asks for monitoring, which cannot be combined with a shared card; "
            "remove the monitoring request or take the container out of gas-same-gpu"
        )


_SWITCHES = (names.ALLOCATE_XELINK, names.ALLOCATE_SINGLE_NUMA)  # annotations that are in force whatever their value is
_OFF = frozenset({"false", "no", "off", "0"})


def amounts_without_cards(pod: Pod) -> Iterator[str]:
    """Yield a sentence for each container that asks for parts of a card, and for no card.

    A filter lets such a pod pass, as the original does: nothing is booked for it, and it gets no card.
    """
    counts = [names.PREFIX + name for name in names.COUNT_RESOURCES]
    no_amounts = {*counts, *(names.PREFIX + name for name in names.MONITORING_RESOURCES)}
    for container in (*(pod.spec.init_containers or ()), *(pod.spec.containers or ())):
        requests = container.requests
        if any(is_positive(requests.get(name, 0), if_unreadable=True) for name in counts):
            continue
        amounts = [
            name
            for name in sorted(requests.keys() - no_amounts)
            if name.startswith(names.PREFIX) and is_positive(requests[name], if_unreadable=False)
        ]
        if amounts:
            who = f"container {quoted(container.name)} asks for"
            misspelt = next(((name, count) for name in amounts if (count := most_similar(name, counts))), None)
            if misspelt is not None:
                yield f"{who} {quoted(misspelt[0])} but for no card; did you mean {misspelt[1]}?"
            else:
                add = f"add {' or '.join(counts)} to the container, or remove the request"
                yield f"{who} {quoted(amounts[0])} but for no card; {add}"


def without_effect(pod: Pod, options: NeedOptions) -> Iterator[str]:
    for name, is_obeyed, flag in (
        (names.ALLOW, options.allowlist, "--enableAllowlist"),
        (names.DENY, options.denylist, "--enableDenylist"),
    ):
        if pod.annotations.get(name) and not is_obeyed:
            yield f"annotation {name} has no effect, because the extender runs without {flag}"
    for name in _SWITCHES:
        if (text := pod.annotations.get(name, "")).strip().lower() in _OFF:
            yield f"annotation {name} is in force with every value, also {quoted(text)}; remove it to switch it off"
