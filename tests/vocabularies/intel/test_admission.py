from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gas.decision.names import WRITTEN_ANNOTATIONS
from gas.vocabularies.intel import names
from gas.vocabularies.intel.vocabulary import INTEL
from gas.vocabularies.known import DEFAULT
from gas.vocabularies.pod_checks import PodChecks
from gas.vocabularies.pod_parts import PREFERENCES
from gas.vocabularies.protocol import NeedOptions
from tests.builders import container, pod

ADD = "but for no card; add gpu.intel.com/i915 or gpu.intel.com/xe to the container, or remove the request"


@pytest.mark.parametrize(
    ("containers", "init", "faults"),
    [
        pytest.param([container(millicores=1)], (), [f"container 'main' asks for 'gpu.intel.com/millicores' {ADD}"]),
        pytest.param([container(memory_max="1G")], (), [f"container 'main' asks for 'gpu.intel.com/memory.max' {ADD}"]),
        pytest.param([container(tiles=1)], (), [f"container 'main' asks for 'gpu.intel.com/tiles' {ADD}"], id="tiles"),
        pytest.param(
            [container(i915=0, millicores=1)],
            (),
            [f"container 'main' asks for 'gpu.intel.com/millicores' {ADD}"],
            id="a-count-of-0",
        ),
        pytest.param(
            [container(millicores=1, memory_max=1, tiles=1)],
            (),
            [f"container 'main' asks for 'gpu.intel.com/memory.max' {ADD}"],
            id="one-sentence-a-container",
        ),
        pytest.param(
            [container("a", i915=1), container("b", millicores=1)],
            (container("c", xe="1k", millicores=1), container("d", memory_max=5)),
            [
                f"container 'd' asks for 'gpu.intel.com/memory.max' {ADD}",
                f"container 'b' asks for 'gpu.intel.com/millicores' {ADD}",
            ],
            id="each-container-by-itself",
        ),
        pytest.param(
            [container(i916=1, millicores=1), container("b", millicores=1, xe2=1)],
            (),
            [
                "container 'main' asks for 'gpu.intel.com/i916' but for no card; did you mean gpu.intel.com/i915?",
                "container 'b' asks for 'gpu.intel.com/xe2' but for no card; did you mean gpu.intel.com/xe?",
            ],
            id="misspelt-counts",
        ),
        pytest.param([container(i916=0)], (), [], id="nothing-of-a-misspelt-count"),
        pytest.param([container(monitoring=1)], (), [], id="monitoring-alone"),
        pytest.param([container(i915=1, millicores=1)], (), [], id="with-i915"),
        pytest.param([container(xe=1, millicores=1)], (), [], id="with-xe"),
        pytest.param([container(millicores=0)], (), [], id="an-amount-of-0"),
        pytest.param([container(millicores="x")], (), [], id="unreadable-amounts-are-a-fault-of-the-need"),
        pytest.param([container(i915="x", millicores=1)], (), [], id="unreadable-counts-as-well"),
        pytest.param([container()], (), [], id="nothing"),
    ],
)
def test_amounts_without_a_card_are_faults(
    containers: list[dict[str, Any]], init: tuple[dict[str, Any], ...], faults: list[str]
) -> None:
    assert INTEL.faults(pod(*containers, init=init)) == faults


OBEYED = NeedOptions(allowlist=True, denylist=True)


def warnings(name: str, text: str, options: NeedOptions = OBEYED) -> list[str]:
    """Return the warnings of a GPU pod with one annotation."""
    return all_warnings({name: text}, options)


def all_warnings(annotations: Mapping[str, str], options: NeedOptions = OBEYED) -> list[str]:
    """Return the warnings of a GPU pod."""
    return list(PodChecks(DEFAULT, options).pod(pod(container(i915=1), annotations=annotations)).warnings)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("gas-same-gpus", "; did you mean gas-same-gpu?"),
        ("gas-samegpu", "; did you mean gas-same-gpu?"),
        ("gas-alow", "; did you mean gas-allow?"),
        ("gas-card-orders", "; did you mean gas-card-order?"),
        ("gas-Deny", "; did you mean gas-deny?"),
        ("gas-quality-of-service", "; docs/pods.md lists those that have one"),
    ],
)
def test_an_unknown_annotation_is_a_warning_with_the_most_similar_one(name: str, hint: str) -> None:
    assert warnings(name, "1") == [f"annotation '{name}' is not known and has no effect{hint}"]


@pytest.mark.parametrize(
    "name",
    ["gas", "gasoline", "gas-expired-binding", "gas-sandbox/run-seconds", "example.com/gas-same-gpus", "x-gas-y"],
)
def test_other_annotations_are_left_alone(name: str) -> None:
    assert warnings(name, "1") == []


@pytest.mark.parametrize("name", [*names.USERS_ANNOTATIONS, "gas-expired-binding"])
def test_known_annotations_are_no_reason_for_a_warning(name: str) -> None:
    assert warnings(name, "a") == []


@given(st.sampled_from(names.USERS_ANNOTATIONS), st.data())
def test_one_wrong_letter_is_recognized(name: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(len("gas-"), len(name)))
    letter = data.draw(st.sampled_from("abcxyz-"))
    wrong = name[:at] + letter + name[at:]
    (sentence,) = warnings(wrong, "a")
    assert "; did you mean gas-" in sentence


@pytest.mark.parametrize("name", [*WRITTEN_ANNOTATIONS, "gas-deschedule-label"])
def test_the_annotations_of_a_decision_are_not_for_new_pods(name: str) -> None:
    sentence = f"annotation {name} is written when the pod is bound; remove it, it seems to be another pod's"
    assert warnings(name, "card0") == [sentence]
    assert warnings(name, "") == []


@pytest.mark.parametrize(
    ("name", "flag"), [("gas-allow", "--enableAllowlist"), ("gas-deny", "--enableDenylist")], ids=["allow", "deny"]
)
def test_a_list_of_cards_that_is_switched_off_is_a_warning(name: str, flag: str) -> None:
    sentence = f"annotation {name} has no effect, because the extender runs without {flag}"
    assert warnings(name, "card0", NeedOptions()) == [sentence]
    assert warnings(name, "", NeedOptions()) == []


@pytest.mark.parametrize("name", ["gas-allocate-xelink", "gas-allocate-single-numa"])
def test_a_switch_that_looks_switched_off_is_a_warning(name: str) -> None:
    sentence = f"annotation {name} is in force with every value, also 'False'; remove it to switch it off"
    assert warnings(name, "False") == [sentence]
    assert warnings(name, "true") == warnings(name, "") == []


def test_every_annotation_that_users_write_is_known() -> None:
    written = {text for text in vars(names).values() if isinstance(text, str) and text.startswith("gas-")}
    of_nodes = {names.CARD_CAPACITY, names.DISABLE_CARD, names.DESCHEDULE_CARD, names.PREFER_CARD}
    of_tiles = {names.DISABLE_TILE, names.DESCHEDULE_TILE, names.PREFER_TILE}
    assert written == {*names.USERS_ANNOTATIONS, *of_nodes, *of_tiles} - PREFERENCES
