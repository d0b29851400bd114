"""Room that is promised to nominated pods, without preemption: who may take it, and when it ends."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gas.extender.bookings import State
from gas.extender.debug import books_json
from gas.extender.promises import WITHDRAWN
from gas.values.cards import Card
from tests.builders import container, node, pod_json
from tests.extender.decider import DrivenDecider, as_pod, booked_cards
from tests.listed import list_all


def asking(
    name: str, *, priority: int = 0, nominated: str = "", millicores: int = 600, **fields: Any
) -> dict[str, Any]:
    """Return a pod, whose UID is its name, of which one card has room for one."""
    sent = pod_json(container(i915=1, millicores=millicores), name=name, uid=name, **fields)
    sent["spec"]["priority"] = priority
    sent["status"]["nominatedNodeName"] = nominated
    return sent


class Timed(DrivenDecider):
    seconds = 0.0

    def __init__(self) -> None:
        super().__init__(clock=lambda: self.seconds)
        self.promises._clock = lambda: self.seconds


def following(*pods: dict[str, Any], cards: int = 1) -> Timed:
    decider = Timed()
    for each in pods:
        decider.cluster.add(each)
    decider.follow([node("n1", cards=cards, i915=10 * cards, millicores=1000 * cards), node("n2", cards=1)])
    return decider


async def fits(decider: DrivenDecider, pod: dict[str, Any], where: str = "n1") -> bool:
    return bool((await decider.ask(pod, where))["NodeNames"])


@pytest.mark.parametrize(("priority", "may"), [(0, False), (5, False), (6, True)], ids=["lower", "same", "higher"])
async def test_only_a_pod_of_higher_priority_takes_promised_cards(priority: int, *, may: bool) -> None:
    other = asking("other", priority=priority)
    decider = following(asking("first", priority=5, nominated="n1"), other)
    assert await fits(decider, other) == may
    assert (await decider.bind(other, "n1") == "") == may


async def test_a_promise_does_not_count_against_its_own_pod() -> None:
    first = asking("first", nominated="n1")
    decider = following(first)
    assert await fits(decider, first)
    assert await decider.bind(first, "n1") == ""


async def test_as_many_pods_are_promised_cards_as_have_room_in_the_order_of_their_nominations() -> None:
    unreadable = asking("odd", nominated="n1", annotations={"gas-card-order": "odd"})
    decider = following(unreadable, asking("b", nominated="n1"), asking("a", nominated="n1"), asking("late"), cards=2)
    decider.see("MODIFIED", as_pod(asking("late", nominated="n1")))
    promised = {each.nominated.uid: list(each.footprint.amounts) for each in decider.promises.on("n1")}
    assert promised == {"b": [Card(0)], "a": [Card(1)], "late": []}
    assert await decider.bind(asking("late"), "n1") != ""
    assert await decider.bind(asking("a"), "n1") == ""


async def test_a_pod_that_can_have_other_cards_leaves_those_that_another_needs() -> None:
    """Its first choice became free later, so it would take the card of a pod that a volume ties to this node."""
    tied = asking("tied", nominated="n1", annotations={"gas-allow": "card0"})
    decider = following(asking("any", nominated="n1"), tied, asking("late", nominated="n1"), cards=2)
    for uid in ("any", "tied"):
        assert await decider.bind(asking(uid), "n1") == ""
    assert await decider.bind(asking("late"), "n1") != ""
    assert booked_cards(decider, "tied") == "card0 on n1, held"


async def test_nothing_is_kept_of_nominations_for_nodes_that_do_not_exist() -> None:
    decider = following(*(asking(f"p{number}", nominated=f"gone-{number}") for number in range(3)))
    assert await fits(decider, asking("other"))
    for number in range(3):
        decider.see("MODIFIED", as_pod(asking(f"p{number}", nominated="n1")))
    assert not await fits(decider, asking("other"))
    assert decider.promises._known.keys() == {"n1"}


async def test_of_a_response_and_the_watch_the_newer_one_says_what_a_pod_is_nominated_for() -> None:
    decider = following(asking("other"), asking("first"))
    old = decider.cluster.pod("default/first")
    decider.cluster.on_change = lambda _type, _pod: None  # the watch is late
    for version in range(12):
        decider.cluster.annotate("default/first", version=str(version))
    new = decider.cluster.edit("default/first", lambda pod: pod["status"].update(nominatedNodeName="n1"))
    decider.pods.learn([new])
    decider.pods.learn([old])
    decider.seconds += WITHDRAWN
    assert not await fits(decider, asking("other"))


ENDS = "bound bound-elsewhere deleted being-deleted elsewhere asked-again withdrawn-long-ago not-in-the-list ended"


@pytest.mark.parametrize("end", ENDS.split())
async def test_a_promise_ends_with_its_pod_or_its_nomination(end: str) -> None:
    first, other = asking("first", nominated="n1"), asking("other")
    decider = following(first, other)
    bound_to = {"bound": "n1", "bound-elsewhere": "n2"}
    match end:
        case "bound" | "bound-elsewhere":
            assert await decider.bind(first, bound_to[end]) == ""
        case "deleted":
            decider.see("DELETED", as_pod(first))
        case "being-deleted":
            decider.see("MODIFIED", as_pod(asking("first", nominated="n1", deleting=True)))
        case "elsewhere" | "asked-again" | "withdrawn-long-ago":
            decider.see("MODIFIED", as_pod(asking("first", nominated="n2" if end == "elsewhere" else "")))
            if end != "elsewhere":
                decider.seconds += WITHDRAWN / 2
                decider.see("MODIFIED", as_pod(asking("first")))
                assert not await fits(decider, other), "the bind may have failed, and a volume tie the pod to the node"
            if end == "asked-again":
                await fits(decider, asking("first"), "n2")
            decider.seconds += WITHDRAWN / 2 * (end == "withdrawn-long-ago")
        case "not-in-the-list":
            list_all(decider.pods, [as_pod(other)])
        case "ended":
            decider.see("MODIFIED", as_pod(first | {"status": {"phase": "Failed"}}))
    assert await fits(decider, other) == (end != "bound")
    assert [each.nominated.node for each in decider.promises] == ["n2"] * (end == "elsewhere")


async def test_promises_survive_a_restart() -> None:
    pods = asking("first", nominated="n1"), asking("other")
    assert not await fits(following(*pods), pods[1])


async def test_a_pod_is_tied_to_the_node_of_its_volume_until_it_is_asked_about() -> None:
    decider = following(asking("first"), asking("other"))
    decider.promises.tie(as_pod(asking("first")), "n1")
    assert not await fits(decider, asking("other"))
    assert await fits(decider, asking("first"))
    assert await decider.bind(asking("first"), "n1") == ""
    decider.promises.tie(as_pod(asking("first")), "n2")
    assert not list(decider.promises)


async def test_a_nomination_that_comes_again_stands_whatever_volumes_say() -> None:
    decider = following(asking("first", nominated="n1"), asking("other"))
    for nominated in ("", "n1"):
        decider.see("MODIFIED", as_pod(asking("first", nominated=nominated)))
    decider.promises.tie(as_pod(asking("first")), "n2")
    decider.seconds += WITHDRAWN
    assert not await fits(decider, asking("other"))


async def test_promised_cards_follow_the_node() -> None:
    decider = following(asking("first", nominated="n1"), asking("other"))
    decider.nodes.changed(node("n1", cards=2, i915=20, millicores=2000))
    assert await fits(decider, asking("other"))
    decider.nodes.deleted(node("n1"))
    assert not list(decider.promises)


async def test_a_nomination_ends_the_wait_for_a_bind_and_is_not_a_missed_one() -> None:
    decider = following(asking("first"), asking("other"))
    decider.pending_binds._patience = 3600.0
    decider.pending_binds._missed = 2
    assert await fits(decider, asking("first"))
    decider.see("MODIFIED", as_pod(asking("first", nominated="n1")))
    assert not await fits(decider, asking("other"))
    assert decider.pending_binds._missed == 0
    assert await fits(decider, asking("first", nominated="n1"))  # again, after its volumes could not be made
    assert not decider.pending_binds._until, "its nomination stays, so none comes"


async def test_the_ledger_shows_what_is_promised() -> None:
    decider = following(asking("first", nominated="n1", priority=7))
    cards = {"card0": {"amounts": {"i915": 1, "millicores": 600}, "tiles": []}}
    shown = {"pod": "default/first", "node": "n1", "priority": 7, "cards": cards}
    assert json.loads(books_json(decider))["promised"] == {"first": shown}


EVENTS = st.lists(
    st.tuples(st.sampled_from("abcd"), st.sampled_from(["nominate", "withdraw", "bind", "delete"]), st.integers(0, 1)),
    max_size=20,
)


@settings(max_examples=200)
@given(EVENTS)
async def test_what_is_promised_and_booked_never_exceeds_a_card(events: list[tuple[str, str, int]]) -> None:
    decider = following(cards=2)
    for name, event, priority in events:
        pod = asking(name, priority=priority, millicores=400, nominated="n1" if event == "nominate" else "")
        if event == "delete" and f"default/{name}" in decider.cluster.pods:
            decider.cluster.remove(f"default/{name}")
        elif event != "delete" and decider.bookings.state(name) in (State.UNKNOWN, State.PROMISED):
            decider.cluster.add(pod)
            if event == "bind":
                fitted = await fits(decider, pod)
                assert (await decider.bind(pod, "n1") == "") == fitted
        sums = decider.ledger.sums("n1", [each.footprint for each in decider.promises.on("n1")]).usage().amounts
        assert all(amounts["millicores"] <= 1000 for amounts in sums.values())
