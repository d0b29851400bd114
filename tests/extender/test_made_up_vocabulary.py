"""Pods of a made-up vocabulary go the whole way through the extender, beside Intel's pods on the same cards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gas.extender.decider import Options
from gas.objects.stored import Pod
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.intel.vocabulary import INTEL
from tests.builders import container, pod_json
from tests.extender.decider import DrivenDecider, as_pod, booked_cards
from tests.extender.made_up_pods import BOTH, node, one_card, slices
from tests.made_up import CARD, SLICE


def following(*pods: Mapping[str, Any], options: Options = BOTH) -> DrivenDecider:
    decider = DrivenDecider(options=options)
    for each in pods:
        decider.cluster.add(each)
    decider.follow([node()])
    return decider


async def test_a_pod_is_filtered_bound_with_annotations_of_both_kinds_and_booked() -> None:
    decider = following(asking := slices(3, "u1"))
    assert (await decider.ask(asking, "n1"))["NodeNames"] == ["n1"]
    assert await decider.bind(asking, "n1") == ""
    (binding,) = decider.cluster.bindings
    assert binding["annotations"].keys() == {"gas-ts", "gas-container-cards", CARD}
    assert binding["annotations"]["gas-container-cards"] == "card0"
    assert binding["annotations"][CARD] == "0"
    assert booked_cards(decider, "u1") == "card0 on n1, held"


async def test_pods_of_both_vocabularies_share_a_card_within_its_capacity() -> None:
    pods = [slices(5, "u1"), one_card("u2"), one_card("u3", 500)]
    decider = following(*pods)
    for each in pods:
        assert await decider.bind(each, "n1") == ""
    assert booked_cards(decider, "u1") == "card0 on n1, held"
    assert booked_cards(decider, "u2") == "card1 on n1, held"
    assert booked_cards(decider, "u3") == "card0 on n1, held"
    assert (await decider.ask(slices(5, "u4"), "n1"))["NodeNames"] == []


async def test_a_pod_that_the_vocabularys_old_system_bound_is_booked_and_stays_so() -> None:
    decider = following(slices(4, "u1", node="n1", annotations={CARD: "1"}))
    assert booked_cards(decider, "u1") == "card1 on n1, held"
    assert decider.pods.rebuilt_ledger().usage("n1") == decider.ledger.usage("n1")
    assert not decider.pods.in_trouble


def test_a_vocabulary_that_is_switched_off_is_neither_seen_nor_booked() -> None:
    decider = following(
        slices(4, "u1", node="n1", annotations={CARD: "1"}), options=Options(vocabularies=Vocabularies([INTEL]))
    )
    assert booked_cards(decider, "u1") == "nothing"
    assert not decider.pods.in_trouble


async def test_a_pod_in_both_vocabularies_is_refused_everywhere() -> None:
    both = pod_json(
        container("first", i915=1), {"name": "second", "resources": {"requests": {SLICE: "1"}}}, name="u1", uid="u1"
    )
    refused = (await following(both).ask(both, "n1"))["FailedNodes"]["n1"]
    assert "in the words of intel and of made-up" in refused


def test_our_own_decision_counts_before_the_old_systems() -> None:
    pod: Pod = as_pod(slices(4, "u1", node="n1", annotations={CARD: "1", "gas-container-cards": "card0"}))
    decider = following()
    decider.pods.changed(pod)
    assert booked_cards(decider, "u1") == "card0 on n1, held"
