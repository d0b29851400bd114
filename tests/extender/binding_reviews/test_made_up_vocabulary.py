"""Bindings of pods in a vocabulary that the product does not have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gas.extender.admission.review import ALLOWED
from gas.extender.decider import Options
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.intel.vocabulary import INTEL
from tests.builders import pod_json
from tests.extender.binding_reviews.setting import ReviewingDecider, allowed, binding, reviewed
from tests.extender.decider import booked_cards
from tests.extender.made_up_pods import BOTH, node, one_card, slices
from tests.made_up import CARD, MADE_UP, SLICE


def reviewing(*pods: Mapping[str, Any], options: Options = BOTH) -> ReviewingDecider:
    decider = ReviewingDecider(options=options)
    for each in pods:
        decider.cluster.add(each)
    decider.follow([node()])
    return decider


async def test_a_binding_of_another_client_gets_annotations_of_both_kinds_in_place_of_its_own() -> None:
    decider = reviewing(one_card("u2", 1000), asking := slices(3, "u1"))
    assert await decider.bind(one_card("u2"), "n1") == ""
    written = await allowed(decider, asking, annotations={CARD: "0"})
    assert written["metadata"]["annotations"].keys() == {"gas-ts", "gas-container-cards", CARD}
    assert written["metadata"]["annotations"][CARD] == "1"
    decider.cluster.write_binding("default", written)
    assert booked_cards(decider, "u1") == "card1 on n1, held"
    assert not decider.pods.in_trouble


async def test_a_binding_of_a_pod_in_both_vocabularies_is_refused() -> None:
    both = {"name": "main", "resources": {"requests": {SLICE: "1", "gpu.intel.com/i915": "1"}}}
    decider = reviewing(asking := pod_json(both, name="u1", uid="u1"))
    refusal = (await reviewed(decider, binding(asking))).refusal
    assert "intel" in refusal
    assert MADE_UP.name in refusal
    assert not decider.booked()


async def test_a_binding_passes_for_a_pod_of_a_vocabulary_that_is_switched_off() -> None:
    decider = reviewing(asking := slices(3, "u1"), options=Options(vocabularies=Vocabularies([INTEL])))
    assert await reviewed(decider, binding(asking, uid="u1")) == ALLOWED
    assert not decider.cluster.asked
