"""Which masks are told to be others than decided, once kubelet's list shows whose they are."""

from __future__ import annotations

from typing import Any

import pytest

from gas.cards import Card
from gas.plugin.kubelet.pod_resources import Listing
from gas.plugin.matching.given_masks import GivenMask, GivenMasks
from gas.plugin.matching.gpu_pods import GpuPod
from tests.builders import container
from tests.plugin.pods_for_plugin import decided, ids, seen

NO_MASK = "container 'c' was given no ZE_AFFINITY_MASK"


def pod(cards: str = "", tiles: str = "", *, hierarchy: str = "", **fields: Any) -> GpuPod:
    wanting = container("c", i915=1, tiles=1 if tiles else 0)
    if hierarchy:
        wanting["env"] = [{"name": "ZE_FLAT_DEVICE_HIERARCHY", "value": hierarchy}]
    return seen(wanting, name="a", annotations=decided(cards, tiles=tiles) if cards else {}, **fields)


def given(mask: str | None, *texts: str, tiles: int = 2, at: float = 1.0) -> GivenMask:
    of = ids(*texts or ("card0-0",))
    return GivenMask(of, {id_.card: tiles for id_ in of}, mask, at)


def listing(*texts: str) -> Listing:
    return {"default/a": {"c": {"i915": ids(*texts or ("card0-0",))}}}


def told(masks: GivenMasks, pod: GpuPod, listed: Listing, *, asked: float = 10.0) -> list[str]:
    return [sentence for _, sentence in masks.compare([pod], listed, asked=asked)]


def masks_after(*answers: GivenMask) -> GivenMasks:
    masks = GivenMasks()
    for answer in answers:
        masks.add("i915", answer)
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
            ["container 'c' was given ZE_AFFINITY_MASK=1, but for card0:gt0 it should be 0"],
            id="the-mask-of-another-pod",
        ),
        pytest.param(
            pod("card0", "card0:gt1", hierarchy="COMPOSITE"),
            given("1"),
            ["container 'c' was given ZE_AFFINITY_MASK=1, but for card0:gt1 it should be 0.1"],
            id="that-of-a-pod-with-another-hierarchy",
        ),
        pytest.param(
            pod("card0", "card0:gt1"),
            given(None),
            [f"{NO_MASK}, but for card0:gt1 it should be 1"],
            id="taken-for-a-pod-without-tiles",
        ),
        pytest.param(
            pod("card0"),
            given("1"),
            ["container 'c' was given ZE_AFFINITY_MASK=1, but no tiles of card0 were decided for it"],
            id="taken-for-a-pod-with-tiles",
        ),
        pytest.param(
            pod(),
            given("1"),
            ["container 'c' was given ZE_AFFINITY_MASK=1, but no tiles of card0 were decided for it"],
            id="nothing-decided-and-a-mask",
        ),
        pytest.param(
            pod("card1", "card1:gt1"),
            given(None),
            [f"{NO_MASK}: it has card0, and card1:gt1 was decided for it"],
            id="other-cards-with-all-of-their-tiles",
        ),
        pytest.param(
            pod("card0", "card0:gt2"),
            given(None),
            [f"{NO_MASK}: it has card0, and card0:gt2 was decided for it"],
            id="a-tile-that-the-card-does-not-have",
        ),
        pytest.param(
            pod("card0", "card0:gt1"),
            given(None, tiles=1),
            [f"{NO_MASK}: it has card0, and card0:gt1 was decided for it"],
            id="a-second-tile-of-a-card-that-shows-one",
        ),
    ],
)
def test_what_is_told(decision: GpuPod, answer: GivenMask, sentences: list[str]) -> None:
    assert told(masks_after(answer), decision, listing()) == sentences


def test_each_answer_is_told_of_once() -> None:
    masks = masks_after(given("1"))
    assert [len(told(masks, pod("card0"), listing())) for _ in range(2)] == [1, 0]


def test_of_what_was_answered_before_this_process_nothing_is_said() -> None:
    assert told(GivenMasks(), pod("card0", "card0:gt1"), listing()) == []


def test_the_last_answer_for_an_id_counts() -> None:
    """The pod it was first given to was refused."""
    assert told(masks_after(given("0"), given("1")), pod("card0", "card0:gt1"), listing()) == []


def test_an_answer_for_other_ids_is_another_containers() -> None:
    """An init container had both, and the one after it one of them."""
    both = given(None, "card0-0", "card0-1")
    assert told(masks_after(both), pod("card0", "card0:gt1"), listing()) == []
    assert told(masks_after(both, given("1")), pod("card0", "card0:gt1"), listing()) == []


def test_an_answer_given_after_kubelet_was_asked_is_not_in_that_list() -> None:
    masks = masks_after(given("1", at=10.0))
    assert told(masks, pod("card0"), listing(), asked=10.0) == []
    assert len(told(masks, pod("card0"), listing(), asked=10.1)) == 1


def test_cards_are_compared_as_they_were_when_they_were_given() -> None:
    """One that has gone since has no tiles any more."""
    answer = GivenMask(ids("card0-0", "card1-0"), {Card(0): 2, Card(1): 4}, "0,4", at=1.0)
    wanting = container("c", i915=2, tiles=1)
    both = seen(wanting, name="a", annotations=decided("card0,card1", tiles="card0:gt0,card1:gt2"))
    assert told(masks_after(answer), both, listing("card0-0", "card1-0")) == []
