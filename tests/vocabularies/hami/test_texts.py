"""The texts in which HAMi's releases state cards, and pods that HAMi has bound."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gas.extender.decider import Options
from gas.values.amounts import MEMORY_MAX
from gas.values.cards import Card
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.hami import texts
from gas.vocabularies.hami.texts import Registered, Share
from gas.vocabularies.selection import parse_vocabularies
from tests.builders import described_node
from tests.extender.decider import DrivenDecider, following
from tests.hami_words import ALLOCATED, MIB, REGISTER, A, B, C, asking, hami_node, wanting
from tests.other_words import decoded

VOCABULARIES = Vocabularies(parse_vocabularies("intel,hami"))
OPTIONS = Options(vocabularies=VOCABULARIES)
uuids = st.sampled_from([A, B, C])
shares = st.builds(Share, st.integers(0, 10**6), st.integers(0, 200))


# contract H3.2
@given(st.lists(st.dictionaries(uuids, shares)))
def test_the_text_of_a_decision_is_read_again(places: list[dict[str, Share]]) -> None:
    text = texts.format_allocated([list(place.items()) for place in places])
    assert texts.parse_allocated(text) == tuple(place for place in places if place)


def decided(
    text: str, *containers: Any, init: tuple[Any, ...] = (), more: Mapping[str, str] | None = None
) -> DrivenDecider:
    """Return a decider that knows a pod that HAMi has bound to a node with two cards."""
    annotations = {"hami.io/vgpu-node": "n", ALLOCATED: text, **(more or {})}
    return following(
        [hami_node()], wanting("pod", *containers, init=init, node="n", annotations=annotations), options=OPTIONS
    )


def booked(decider: DrivenDecider) -> dict[int, tuple[int, int, int]]:
    """Return MiB, millicores and places that the pod has of each card."""
    found = {} if "pod" not in decider.booked() else decider.booked()["pod"].footprint.amounts
    amounts = {int(card): dict(of) for card, of in found.items()}
    return {card: (of.get(MEMORY_MAX, 0) // MIB, of.get("millicores", 0), of["gpu"]) for card, of in amounts.items()}


def of(uuid: str, mib: int, percent: int) -> str:
    return f"{uuid},NVIDIA,{mib},{percent}:"


APP, IDLE = asking("app", gpu=1), {"name": "idle"}
OTHER, INIT, SIDECAR = asking("other", gpu=1), asking("init", gpu=1), asking("side", gpu=1, always=True)
TWO, SAME = f"{of(A, 10, 1)};{of(B, 20, 2)};", f"{of(A, 30, 1)};{of(A, 10, 2)};"


# contract H1.10, H3.2, H3.3, H3.4, H3.5
@pytest.mark.parametrize(
    ("_name", "text", "containers", "init", "expected"),
    [
        ("one-card", f"{of(A, 4000, 20)};", [APP], [], {0: (4000, 200, 1)}),
        ("two-cards", f"{of(A, 10, 5)}{of(B, 20, 5)};", [asking(gpu=2)], [], {0: (20, 50, 1), 1: (20, 50, 1)}),
        ("2.9", f";{TWO}", [APP, OTHER], [IDLE], {0: (10, 10, 1), 1: (20, 20, 1)}),
        ("2.10", TWO, [IDLE, APP, OTHER], [], {0: (10, 10, 1), 1: (20, 20, 1)}),
        ("2.5", f",,0,0:;{of(B, 20, 2)};", [IDLE, APP], [], {1: (20, 20, 1)}),
        ("2.8-without-init-containers", f"{of(A, 10, 1)};", [APP], [INIT], {0: (10, 10, 1)}),
        ("init-and-app", SAME, [APP], [INIT], {0: (30, 20, 1)}),
        ("sidecar-and-app", SAME, [APP], [SIDECAR], {0: (40, 30, 2)}),
        ("two-on-a-card", SAME, [APP, OTHER], [], {0: (40, 30, 2)}),
        ("divided", f"{of(A + '[0-1]', 30, 1)}{of(A + '[0-2]', 10, 2)};", [asking(gpu=2)], [], {0: (40, 30, 1)}),
        ("scaled", f"{of(A, 49152, 200)};", [APP], [], {0: (49152, 2000, 1)}),
        ("a-card-that-is-gone", f"{of('GPU-gone', 1, 1)};{of(B, 2, 2)};", [APP, OTHER], [], {1: (2, 20, 1)}),
    ],
)
def test_cards_of_pods_that_hami_has_bound(
    _name: str, text: str, containers: list[Any], init: list[Any], expected: dict[int, Any]
) -> None:
    decider = decided(text, *containers, init=tuple(init))
    assert booked(decider) == expected
    assert decider.reports.mismatches == []


# contract H3.4
def test_all_cards_of_a_decision_for_other_containers_are_booked_and_it_is_reported() -> None:
    decider = decided(f"{A},NVIDIA,10,1:;{B},NVIDIA,20,2:;{A},NVIDIA,5,0:;", APP)
    assert booked(decider) == {0: (20, 20, 1), 1: (20, 20, 1)}
    ((_, sentence),) = decider.reports.mismatches
    assert sentence == (
        f"annotation {ALLOCATED}: expected cards of the 1 container(s) that ask for cards, found those of 3; all of"
        " these cards are booked"
    )


@pytest.mark.parametrize("text", [f"{A},NVIDIA,10:;", f"{A},NVIDIA,x,1:;", "x" * 70_000])
def test_a_decision_that_cannot_be_read_is_reported(text: str) -> None:
    decider = decided(text, APP)
    assert booked(decider) == {}
    assert "cannot be read" in decider.reports.mismatches[0][1]


# contract H3.5
@pytest.mark.parametrize(
    "more", [{"hami.io/vgpu-node": "another"}, {"gas-ts": "1", "gas-container-cards": "card1"}], ids=["node", "ours"]
)
def test_what_is_not_hamis_decision_for_this_node_is_not_read(more: dict[str, str]) -> None:
    assert booked(decided(f"{A},NVIDIA,10,1:;", asking(gpu=1, mem=7), more=more)) == (
        {1: (7, 0, 1)} if "gas-ts" in more else {}
    )


# contract H3.5
def test_a_booking_moves_to_the_number_that_our_plugin_records() -> None:
    registered = json.dumps([{"id": B, "index": 0, "count": 10, "devmem": 24576, "type": "NVIDIA A10", "health": True}])
    pod = wanting(gpu=1, node="n", annotations={ALLOCATED: f"{B},NVIDIA,10,1:;"})
    node = described_node("n", {"nvidia.com/gpu": 10}, annotations={REGISTER: registered})
    decider = following([node], pod, options=OPTIONS)
    assert booked(decider) == {0: (10, 10, 1)}
    decider.node_handlers.changed(decoded(hami_node()))
    assert booked(decider) == {1: (10, 10, 1)}


# contract H3.10
async def test_what_an_earlier_decision_left_in_a_template_is_emptied() -> None:
    left = ["vgpu-devices-to-allocate", "bind-phase", "bind-time", "vgpu-devices-allocated"]
    pod = wanting(gpu=1, mem=1, annotations={f"hami.io/{name}": "x" for name in left})
    decider = following([hami_node()], pod, options=OPTIONS)
    assert await decider.bind(pod, "n") == ""
    written = decider.cluster.pods["default/pod"]["metadata"]["annotations"]
    assert [written[f"hami.io/{name}"] for name in left] == ["", "", "", f"{A},NVIDIA,1,0:;"]


OLD = f"{A},10,24576,100,NVIDIA-NVIDIA A10,1,true"
CARD = Registered(id=A, count=10, devmem=24576, devcore=100, numa=1, health=True)


# contract H3.6
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (OLD + ":", {"type": "NVIDIA-NVIDIA A10"}),
        (f"{OLD},3,hami-core:", {"type": "NVIDIA-NVIDIA A10", "index": 3, "mode": "hami-core"}),
        (texts.format_register([CARD]), {}),
        (OLD.replace("true", "false"), {"type": "NVIDIA-NVIDIA A10", "health": False}),
    ],
)
def test_both_forms_of_a_nodes_cards_are_read(text: str, expected: dict[str, Any]) -> None:
    (card,) = texts.parse_register(text)
    assert {name: getattr(card, name) for name in card.__struct_fields__} == {
        **{name: getattr(CARD, name) for name in CARD.__struct_fields__},
        **expected,
    }


def registered(*cards: dict[str, Any], text: str | None = None, ids: int = 10) -> dict[str, Any]:
    whole = {"count": 10, "devmem": 100, "devcore": 100, "type": "Tesla V100", "health": True}
    stated = json.dumps([whole | each for each in cards]) if text is None else text
    return described_node("n", {"nvidia.com/gpu": ids}, annotations={REGISTER: stated})


# contract H3.6
def test_what_a_node_registers() -> None:
    facts = VOCABULARIES.facts(
        decoded(
            registered(
                {"id": A, "index": 4, "numa": 1}, {"id": B, "health": False}, {"id": C, "index": 2, "mode": "mig"}
            )
        )
    )
    amounts = {MEMORY_MAX: 100 * MIB, "millicores": 1000}
    assert facts.inventory.capacity == {Card(2): amounts, Card(4): {"gpu": 10, **amounts}}
    assert set(facts.inventory.numa_groups or ()) == {(Card(4),), (Card(2),)}
    assert facts.inventory.models[Card(4)] == "nvidia-tesla v100"
    assert VOCABULARIES.uuids(decoded(registered({"id": A}, {"id": B}))) == {A: Card(0), B: Card(1)}


# contract H3.6
@pytest.mark.parametrize(
    "text", ["[", "[1]", f"{A},1,2", '[{"id":""}]', '[{"id":"a","devmem":-1}]', "x" * 70_000, f"{OLD}:{OLD}"]
)
def test_a_nodes_cards_that_cannot_be_read_are_a_problem(text: str) -> None:
    facts = VOCABULARIES.facts(decoded(registered(text=text)))
    assert facts.inventory.capacity == {}
    assert facts.problems[0].startswith(f"annotation {REGISTER}: expected ")


# contract H1.9
@pytest.mark.parametrize(("count", "ids", "expected"), [(3, 3, 3), (0, 5, 10), (3, 0, None)])
def test_the_plugin_of_a_node_says_how_many_containers_may_share_a_card(
    count: int, ids: int, expected: int | None
) -> None:
    node = hami_node(memory=[100], annotations={REGISTER: texts.format_register([Registered(id=A, count=count)])})
    node["status"]["allocatable"]["nvidia.com/gpu"] = str(ids)
    assert VOCABULARIES.facts(decoded(node)).inventory.capacity[Card(0)].get("gpu") == expected


# contract H2.8
def test_an_unknown_card_that_is_cordoned_is_a_problem_of_the_node() -> None:
    facts = VOCABULARIES.facts(decoded(hami_node(annotations={"hami.io/device-cordon": f"GPU-x, {B}"})))
    assert facts.inventory.disabled == {Card(1)}
    assert facts.problems == (
        "annotation hami.io/device-cordon: expected UUIDs of the node's cards, found 'GPU-x'; they are ignored",
    )
