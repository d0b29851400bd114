"""Pods of a made-up vocabulary go the whole way through the extender, beside Intel's pods on the same cards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gas.extender.decider import Options
from gas.objects.stored import Pod
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.intel.vocabulary import INTEL
from tests.extender.decider import DrivenDecider, as_pod, booked_cards
from tests.extender.made_up_pods import BOTH, node, slices
from tests.made_up import CARD


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


def test_our_own_decision_counts_before_the_old_systems() -> None:
    pod: Pod = as_pod(slices(4, "u1", node="n1", annotations={CARD: "1", "gas-container-cards": "card0"}))
    decider = following()
    decider.pods.changed(pod)
    assert booked_cards(decider, "u1") == "card0 on n1, held"
