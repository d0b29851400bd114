"""The filter verb: which nodes pass, the reasons for the others, and that a filter changes nothing."""

from __future__ import annotations

import json
import logging
from typing import Any

import msgspec
import pytest

from gas.extender.decisions import MOST_NODES
from gas.extender.readiness import NotReady
from gas.extender.verdicts import Turns, Verdict, Verdicts
from gas.extender.wire import FilterArgs, Unreadable
from gas.objects.stored import Node
from gas.placement.order import LeastUsed
from tests.builders import container, node, node_json, pod_json
from tests.extender.decider import DrivenDecider, as_pod
from tests.lines import at_most
from tests.listed import list_all

GB = 10**9
FULL = "no card has 5.0 GB of memory.max free"
UNKNOWN = "the extender does not know the node; it may have just been created or deleted"


PREFERS = {"telemetry.aware.scheduling.p/gas-prefer-gpu": "card1"}


def shared(name: str, cards: int = 2, *, gigabytes: int = 8, **fields: Any) -> dict[str, Any]:
    """Return a node whose cards several pods may share."""
    sums: dict[str, Any] = {"i915": 10 * cards, "millicores": 1000 * cards, "memory_max": gigabytes * cards * GB}
    return node_json(name, cards=cards, **sums, **fields)


def gpu_node(name: str, cards: int = 2, **fields: Any) -> Node:
    return msgspec.convert(shared(name, cards, **fields), Node)


def wants(gigabytes: int = 5, **fields: Any) -> dict[str, Any]:
    return pod_json(container(i915=1, memory_max=gigabytes * GB), **fields)


def knowing(*nodes: Any, **options: Any) -> DrivenDecider:
    decider = DrivenDecider(**options)
    list_all(decider.nodes, list(nodes or (gpu_node("n1"), gpu_node("n2"))))
    return decider


def hold(decider: DrivenDecider, where: str, *cards: str, gigabytes: int = 5, **fields: Any) -> None:
    """Book a pod with so much memory on each of these cards."""
    for card in cards:
        bound = wants(gigabytes, node=where, annotations={"gas-container-cards": card}, **fields)
        decider.pods.changed(as_pod(bound))


def test_a_filter_that_is_given_up_is_in_progress_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    def waiting(*_args: object) -> Turns[list[Verdict]]:
        yield
        return []

    monkeypatch.setattr(Verdicts, "of", waiting)
    decider = knowing()
    asked = [decider.filter(FilterArgs(as_pod(wants()), ["n1"], None), now=0.0) for _ in range(2)]
    for in_progress, each in enumerate(asked, start=1):
        next(each)
        assert decider.filtering == in_progress
    for each in asked:
        each.close()
    assert decider.filtering == 0


# contract E10.2
async def test_nodes_with_room_on_a_card_pass_and_the_others_get_a_reason() -> None:
    decider = knowing()
    hold(decider, "n1", "card0", "card1")
    answer = await decider.ask(wants(), "n1", "n2")
    assert answer["NodeNames"] == ["n2"]
    assert answer["FailedNodes"] == {"n1": FULL}
    assert answer["Nodes"] is None
    assert answer["Error"] == ""


# contract E10.4
async def test_asking_changes_nothing() -> None:
    decider = knowing()
    hold(decider, "n1", "card0")
    books = decider.booked()
    for _ in range(3):
        await decider.ask(wants(), "n1", "n2")
        await decider.ask_whole(wants(), shared("n1"), shared("n3"))
    assert decider.booked() == books
    assert not decider.cluster.bindings
    assert not decider.cluster.asked


@pytest.mark.parametrize(
    ("names", "passing", "failed"),
    [
        pytest.param([""], [], {"": UNKNOWN}, id="empty-name"),
        pytest.param(["n1", "n1", "n2"], ["n1", "n1", "n2"], {}, id="there-twice"),
        pytest.param(["n2", "n1"], ["n2", "n1"], {}, id="in-the-order-asked"),
        pytest.param(["n1", "absent"], ["n1"], {"absent": UNKNOWN}, id="some-known"),
        pytest.param(["../../x\x00"], [], {"../../x\x00": UNKNOWN}, id="hostile-name"),
    ],
)
async def test_names_are_taken_as_sent(names: list[str], passing: list[str], failed: dict[str, str]) -> None:
    answer = await knowing().ask(wants(), *names)
    assert answer["NodeNames"] == passing
    assert answer["FailedNodes"] == failed


async def test_each_of_ten_thousand_names_gets_a_result() -> None:
    decider = knowing()
    names = [f"n{number}" for number in range(10_000)]
    answer = await decider.ask(wants(), *names)
    assert answer["NodeNames"] == ["n1", "n2"]
    assert len(answer["FailedNodes"]) == 9_998


