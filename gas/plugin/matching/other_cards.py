"""Why a container got other cards than were decided for it, as far as the calls of kubelet tell."""

from __future__ import annotations

from gas.cards import Card
from gas.placement.need import Role
from gas.plugin.devices.allocation_policy import PreferredRequest
from gas.plugin.matching.match import Match


def why_other_cards(match: Match) -> str:
    """A clause for the log; of a match that is no guess. Each is a choice of kubelet's, which a plugin cannot turn."""
    decided: set[Card] = set(match.given.cards) if match.given else set()
    if (question := match.question) is None:
        if _follows_init_containers(match):
            return "kubelet did not ask: it takes any of the devices that the pod's init containers had"
        return "kubelet did not ask which"
    if kept := {id_.card for id_ in question.must_include} - decided:
        return f"kubelet keeps {_listed(kept)} for it, which an init container had"
    if missing := decided - _offered(question):
        return f"kubelet did not offer {_listed(missing)}: no device of it is free, or another NUMA node is meant"
    return "kubelet did not follow the preference"


def _follows_init_containers(match: Match) -> bool:
    want = match.want
    return any(
        earlier.role is Role.INIT and earlier.resource == want.resource and earlier.index < want.index
        for earlier in match.pod.wants
    )


def _offered(question: PreferredRequest) -> set[Card]:
    return {id_.card for id_ in question.available}


def _listed(cards: set[Card]) -> str:
    return ", ".join(map(str, sorted(cards)))
