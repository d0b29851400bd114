"""Variables are compared with the decision once kubelet's list shows which container has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gas.plugin.card_pods import CardPod
from gas.plugin.devices.allocation import Allocation
from gas.plugin.kubelet.pod_resources import Listing
from gas.plugin.matching.allocator import IssuedEnvironment, IssuedEnvironments
from gas.plugin.matching.gpu_pods import GpuPod
from gas.values.card_facts import CardFacts
from gas.vocabularies.known import DEFAULT
from tests.builders import container
from tests.plugin.gpus import gpu
from tests.plugin.pods_for_plugin import I915, decided, ids, seen


def pod(cards: str = "", tiles: str = "", *, hierarchy: str = "", **fields: Any) -> GpuPod:
    wanting = container("c", i915=1, tiles=1 if tiles else 0)
    if hierarchy:
        wanting["env"] = [{"name": "ZE_FLAT_DEVICE_HIERARCHY", "value": hierarchy}]
    return seen(wanting, name="a", annotations=decided(cards, tiles=tiles) if cards else {}, **fields)


def given(mask: str | None, *texts: str, tiles: int = 2, at: float = 1.0) -> IssuedEnvironment:
    of = ids(*texts or ("card0-0",))
    env = {} if mask is None else {"ZE_AFFINITY_MASK": mask}
    return IssuedEnvironment(of, [gpu(id_.card, tiles=tiles) for id_ in sorted(of)], env, at)


def listing(*texts: str) -> Listing:
    return {"default/a": {"c": {I915: ids(*texts or ("card0-0",))}}}


def reported(masks: IssuedEnvironments, pod: GpuPod, listed: Listing, *, asked: float = 10.0) -> list[str]:
    return [sentence for _, sentence in masks.compare([pod], listed, asked=asked)]


def masks_after(*answers: IssuedEnvironment) -> IssuedEnvironments:
    masks = IssuedEnvironments(DEFAULT)
    for answer in answers:
        masks.add(I915, answer)
    return masks


@pytest.mark.parametrize(
    ("decision", "answer", "sentences"),
    [
        pytest.param(pod("card0", "card0:gt1"), given("1"), [], id="as-decided"),
        pytest.param(pod("card0", "card0:gt1", hierarchy="COMPOSITE"), given("0.1"), [], id="as-decided-composite"),
        pytest.param(pod("card0"), given(None), [], id="no-tiles-decided-and-no-mask"),
        pytest.param(pod(), given(None), [], id="nothing-decided-and-no-mask"),
        pytest.param(pod("card0", "card0:gt0"), given(None, tiles=1), [], id="cards-of-one-tile-need-none"),
        pytest.param(
            pod("card0", "card0:gt0"),
            given("1"),
            ["container 'c' was given ZE_AFFINITY_MASK=1 instead of ZE_AFFINITY_MASK=0"],
            id="the-mask-of-another-pod",
        ),
        pytest.param(
            pod("card0", "card0:gt1", hierarchy="COMPOSITE"),
            given("1"),
            ["container 'c' was given ZE_AFFINITY_MASK=1 instead of ZE_AFFINITY_MASK=0.1"],
            id="that-of-a-pod-with-another-hierarchy",
        ),
        pytest.param(
            pod("card0", "card0:gt1"),
            given(None),
            ["container 'c' was given no ZE_AFFINITY_MASK instead of ZE_AFFINITY_MASK=1"],
            id="taken-for-a-pod-without-tiles",
        ),
        pytest.param(
            pod("card0"),
            given("1"),
            ["container 'c' was given ZE_AFFINITY_MASK=1 instead of no ZE_AFFINITY_MASK"],
            id="taken-for-a-pod-with-tiles",
        ),
        pytest.param(
            pod(),
            given("1"),
            ["container 'c' was given ZE_AFFINITY_MASK=1 instead of no ZE_AFFINITY_MASK"],
            id="nothing-decided-and-a-mask",
        ),
        pytest.param(
            pod("card1", "card1:gt1"),
            given(None),
            ["container 'c' can use all tiles of card0, but card1:gt1 was decided"],
            id="other-cards-with-all-of-their-tiles",
        ),
        pytest.param(
            pod("card0", "card0:gt2"),
            given(None),
            ["container 'c' can use all tiles of card0, but card0:gt2 was decided"],
            id="a-tile-that-the-card-does-not-have",
        ),
        pytest.param(
            pod("card0", "card0:gt1"),
            given(None, tiles=1),
            ["container 'c' can use all tiles of card0, but card0:gt1 was decided"],
            id="a-second-tile-of-a-card-that-shows-one",
        ),
    ],
)
def test_wrong_variables_are_reported(decision: GpuPod, answer: IssuedEnvironment, sentences: list[str]) -> None:
    assert reported(masks_after(answer), decision, listing()) == sentences


def test_each_reply_is_compared_once() -> None:
    masks = masks_after(given("1"))
    masks.forget_before(1.0)
    assert [len(reported(masks, pod("card0"), listed)) for listed in ({}, listing(), listing())] == [0, 1, 0]


def test_replies_of_an_earlier_process_are_not_compared() -> None:
    assert reported(IssuedEnvironments(DEFAULT), pod("card0", "card0:gt1"), listing()) == []


def test_the_last_reply_for_an_id_counts() -> None:
    """The pod it was first given to was refused."""
    assert reported(masks_after(given("0"), given("1")), pod("card0", "card0:gt1"), listing()) == []
    assert len(masks_after(given("0"), given("0", "card0-0", "card0-1"))) == 1


def test_a_reply_for_other_ids_is_for_another_container() -> None:
    """An init container had both, and the one after it one of them."""
    both = given(None, "card0-0", "card0-1")
    assert reported(masks_after(both), pod("card0", "card0:gt1"), listing()) == []
    assert reported(masks_after(both, given("1")), pod("card0", "card0:gt1"), listing()) == []


def test_a_reply_after_kubelet_was_asked_is_not_in_that_list() -> None:
    masks = masks_after(given("1", at=10.0))
    assert reported(masks, pod("card0"), listing(), asked=10.0) == []
    assert len(reported(masks, pod("card0"), listing(), asked=10.1)) == 1


def test_cards_are_compared_as_they_were_at_the_reply() -> None:
    """A card that is gone meanwhile has no tiles any more."""
    gpus = [gpu(0, tiles=2), gpu(1, tiles=4)]
    answer = IssuedEnvironment(ids("card0-0", "card1-0"), gpus, {"ZE_AFFINITY_MASK": "0,4"}, at=1.0)
    wanting = container("c", i915=2, tiles=1)
    both = seen(wanting, name="a", annotations=decided("card0,card1", tiles="card0:gt0,card1:gt2"))
    assert reported(masks_after(answer), both, listing("card0-0", "card1-0")) == []


def test_what_a_part_has_added_for_another_pod_is_reported() -> None:
    """Two pods were mistaken for each other, and each has the limit of the other one."""

    def limit(of: CardPod, container: int, _cards: Sequence[CardFacts]) -> Allocation:
        return Allocation(env={"LIMIT": "1" if (of.key, container) == ("default/a", 0) else "2"})

    masks = IssuedEnvironments(DEFAULT)
    masks.additions = (limit,)
    masks.add(I915, IssuedEnvironment(ids("card0-0"), [gpu(0)], {"LIMIT": "2"}, 1.0))
    assert reported(masks, pod("card0"), listing()) == ["container 'c' was given LIMIT=2 instead of LIMIT=1"]