async def test_ten_thousand_nodes_with_one_reason_have_one_sentence() -> None:
    decider = knowing(*(gpu_node(f"n{number}") for number in range(10_000)))
    asking = wants(9)
    answer = await decider.ask(asking, *(f"n{number}" for number in range(10_000)))
    assert set(answer["FailedNodes"].values()) == {"no card has 9.0 GB of memory.max free"}
    (refusal,) = decider.refusals.values()
    assert refusal.reasons == {"no card has 9.0 GB of memory.max free": 10_000}
    assert len(refusal.details) == MOST_NODES


# contract E10.10, E10.11
async def test_an_invalid_request_is_an_error_in_the_response() -> None:
    decider = knowing()
    answer = await decider.ask_raw({"Pod": wants(), "NodeNames": [7]})
    assert answer["Error"]
    assert not answer["NodeNames"]
    assert decider.counted("requests_total", verb="filter", result="bad-request") == 1


async def test_a_body_that_is_not_json_is_unreadable() -> None:
    with pytest.raises(Unreadable):
        await knowing().filter_verb(b"{")


# contract E5.5
@pytest.mark.parametrize(
    "asking",
    [
        pytest.param(pod_json(container()), id="no-gpu"),
        pytest.param(pod_json(container(i915_monitoring=1)), id="monitoring-only"),
        pytest.param(pod_json(container(i915=0)), id="zero-cards"),
        pytest.param(pod_json(container(millicores=100)), id="no-count-resource"),
    ],
)
async def test_a_pod_without_cards_passes_everywhere(asking: dict[str, Any]) -> None:
    decider = knowing()
    hold(decider, "n1", "card0", "card1", gigabytes=8)
    answer = await decider.ask(asking, "n1", "absent")
    assert answer["NodeNames"] == ["n1", "absent"]
    assert answer["FailedNodes"] == {}
    whole = await decider.ask_whole(asking, shared("n1"), node_json("n9", cards=""))
    assert whole["NodeNames"] == ["n1", "n9"]


