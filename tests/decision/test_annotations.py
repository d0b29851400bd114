"""The decision and the receipt as annotations of a pod."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gas.decision.annotations import (
    LARGEST_REMEMBERED,
    MalformedAnnotation,
    choice_annotations,
    read_choice,
    read_receipt,
)
from gas.objects.stored import Pod
from gas.placement.choice import Choice, ContainerChoice, footprint
from gas.placement.need import ContainerNeed, PodNeed, Role
from gas.values.cards import Card
from tests.builders import pod


def wants(name: str, count: int, tiles: int = 0, role: Role = Role.APP) -> ContainerNeed:
    per_card = (("i915", 1), ("tiles", tiles)) if tiles else (("i915", 1),)
    return ContainerNeed(name, count, per_card if count else (), role)


def gets(*cards: int, tiles: tuple[tuple[int, ...], ...] = ()) -> ContainerChoice:
    return ContainerChoice(tuple(map(Card, cards)), tiles)


def need(*containers: ContainerNeed) -> PodNeed:
    return PodNeed(containers=containers, count_resources=frozenset({"i915", "xe"}))


def said(**annotations: str) -> dict[str, str]:
    """Return annotations of a decision and a receipt: ``cards``, ``init_tiles``, ``allocated``, ``allocated_init``."""
    return {NAMES[name]: text for name, text in annotations.items()}


def annotated(annotations: Mapping[str, str]) -> Pod:
    return pod(annotations=annotations)


NAMES = {
    "ts": "gas-ts",
    "cards": "gas-container-cards",
    "tiles": "gas-container-tiles",
    "init_cards": "gas-init-container-cards",
    "init_tiles": "gas-init-container-tiles",
    "allocated": "gas-allocated-cards",
    "allocated_init": "gas-allocated-init-cards",
}
INIT = wants("init", 1, role=Role.INIT)
TILED_INIT = wants("init", 1, tiles=1, role=Role.INIT)
SIDECAR = wants("side", 1, role=Role.SIDECAR)
ONE, TWO, NONE = wants("one", 1), wants("two", 2), wants("none", 0)

WRITTEN = [
    pytest.param(need(ONE), [gets(3)], said(cards="card3"), id="one-card"),
    pytest.param(
        need(TWO, NONE, ONE),
        [gets(10, 2), gets(), gets(0)],
        said(cards="card10,card2||card0"),
        id="a-container-without-cards-keeps-its-place",
    ),
    pytest.param(
        need(wants("a", 2, tiles=1), ONE, wants("b", 1, tiles=2)),
        [gets(1, 0, tiles=((1,), (0,))), gets(2), gets(0, tiles=((2, 1),))],
        said(cards="card1,card0|card2|card0", tiles="card1:gt1,card0:gt0||card0:gt2+gt1"),
        id="tiles-when-a-container-asks-for-some",
    ),
    pytest.param(
        need(INIT, wants("idle", 0, role=Role.INIT), SIDECAR, ONE),
        [gets(0), gets(), gets(1), gets(0)],
        said(cards="card0", init_cards="card0||card1"),
        id="init-containers-and-sidecars-have-their-own",
    ),
    pytest.param(
        need(wants("idle", 0, role=Role.INIT), ONE),
        [gets(), gets(0)],
        said(cards="card0"),
        id="init-containers-without-cards-have-none",
    ),
    pytest.param(
        need(TILED_INIT, ONE),
        [gets(0, tiles=((1,),)), gets(0)],
        said(cards="card0", init_cards="card0", init_tiles="card0:gt1"),
        id="tiles-of-init-containers",
    ),
    pytest.param(
        need(INIT, NONE), [gets(0), gets()], said(cards="", init_cards="card0"), id="only-an-init-container-wants-cards"
    ),
    pytest.param(
        need(INIT, NONE, NONE),
        [gets(0), gets(), gets()],
        said(cards="|", init_cards="card0"),
        id="only-an-init-container-wants-cards-beside-two-apps",
    ),
    pytest.param(
        need(TILED_INIT, wants("app", 1, tiles=1)),
        [gets(0, tiles=((0,),)), gets(0, tiles=((0,),))],
        said(cards="card0", tiles="card0:gt0", init_cards="card0", init_tiles="card0:gt0"),
        id="an-app-may-have-the-tiles-of-an-ended-init-container",
    ),
]


# contract E3.1 to E3.5
@pytest.mark.parametrize(("need", "given_", "annotations"), WRITTEN)
def test_a_decision_is_written_and_read_back(
    need: PodNeed, given_: list[ContainerChoice], annotations: Mapping[str, str]
) -> None:
    choice = Choice(tuple(given_))
    written = choice_annotations(need, choice, timestamp_ns=1_700_000_000_000_000_001)
    assert written == {"gas-ts": "1700000000000000001", **annotations}
    assert read_choice(annotated(written), need) == choice


@pytest.mark.parametrize(("containers", "is_shared"), [(1, True), (LARGEST_REMEMBERED // 6, False)])
def test_equal_pods_share_a_decision_and_a_receipt_unless_these_are_long(containers: int, *, is_shared: bool) -> None:
    cards = "|".join(["card10"] * containers)
    written, asked = said(cards=cards, allocated=cards), need(*[ONE] * containers)
    for read in (read_choice, read_receipt):
        first, second = (read(annotated(dict(written)), asked) for _ in range(2))
        assert first == second
        assert (first is second) == is_shared


def test_nothing_is_written_on_a_pod_that_wants_no_cards() -> None:
    assert choice_annotations(need(NONE), Choice((ContainerChoice(),)), timestamp_ns=1) == {}


@pytest.mark.parametrize(
    ("need", "annotations"),
    [
        pytest.param(need(ONE), {}, id="no-annotations"),
        pytest.param(need(ONE), said(ts="1"), id="only-a-time"),
        pytest.param(need(ONE), said(cards=""), id="an-empty-text"),
        pytest.param(need(INIT, ONE), said(init_cards="card0"), id="only-init-containers-cards"),
        pytest.param(
            need(INIT, NONE), said(cards="", init_cards=""), id="empty-texts-where-only-an-init-container-wants-cards"
        ),
        pytest.param(need(NONE), said(init_cards="card0"), id="a-pod-that-wants-no-cards"),
    ],
)
def test_without_the_annotations_there_is_no_decision(need: PodNeed, annotations: Mapping[str, str]) -> None:
    assert read_choice(annotated(annotations), need) is None


# contract E3.6
@pytest.mark.parametrize(
    ("need", "annotations", "expected"),
    [
        pytest.param(need(wants("main", 1, tiles=1)), said(cards="card0"), [gets(0)], id="cards-without-tiles-count"),
        pytest.param(
            need(wants("main", 1, tiles=1)), said(cards="card0", tiles=""), [gets(0)], id="empty-tiles-are-no-tiles"
        ),
        pytest.param(
            need(INIT, SIDECAR, ONE),
            said(cards="card0"),
            [gets(), gets(), gets(0)],
            id="pods-of-the-original-have-nothing-for-init-containers",
        ),
        pytest.param(
            need(wants("main", 2, tiles=1)),
            said(cards="card1,card0", tiles="card0:gt0,card1:gt1"),
            [gets(1, 0, tiles=((1,), (0,)))],
            id="tiles-in-another-order-of-cards",
        ),
        pytest.param(
            need(wants("main", 2, tiles=2)),
            said(cards="card0,card1", tiles="card0:gt0,card1:gt1"),
            [gets(0, 1, tiles=((0,), (1,)))],
            id="the-original-rounded-3-tiles-over-2-cards-down",
        ),
        pytest.param(
            need(wants("main", 2, tiles=1)),
            said(cards="card0,card1", tiles=","),
            [gets(0, 1)],
            id="the-original-rounded-1-tile-over-2-cards-down",
        ),
        pytest.param(
            need(wants("main", 2, tiles=2)),
            said(cards="card0,card1", tiles=",card1:gt0+gt1"),
            [gets(0, 1, tiles=((), (0, 1)))],
            id="the-original-found-too-few-tiles-on-one-card",
        ),
        pytest.param(
            need(wants("main", 1, tiles=2), wants("other", 1, tiles=2)),
            said(cards="card0|card0", tiles="card0:gt0+gt1|"),
            [gets(0, tiles=((0, 1),)), gets(0)],
            id="the-original-found-too-few-tiles-for-one-container",
        ),
    ],
)
def test_an_incomplete_decision_is_accepted(
    need: PodNeed, annotations: Mapping[str, str], expected: list[ContainerChoice]
) -> None:
    assert read_choice(annotated(annotations), need) == Choice(tuple(expected))


TILED = wants("main", 1, tiles=2)


@pytest.mark.parametrize(
    ("need", "cards", "sentence"),
    [
        (need(ONE), "card0|card1", "expected 1 container(s) between '|', found 2"),
        (need(ONE, ONE), "card0", "expected 2 container(s) between '|', found 1"),
        (need(TWO), "card0", "expected 2 card(s) for container 'two', found 1"),
        (need(ONE), "card0,card1", "expected 1 card(s) for container 'one', found 2"),
        (need(ONE, NONE), "card0|card1", "expected 0 card(s) for container 'none', found 1"),
        (need(TWO), "card0,card0", "container 'two' has a card more than once"),
        (need(ONE), "gpu0", "expected card names as in card0,card1||card2, found 'gpu0'"),
        (need(NONE), "card0", "expected 0 card(s) for container 'none', found 1"),
    ],
)
def test_invalid_cards_are_refused(need: PodNeed, cards: str, sentence: str) -> None:
    with pytest.raises(MalformedAnnotation) as refused:
        read_choice(annotated(said(cards=cards)), need)
    assert str(refused.value) == f"annotation gas-container-cards: {sentence}"


def test_invalid_cards_of_init_containers_are_refused() -> None:
    annotations = said(cards="card0", init_cards="card0|card1")
    with pytest.raises(MalformedAnnotation) as refused:
        read_choice(annotated(annotations), need(INIT, ONE))
    assert str(refused.value) == ("annotation gas-init-container-cards: expected 1 container(s) between '|', found 2")


@pytest.mark.parametrize(
    ("need", "tiles", "sentence"),
    [
        pytest.param(need(TILED), "card0:gt0+gt1+gt2", "expected at most 2 different tile(s) of card0 for container"
                     " 'main', found gt0, gt1, gt2", id="too-many"),
        pytest.param(need(TILED), "card0:gt0+gt0", "expected at most 2 different tile(s) of card0 for container"
                     " 'main', found gt0, gt0", id="a-tile-twice"),
        pytest.param(need(TILED), "card1:gt0+gt1", "container 'main' has tiles of other cards than its own",
                     id="of-another-card"),
        pytest.param(need(TILED), "card0:gt0+gt1,card0:gt0+gt1",
                     "container 'main' has tiles of other cards than its own", id="a-card-twice"),
        pytest.param(need(TILED), "card0:gt0+gt1|", "expected 1 container(s) between '|', found 2",
                     id="too-many-containers"),
        pytest.param(need(TILED), "none", "expected tiles of cards as in card0:gt0+gt1, found 'none'", id="malformed"),
        pytest.param(need(ONE), "card0:gt0", "container 'one' needs no tiles, but has some", id="tiles-not-wanted"),
    ],
)  # fmt: skip
def test_invalid_tiles_are_refused(need: PodNeed, tiles: str, sentence: str) -> None:
    with pytest.raises(MalformedAnnotation) as refused:
        read_choice(annotated(said(cards="card0", tiles=tiles)), need)
    assert str(refused.value) == f"annotation gas-container-tiles: {sentence}"


def test_every_card_is_booked_with_the_tiles_that_the_pod_needs() -> None:
    main = need(wants("main", 2, tiles=2))
    annotations = said(cards="card0,card1", tiles="card0:gt1,card1:gt0")
    choice = read_choice(annotated(annotations), main)
    assert choice is not None
    held = footprint(main, choice)
    assert held.tiles == {Card(0): {1}, Card(1): {0}}
    assert held.amounts == {Card(0): (("i915", 1), ("tiles", 2)), Card(1): (("i915", 1), ("tiles", 2))}


@pytest.mark.parametrize(
    ("need", "annotations", "blamed"),
    [
        pytest.param(
            need(TILED, wants("other", 1, tiles=1)),
            said(cards="card0|card0", tiles="card0:gt0+gt1|card0:gt1"),
            "annotation gas-container-tiles: container 'other'",
            id="two-apps",
        ),
        pytest.param(
            need(wants("side", 1, tiles=1, role=Role.SIDECAR), wants("main", 1, tiles=1)),
            said(init_cards="card0", init_tiles="card0:gt0", cards="card0", tiles="card0:gt0"),
            "annotation gas-container-tiles: container 'main'",
            id="a-sidecar-and-an-app",
        ),
    ],
)
def test_one_tile_for_two_containers_that_run_together_is_refused(
    need: PodNeed, annotations: Mapping[str, str], blamed: str
) -> None:
    with pytest.raises(MalformedAnnotation) as refused:
        read_choice(annotated(annotations), need)
    assert str(refused.value) == f"{blamed} has a tile that another container holds"


DECIDED = said(cards="card0,card1|card2")


@pytest.mark.parametrize(
    ("need", "annotations", "expected"),
    [
        pytest.param(
            need(TWO, ONE), DECIDED | said(allocated="card0,card1|card2"), [gets(0, 1), gets(2)], id="as-decided"
        ),
        pytest.param(
            need(TWO, ONE), DECIDED | said(allocated="card3,card4|card5"), [gets(3, 4), gets(5)], id="other-cards"
        ),
        pytest.param(
            need(TWO, ONE),
            DECIDED | said(allocated="card3|card5"),
            [gets(0, 1, 3), gets(5)],
            id="fewer-cards-than-asked-for-free-no-decided-card",
        ),
        pytest.param(
            need(TWO, ONE),
            DECIDED | said(allocated="card1|card2"),
            [gets(0, 1), gets(2)],
            id="one-of-the-decided-cards-keeps-all-of-them",
        ),
        pytest.param(
            need(wants("main", 2, tiles=1)),
            said(cards="card0,card1", tiles="card0:gt0,card1:gt1", allocated="card2"),
            [gets(0, 1, 2, tiles=((0,), (1,), ()))],
            id="fewer-cards-than-asked-for-free-no-tile-either",
        ),
        pytest.param(need(TWO), said(allocated="card3"), [gets(3)], id="fewer-cards-and-no-decision"),
        pytest.param(
            need(ContainerNeed("both", 1, (("i915", 2), ("xe", 1)))),
            said(cards="card0", allocated="card0,card1,card2"),
            [gets(0, 1, 2)],
            id="a-container-that-the-original-placed-has-cards-of-both-drivers",
        ),
        pytest.param(need(ONE), said(allocated="card3"), [gets(3)], id="without-a-decision"),
        pytest.param(need(ONE), said(cards="damaged", allocated="card3"), [gets(3)], id="with-a-damaged-decision"),
        pytest.param(
            need(INIT, ONE),
            said(cards="card0", init_cards="card1", allocated="card2", allocated_init="card3"),
            [gets(3), gets(2)],
            id="init-containers-too",
        ),
        pytest.param(
            need(INIT, ONE),
            said(cards="card0", init_cards="card1", allocated_init="card3"),
            [gets(3), gets(0)],
            id="apps-without-receipt-keep-the-decision",
        ),
        pytest.param(
            need(INIT, ONE),
            said(cards="card0", init_cards="card1", allocated="card2"),
            [gets(1), gets(2)],
            id="init-containers-without-receipt-keep-the-decision",
        ),
        pytest.param(
            need(INIT, SIDECAR, ONE),
            said(cards="card0", init_cards="card1|card2", allocated_init="|card3"),
            [gets(1), gets(3), gets(0)],
            id="an-ended-init-container-keeps-the-decision",
        ),
        pytest.param(
            need(wants("main", 2, tiles=1)),
            said(cards="card0,card1", tiles="card0:gt0,card1:gt1", allocated="card2,card1"),
            [gets(2, 1, tiles=((), (1,)))],
            id="tiles-of-the-cards-that-stayed",
        ),
    ],
)
def test_the_receipt_decides_which_cards_a_pod_has(
    need: PodNeed, annotations: Mapping[str, str], expected: list[ContainerChoice]
) -> None:
    assert read_receipt(annotated(annotations), need) == Choice(tuple(expected))


@pytest.mark.parametrize(
    ("need", "annotations"),
    [
        pytest.param(need(ONE), {}, id="no-annotations"),
        pytest.param(need(ONE), said(cards="card0"), id="only-a-decision"),
        pytest.param(need(ONE), said(allocated="", allocated_init=""), id="empty-texts"),
        pytest.param(need(NONE), said(allocated="card0"), id="a-pod-that-wants-no-cards"),
    ],
)
def test_without_a_receipt_there_is_none(need: PodNeed, annotations: Mapping[str, str]) -> None:
    assert read_receipt(annotated(annotations), need) is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("card0|card1", "expected 3 container(s) between '|', found 2"),
        ("card0,card0|card1|", "container 'two' has a card more than once"),
        ("gpu0|card1|", "expected card names as in card0,card1||card2, found 'gpu0'"),
        ("|card1|", "expected 1 to 2 card(s) for container 'two', found 0"),
        ("card0||", "expected 1 card(s) for container 'one', found 0"),
        ("card0,card1,card2|card1|", "expected 1 to 2 card(s) for container 'two', found 3"),
        ("card0|card1|card2", "expected 0 card(s) for container 'none', found 1"),
    ],
)
def test_an_invalid_receipt_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(MalformedAnnotation) as refused:
        read_receipt(annotated(said(allocated=text)), need(TWO, ONE, NONE))
    assert str(refused.value) == f"annotation gas-allocated-cards: {sentence}"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("card0|", "expected 1 card(s) for container 'side', found 0"),
        ("card0,card1|card2", "expected 0 to 1 card(s) for container 'init', found 2"),
    ],
)
def test_an_invalid_receipt_of_an_init_container_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(MalformedAnnotation) as refused:
        read_receipt(annotated(said(allocated_init=text)), need(INIT, SIDECAR, ONE))
    assert str(refused.value) == f"annotation gas-allocated-init-cards: {sentence}"


@given(st.data())
def test_a_receipt_frees_a_card_only_for_another_one(data: st.DataObject) -> None:
    """A container always holds at least as many cards as it asks for."""
    wanted = need(TWO, ONE)
    place = st.lists(st.sampled_from(["card0", "card1", "card2", "card3"]), max_size=3).map(",".join)
    text = data.draw(st.lists(place, min_size=2, max_size=2).map("|".join))
    try:
        read = read_receipt(annotated(DECIDED | said(allocated=text)), wanted)
    except MalformedAnnotation:
        return
    assert read is not None
    for container, own in zip(wanted.containers, read.containers, strict=True):
        assert len(set(own.cards)) == len(own.cards) >= container.count


TEXT = st.text("card012:gt+,|\x00é", max_size=25) | st.sampled_from(["card0", "card0:gt0", "card0|card1", "|"])


# contract E9.6
@given(
    st.dictionaries(
        st.sampled_from(
            [
                "gas-container-cards",
                "gas-container-tiles",
                "gas-init-container-cards",
                "gas-init-container-tiles",
                "gas-allocated-cards",
                "gas-allocated-init-cards",
            ]
        ),
        TEXT,
    ),
    st.sampled_from([need(ONE), need(INIT, ONE), need(TILED_INIT, TILED, NONE), need(INIT, NONE), need(NONE)]),
)
def test_any_annotations_are_read_or_refused_in_one_short_sentence(annotations: dict[str, str], need: PodNeed) -> None:
    for read in (read_choice, read_receipt):
        sentence = sentence_about(read, annotated(annotations), need)
        assert sentence.isprintable()
        assert len(sentence) < 250


def sentence_about(read: Callable[[Pod, PodNeed], Choice | None], hostile: Pod, need: PodNeed) -> str:
    """Return the sentence that refuses the annotations, or an empty text."""
    try:
        choice = read(hostile, need)
    except MalformedAnnotation as malformed:
        return str(malformed)
    assert choice is None or len(choice.containers) == len(need.containers)
    return ""