@pytest.mark.parametrize(
    ("asking", "part"),
    [
        pytest.param(pod_json(), "the pod has no containers", id="no-containers"),
        pytest.param(
            pod_json(container(i915=1, xe=1)), "both gpu.intel.com/i915 and gpu.intel.com/xe", id="both-kinds"
        ),
        pytest.param(pod_json(container(i915="1.5")), "'1.5'", id="fraction"),
        pytest.param(
            pod_json(container(i915=1), annotations={"gas-same-gpu": "x" * 262_144}), "gas-same-gpu", id="256-KiB"
        ),
        pytest.param(
            pod_json(container(i915=1), annotations={"gas-same-gpu": "a,\x1b[2Jb"}),
            "gas-same-gpu",
            id="control-characters",
        ),
    ],
)
async def test_an_invalid_need_is_refused_on_every_node_and_logged_once(
    asking: dict[str, Any], part: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Not by Error: with ``ignorable``, kube-scheduler would go on without the extender. It asks again and again."""
    caplog.set_level(logging.INFO)
    decider = knowing()
    for answer in (
        await decider.ask(asking, "n1", "absent"),
        await decider.ask_whole(asking, shared("n1"), shared("absent")),
    ):
        assert answer["Error"] == ""
        assert answer["NodeNames"] == []
        assert answer["FailedNodes"].keys() == {"n1", "absent"}
        assert part in answer["FailedNodes"]["n1"]
        assert answer["FailedNodes"]["n1"].isprintable()
        assert len(answer["FailedNodes"]["n1"]) <= 200
    assert decider.counted("refusals_total", reason="unreadable-need") == 2
    assert len(decider.refused) == 2
    for pod, refusal in decider.refused:
        assert (refusal.pod, refusal.kind, refusal.is_final) == (pod, "unreadable-need", True)
        assert refusal.summary().startswith("2 nodes: ")
        assert refusal.time > 1.7e9
    assert list(decider.refusals.items()) == [(asking["metadata"]["uid"], refusal)]
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("annotation", ["gas-allow", "gas-deny"])
@pytest.mark.parametrize(
    "text", ["card99", "\x00\x1b", "card0," * 40_000, ","], ids=["unknown", "control", "256K", "empty"]
)
async def test_invalid_lists_of_cards_are_ignored_or_refused_with_a_reason(annotation: str, text: str) -> None:
    asking = wants(annotations={annotation: text})
    answer = await knowing().ask(asking, "n1")
    assert answer["Error"] == ""
    assert answer["NodeNames"] == ["n1"] or len(answer["FailedNodes"]["n1"]) < 200


async def test_allow_and_deny_lists_count_behind_their_flags() -> None:
    asking = wants(annotations={"gas-allow": "card7"})
    assert (await knowing(lists=True).ask(asking, "n1"))["NodeNames"] == []
    assert (await knowing(lists=False).ask(asking, "n1"))["NodeNames"] == ["n1"]


async def test_a_replica_that_is_not_ready_decides_nothing() -> None:
    decider = knowing()
    decider.not_ready = "this replica of the extender is not the leader; the client will retry"
    with pytest.raises(NotReady, match="is not the leader"):
        await decider.ask(wants(), "n1")


class TestPreferredCard:
    # contract E6.4
    async def test_if_some_nodes_give_it_only_those_pass(self) -> None:
        decider = knowing(gpu_node("n1"), gpu_node("n2", labels=PREFERS), gpu_node("n3", labels=PREFERS))
        hold(decider, "n3", "card1", gigabytes=8)
        answer = await decider.ask(wants(), "n1", "n2", "n3", "absent")
        assert answer["NodeNames"] == ["n2"]
        assert answer["FailedNodes"].keys() == {"n1", "n3", "absent"}
        assert answer["FailedNodes"]["n1"] == "another node has the pod's preferred card free"
        assert not decider.refusals

    async def test_if_none_gives_it_all_with_room_pass(self) -> None:
        decider = knowing(gpu_node("n1"), gpu_node("n3", labels=PREFERS))
        hold(decider, "n3", "card1", gigabytes=8)
        assert (await decider.ask(wants(), "n1", "n3"))["NodeNames"] == ["n1", "n3"]

    # contract E8.6
    async def test_a_card_that_the_node_does_not_have_narrows_nothing(self) -> None:
        decider = knowing(
            gpu_node("n1"), gpu_node("n2", labels={"telemetry.aware.scheduling.p/gas-prefer-gpu": "card9"})
        )
        assert (await decider.ask(wants(), "n1", "n2"))["NodeNames"] == ["n1", "n2"]

    async def test_with_another_order_of_cards_the_preferred_card_has_no_effect(self) -> None:
        decider = knowing(gpu_node("n1"), gpu_node("n2", labels=PREFERS), card_order=LeastUsed("millicores"))
        assert (await decider.ask(wants(), "n1", "n2"))["NodeNames"] == ["n1", "n2"]


class TestWholeNodes:
    # contract E10.3
    async def test_those_that_pass_are_returned_unchanged(self) -> None:
        sent = shared("n1") | {"spec": {"podCIDR": "10.0.0.0/24"}, "unknown": {"x": [1.0, None]}}
        full = shared("n2")
        decider = knowing()
        hold(decider, "n2", "card0", "card1")
        answer = await decider.ask_whole(wants(), sent, full)
        assert answer["Nodes"]["items"] == [sent]
        assert answer["NodeNames"] == ["n1"]
        assert answer["FailedNodes"] == {"n2": FULL}

    async def test_a_node_is_believed_as_sent_with_what_is_booked_under_its_name(self) -> None:
        """An autoscaler asks about nodes that do not exist yet."""
        decider = knowing(gpu_node("n1"))
        hold(decider, "n1", "card0", "card1")
        larger = shared("n1", cards=3)
        assert (await decider.ask_whole(wants(), larger))["NodeNames"] == ["n1"]
        assert (await decider.ask(wants(), "n1"))["NodeNames"] == [], "nothing of it is remembered"
        assert (await decider.ask_whole(wants(), shared("template-1")))["NodeNames"] == ["template-1"]

    async def test_refusals_of_unknown_nodes_have_their_numbers(self) -> None:
        decider = knowing()
        await decider.ask_whole(wants(9), shared("template-1"))
        (refusal,) = decider.refusals.values()
        assert refusal.details == {
            "template-1": (
                "card0: 8.0 of 8.0 GB of memory.max free, 9.0 needed",
                "card1: 8.0 of 8.0 GB of memory.max free, 9.0 needed",
            )
        }


class TestRefusals:
    async def test_are_kept_with_the_numbers_card_by_card_and_reported(self) -> None:
        decider = knowing(gpu_node("n1"))
        hold(decider, "n1", "card0", "card1")
        asking = wants(name="late")
        await decider.ask(asking, "absent", "n1", "n1")
        ((uid, refusal),) = decider.refusals.items()
        assert refusal.kind == "no-room", "the most frequent one"
        assert uid == asking["metadata"]["uid"]
        assert refusal.pod == "default/late"
        assert refusal.reasons == {FULL: 1, UNKNOWN: 1}
        assert refusal.details["n1"][0] == "card0: 3.0 of 8.0 GB of memory.max free, 5.0 needed"
        assert "1 node: " + FULL in refusal.summary()
        assert [key for key, _ in decider.refused] == ["default/late"]
        assert refusal.only_seen_by_cards
        assert refusal.time > 1.7e9

    async def test_the_last_one_counts(self) -> None:
        decider = knowing(gpu_node("n1"))
        asking = wants(9)
        await decider.ask(asking, "n1")
        hold(decider, "n1", "card0")
        await decider.ask(asking, "n1")
        ((_, refusal),) = decider.refusals.items()
        assert refusal.details["n1"][0].startswith("card0: 3.0 of 8.0 GB")

    async def test_that_need_no_bookings_by_card_to_see_are_not_marked_so(self) -> None:
        decider = knowing(node("n1", cards=""))
        await decider.ask(wants(), "n1", "absent")
        ((_, refusal),) = decider.refused
        assert not refusal.only_seen_by_cards

    async def test_of_a_pod_that_found_a_node_are_not_kept(self) -> None:
        decider = knowing()
        hold(decider, "n1", "card0", "card1")
        await decider.ask(wants(), "n1", "n2")
        assert not decider.refusals

    @pytest.mark.parametrize("how", ["bound", "gone", "ended"])
    async def test_are_dropped_when_the_pod_is(self, how: str) -> None:
        decider = knowing(gpu_node("n1"))
        asking = wants(9, uid="u1")
        decider.pods.changed(as_pod(asking))
        await decider.ask(asking, "n1")
        assert len(decider.refusals) == 1
        if how == "bound":
            decider.pods.changed(as_pod(wants(9, uid="u1", node="n1")))
        elif how == "gone":
            decider.pods.deleted(as_pod(asking))
        else:
            decider.pods.changed(as_pod(wants(9, uid="u1", phase="Failed")))
        assert not decider.refusals

    async def test_are_counted_by_reason_and_node(self) -> None:
        decider = knowing()
        hold(decider, "n1", "card0", "card1")
        await decider.ask(wants(), "n1", "n2", "absent")
        assert decider.counted("refusals_total", reason="no-room") == 1
        assert decider.counted("refusals_total", reason="unknown-node") == 1
        assert decider.counted("requests_total", verb="filter", result="fits") == 1
        await decider.ask(wants(9), "n1", "n2")
        assert decider.counted("refusals_total", reason="no-room") == 3
        assert decider.counted("requests_total", verb="filter", result="refused") == 1


async def test_a_node_that_shrank_below_what_is_booked_has_no_room_and_comes_back() -> None:
    decider = knowing(gpu_node("n1"))
    hold(decider, "n1", "card0", "card1")
    books = decider.booked()
    decider.nodes.changed(gpu_node("n1", gigabytes=2))
    assert (await decider.ask(wants(1), "n1"))["NodeNames"] == []
    assert decider.booked() == books
    decider.nodes.changed(gpu_node("n1"))
    assert (await decider.ask(wants(1), "n1"))["NodeNames"] == ["n1"]


MANY: dict[str, Any] = {f"r{number}": 1 for number in range(32_000)}


@pytest.mark.parametrize(
    ("huge", "sentence"),
    [
        pytest.param(
            pod_json(container(i915=1, **MANY)),
            "container 'main': expected requests of at most 32 resources, found 32001; remove some",
            id="resources",
        ),
        pytest.param(
            pod_json(
                *(container(f"a{number}", i915=1) for number in range(1000)),
                init=tuple(container(f"i{number}", always=number % 2 > 0, i915=1) for number in range(1000)),
            ),
            "the pod has 2000 containers, expected at most 500; use several pods",
            id="containers",
        ),
    ],
)
async def test_a_huge_pod_is_refused_in_a_short_time(huge: dict[str, Any], sentence: str) -> None:
    decider = knowing()
    with at_most(100_000):
        answer = await decider.ask(huge, "n1", "n2")
    assert not answer["NodeNames"]
    assert sentence in json.dumps(answer)


async def test_a_bound_pod_whose_resize_waits_passes_on_its_own_node() -> None:
    decider = knowing(patience=3600.0)
    hold(decider, "n1", "card0", "card1", gigabytes=8, uid="u1")
    hold(decider, "n2", "card0", "card1", gigabytes=8)
    resized = wants(8, uid="u1", node="n1")
    answer = await decider.ask(resized, "n1", "n2")
    assert answer["NodeNames"] == ["n1"]
    assert answer["FailedNodes"].keys() == {"n2"}
    assert not decider.pending_binds._until, "no bind follows"
    assert (await decider.ask_whole(resized, shared("n1"), shared("n2")))["NodeNames"] == ["n1"]
