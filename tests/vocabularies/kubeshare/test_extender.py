"""KubeShare's pods in the extender: each clause of the contract with their users that the extender keeps."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec
import pytest

from gas.extender.debug import differences
from gas.extender.decider import Options
from gas.extender.scoring.scoring import Scoring
from gas.extender.verdicts import at_once
from gas.extender.wire import FilterArgs
from gas.objects.stored import AskedPod
from gas.placement.order import NodeScore, UsedFirst
from gas.values.amounts import MEMORY_MAX
from gas.values.cards import Card
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.protocol import BadNeed, DeviceOptions, NeedOptions
from gas.vocabularies.selection import parse_vocabularies
from tests.builders import container, pod_json
from tests.extender.cluster import Cluster
from tests.extender.decider import DrivenDecider, as_pod, booked_cards
from tests.extender.decider import following as decider_following
from tests.kubeshare_words import GIB, GPUID, VGPU, of_the_original, share, sharing, sharing_node, with_card
from tests.other_words import asking, decoded
from tests.plugin.gpus import gpu

VOCABULARIES = Vocabularies(parse_vocabularies("intel,aliyun,kubeshare,vendor"))
OPTIONS = Options(vocabularies=VOCABULARIES)
following = partial(decider_following, options=OPTIONS)
NO_OPTIONS = NeedOptions()


def annotations_of(decider: DrivenDecider, name: str) -> dict[str, str]:
    return dict(decider.cluster.pods[f"default/{name}"]["metadata"]["annotations"])


def booked(decider: DrivenDecider, node: str = "n1") -> dict[int, tuple[int, int]]:
    """Return the millicores and bytes that are booked on each card."""
    usage = decider.ledger.usage(node).amounts
    return {int(card): (each.get("millicores", 0), each.get(MEMORY_MAX, 0)) for card, each in usage.items()}


def edit(decider: DrivenDecider, name: str, annotations: Mapping[str, str | None]) -> None:
    """Set annotations of a pod, or remove those that are None."""

    def change(pod: dict[str, Any]) -> None:
        texts = {**pod["metadata"]["annotations"], **annotations}
        pod["metadata"]["annotations"] = {key: text for key, text in texts.items() if text is not None}

    decider.cluster.edit(f"default/{name}", change)


async def bound(decider: DrivenDecider, pod: dict[str, Any], node: str = "n1") -> tuple[str, str]:
    """Create and bind a pod; return its card and the name of it."""
    decider.cluster.add(pod)
    assert await decider.bind(pod, node) == ""
    name = pod["metadata"]["name"]
    return booked_cards(decider, name).partition(" ")[0], annotations_of(decider, name).get(GPUID, "")


# contract S1.1
@pytest.mark.parametrize("missing", ["request", "limit", "memory"])
def test_all_three_annotations_are_required(missing: str) -> None:
    stated: dict[str, Any] = {missing: None}
    with pytest.raises(BadNeed, match=r"^kubeshare/gpu_\w+: expected a number .*, found none; set it beside kubeshare"):
        VOCABULARIES.need(as_pod(sharing("pod", share(**stated))), NO_OPTIONS)


# contract S1.1
def test_a_pod_with_the_resource_alone_is_refused() -> None:
    with pytest.raises(BadNeed, match=r"^kubeshare/gpu_request: expected a number from 0 to 1, found none"):
        VOCABULARIES.need(as_pod(sharing("pod", {})), NO_OPTIONS)


# contract S1.2
@pytest.mark.parametrize(
    ("annotations", "sentence"),
    [
        (
            share("0.6", "0.5"),
            "kubeshare/gpu_request: expected at most kubeshare/gpu_limit, 0.5, found 0.6; lower the request or raise"
            " the limit",
        ),
        (share("0.5", "1.1"), "kubeshare/gpu_limit: expected at most 1.0, a whole card, found 1.1; lower it"),
        (
            share(memory="1Gi"),
            "kubeshare/gpu_mem: expected a whole number of bytes from 0 to 2^63-1 such as 1073741824, found '1Gi'",
        ),
        (
            share(memory="-1"),
            "kubeshare/gpu_mem: expected a whole number of bytes from 0 to 2^63-1 such as 1073741824, found '-1'",
        ),
        (share("-0.1"), "kubeshare/gpu_request: expected a number from 0 to 1 such as 0.5, found '-0.1'"),
        (share("half"), "kubeshare/gpu_request: expected a number from 0 to 1 such as 0.5, found 'half'"),
        (share("1e-1"), "kubeshare/gpu_request: expected a number from 0 to 1 such as 0.5, found '1e-1'"),
        (share("0.5", "nan"), "kubeshare/gpu_limit: expected a number from 0 to 1 such as 0.5, found 'nan'"),
        (
            share(exclusion="(whole cards)"),
            "kubeshare/sched_exclusion: expected at most 253 printable characters, the first one not '(', found"
            " '(whole cards)'",
        ),
    ],
)
async def test_invalid_annotations_are_refused_with_a_sentence(annotations: dict[str, str], sentence: str) -> None:
    decider = following([sharing_node()], asked := sharing("pod", annotations))
    assert (await decider.ask(asked, "n1"))["FailedNodes"] == {"n1": sentence}


def test_every_sentence_about_an_annotation_is_short_enough_for_an_event() -> None:
    long = "x" * 300
    for wrong in (
        share(long), share("0.5", long), share(memory=long), share(memory=None), share(gpuid=long),
        share(affinity=long), share(anti_affinity="ä" * 300), share(exclusion=long),
        share("999999999.123456789012345678", "1"), share("0", "999999999.123456789012345678"),
    ):  # fmt: skip
        with pytest.raises(BadNeed) as refused:
            VOCABULARIES.need(as_pod(sharing("pod", wrong)), NO_OPTIONS)
        assert len(str(refused.value)) <= 200


# contract S1.3
def test_the_worked_example_takes_500_thousandths_and_a_gibibyte() -> None:
    need = VOCABULARIES.need(as_pod(sharing("pod", share("0.5", "1.0", "1073741824"))), NO_OPTIONS)
    (only,) = need.containers
    assert dict(only.per_card) == {"millicores": 500, MEMORY_MAX: 1073741824, "vgpu": 1}


# contract S1.4
@pytest.mark.parametrize(
    ("request_", "thousandths"),
    [("0.3335", 334), ("0.333", 333), ("0.07", 70), ("0.0000001", 1), ("0", 0), ("0.", 0), (".5", 500), ("1.0", 1000)],
)
def test_fractions_become_thousandths_rounded_up(request_: str, thousandths: int) -> None:
    (only,) = VOCABULARIES.need(as_pod(sharing("pod", share(request_))), NO_OPTIONS).containers
    assert dict(only.per_card).get("millicores", 0) == thousandths


# contract S1.5
async def test_a_card_takes_pods_while_requests_and_memories_fit_whatever_their_limits_are() -> None:
    decider = following([sharing_node(memory=[8 * GIB])])
    for number in range(3):
        assert await bound(decider, sharing(f"p{number}", share("0.3", "1.0", str(2 * GIB))))
    assert booked(decider) == {0: (900, 6 * GIB)}
    for name, asked in (
        ("wide", share("0.101", "1.0", "0")),
        ("deep", share("0.1", "1.0", str(2 * GIB + 1))),
    ):
        decider.cluster.add(refused := sharing(name, asked))
        assert (await decider.ask(refused, "n1"))["FailedNodes"].keys() == {"n1"}
    await bound(decider, sharing("exact", share("0.1", "0.1", str(2 * GIB))))
    assert booked(decider) == {0: (1000, 8 * GIB)}


# contract S1.6
async def test_binding_writes_the_name_of_the_card_in_the_same_write() -> None:
    decider = following([sharing_node()], asked := sharing())
    assert await decider.bind(asked, "n1") == ""
    (binding,) = decider.cluster.bindings
    written = binding["annotations"]
    assert written == {"gas-ts": written["gas-ts"], "gas-container-cards": "card0", GPUID: written[GPUID]}
    assert binding["node"] == "n1"


# contract S1.6, S1.7
async def test_a_name_that_the_user_chose_is_kept() -> None:
    decider = following([sharing_node()])
    assert await bound(decider, sharing("first", share("0.2", gpuid="abcde"))) == ("card0", "abcde")
    assert await bound(decider, sharing("other", share("0.9"))) != ("card0", "abcde")
    assert await bound(decider, sharing("second", share("0.8", gpuid="abcde"))) == ("card0", "abcde")
    decider.cluster.add(third := sharing("third", share("0.1", gpuid="abcde")))
    assert "'abcde'" in (await decider.ask(third, "n1"))["FailedNodes"]["n1"]


# contract S1.7
async def test_the_same_name_on_another_node_is_another_card() -> None:
    decider = following([sharing_node("n1"), sharing_node("n2")])
    for number, node in enumerate(("n1", "n2", "n1", "n2")):
        await bound(decider, sharing(f"p{number}", share("0.5", gpuid="abcde")), node)
    assert {node: booked(decider, node) for node in ("n1", "n2")} == {"n1": {0: (1000, 0)}, "n2": {0: (1000, 0)}}


# contract S1.8
async def test_a_new_name_is_five_random_letters_and_ends_with_its_last_pod() -> None:
    decider = following([sharing_node(memory=[8 * GIB])])
    names = []
    for number in range(20):
        first, second = (sharing(f"{which}{number}", share("0.5")) for which in "ab")
        card, name = await bound(decider, first)
        assert await bound(decider, second) == (card, name)
        assert re.fullmatch("[a-z]{5}", name)
        names.append(name)
        decider.cluster.remove(f"default/a{number}")
        decider.cluster.end(f"default/b{number}")
    assert len(set(names)) == 20


# contract S1.8
async def test_a_name_that_the_user_chose_and_no_pod_has_needs_an_idle_card() -> None:
    decider = following([sharing_node()])
    await bound(decider, sharing("used", share("0.1")))
    assert await bound(decider, sharing("named", share("0.1", gpuid="fresh"))) == ("card1", "fresh")
    decider.cluster.add(late := sharing("late", share("0.1", gpuid="other")))
    (reason,) = (await decider.ask(late, "n1"))["FailedNodes"].values()
    assert reason == "no card idle for the new name 'other' has 100 millicores free"
    decider.cluster.remove("default/named")
    assert (await decider.ask(late, "n1"))["NodeNames"] == ["n1"]


async def test_a_new_name_is_none_that_a_card_of_the_node_has() -> None:
    drawn = iter(["taken", "taken", "fresh"])
    decider = following([sharing_node()])
    decider._new_name = lambda: next(drawn)
    assert await bound(decider, sharing("one", share("1.0"))) == ("card0", "taken")
    assert await bound(decider, sharing("two", share("1.0"))) == ("card1", "fresh")


async def test_a_reserved_card_has_its_name_before_the_pod_is_seen_bound() -> None:
    decider = following([sharing_node()])
    decider.cluster.on_change = lambda _type, _pod: None
    pods = [sharing(f"p{number}", share("0.2")) for number in range(3)]
    for each in pods:
        decider.cluster.add(each)
        assert await decider.bind(each, "n1") == ""
    assert len({annotations_of(decider, f"p{number}")[GPUID] for number in range(3)}) == 1
    assert booked_cards(decider, "p0") == "card0 on n1, reserved"


# contract S1.9
async def test_the_worked_sequence_with_its_forced_choices() -> None:
    decider = following([sharing_node()])
    drawn = iter(["zxcvb", "asdfg"])
    decider._new_name = lambda: next(drawn)
    assert await bound(decider, sharing("pod1", share("0.2"))) == ("card0", "zxcvb")
    assert await bound(decider, sharing("pod2", share("0.3", gpuid="qwert"))) == ("card1", "qwert")
    assert await bound(decider, sharing("pod3", share("0.4", gpuid="zxcvb"))) == ("card0", "zxcvb")
    assert booked(decider) == {0: (600, 0), 1: (300, 0)}
    decider.cluster.remove("default/pod2")
    assert decider.ledger.usage("n1").names == {Card(0): {"zxcvb"}}
    decider.cluster.add(full := sharing("full", share("0.5", gpuid="zxcvb")))
    assert (await decider.ask(full, "n1"))["FailedNodes"].keys() == {"n1"}
    assert await bound(decider, sharing("pod4", share("0.5"))) == ("card1", "asdfg")
    assert booked(decider) == {0: (600, 0), 1: (500, 0)}


# contract S1.10
async def test_the_best_node_is_the_one_on_whose_card_least_is_left() -> None:
    nodes = [sharing_node(name) for name in ("n1", "n2", "n3")]
    decider = following(nodes, options=Options(vocabularies=VOCABULARIES))
    scoring = Scoring(NodeScore.BALANCE, decider)
    decider.add(scoring.hooks)
    for name, node, request_ in (("a", "n1", "0.4"), ("b", "n2", "0.5"), ("c", "n2", "0.9"), ("d", "n3", "0.8")):
        await bound(decider, sharing(name, share(request_, gpuid=name)), node)
    expected = {"0.2": "n3", "0.3": "n2", "0.5": "n2", "0.6": "n1", "0.05": "n2"}
    for request_, best in expected.items():
        asked = sharing("asked", share(request_))
        names = ["n1", "n2", "n3"]
        args = FilterArgs(msgspec.convert(asked, AskedPod), names, None)
        scores = dict(at_once(scoring.prioritize(args)))
        passing = (await decider.ask(asked, *names))["NodeNames"]
        assert max(passing, key=lambda name: scores[name]) == best, (request_, scores)


# contract S1.10
async def test_a_card_is_used_even_if_its_pods_take_nothing_of_it() -> None:
    decider = following([sharing_node()])
    await bound(decider, sharing("first", share("0.1", gpuid="y")))
    assert (await bound(decider, sharing("zero", share("0", gpuid="z"))))[0] == "card1"
    decider.cluster.remove("default/first")
    assert (await bound(decider, sharing("next", share("0.2"))))[0] == "card1"


# contract S1.10, S1.18
def test_other_orders_can_be_chosen() -> None:
    for chosen, score in (({}, NodeScore.BEST_FIT_CARD), ({"gas-node-score": "spread"}, NodeScore.SPREAD)):
        texts = {"gas-card-order": "used-first"} | chosen
        need = VOCABULARIES.need(as_pod(sharing("p", share("0.1", **texts))), NO_OPTIONS)
        assert (need.order, need.node_score) == (UsedFirst(), score)


# contract S1.15
async def test_whole_cards_are_not_shared_and_the_other_way_round() -> None:
    node = sharing_node(driver="nvidia", nvidia_com__gpu=2)
    decider = following([node])
    whole = pod_json(asking(nvidia=1), name="whole", uid="whole")
    assert (await bound(decider, sharing("share", share("0.1"))))[0] == "card0"
    assert (await bound(decider, whole)) == ("card1", "")
    decider.cluster.add(late := pod_json(asking(nvidia=1), name="late", uid="late"))
    decider.cluster.add(large := sharing("large", share("0.95")))
    for each in (late, large):
        assert (await decider.ask(each, "n1"))["FailedNodes"].keys() == {"n1"}
    decider.cluster.remove("default/whole")
    assert (await decider.ask(late, "n1"))["NodeNames"] == ["n1"]


# contract S1.15
async def test_shares_and_pods_in_intels_words_are_booked_on_the_same_cards() -> None:
    node = sharing_node(
        labels={"gpu.intel.com/gpu-numbers": "0.1"},
        gpu_intel_com__i915=20,
        gpu_intel_com__millicores=2000,
        gpu_intel_com__memory_max=16 * GIB,
    )
    decider = following([node])
    intel = pod_json(container(i915=1, millicores=700, memory_max=GIB), name="intel", uid="intel")
    assert await bound(decider, intel) == ("card0", "")
    assert (await bound(decider, sharing("small", share("0.3"))))[0] == "card0"
    assert (await bound(decider, sharing("large", share("0.4"))))[0] == "card1"
    assert booked(decider)[0] == (1000, GIB)
    assert await bound(decider, pod_json(container(i915=1), name="count", uid="count")) == ("card0", "")
    assert (await bound(decider, sharing("named", share("0", gpuid=annotations_of(decider, "large")[GPUID]))))[
        0
    ] == "card1"


# contract S1.17
async def test_all_containers_of_a_pod_get_the_same_card_and_the_share_is_booked_once() -> None:
    containers = (with_card("a"), with_card("b"))
    init = (with_card("prepare"), with_card("side", always=True))
    decider = following([sharing_node()], asked := sharing("pod", share("0.6", "1", str(GIB)), *containers, init=init))
    assert await decider.bind(asked, "n1") == ""
    written = annotations_of(decider, "pod")
    assert written["gas-container-cards"] == "card0|card0"
    assert written["gas-init-container-cards"] == "card0|card0"
    assert booked(decider) == {0: (600, GIB)}


# contract S1.21
async def test_cards_of_one_node_may_be_of_different_models() -> None:
    decider = following([sharing_node(memory=[4 * GIB, 0, 24 * GIB])])
    assert (await bound(decider, sharing("large", share("0.1", "1", str(20 * GIB)))))[0] == "card2"
    assert (await bound(decider, sharing("zero", share("1.0", "1", "0"))))[0] == "card0"
    assert (await bound(decider, sharing("small", share("0.5", "1", str(4 * GIB)))))[0] == "card2"
    decider.cluster.add(late := sharing("late", share("0.5", "1", "1")))
    assert (await decider.ask(late, "n1"))["FailedNodes"].keys() == {"n1"}


# contract S1.21
async def test_a_container_may_have_its_share_of_several_cards() -> None:
    decider = following([sharing_node(memory=[8 * GIB] * 3)])
    await bound(decider, sharing("used", share("0.6")))
    several = sharing("several", share("0.5", "1", str(GIB)), with_card("main", 2), with_card("plain", None))
    assert await bound(decider, several) == ("card1,card2", "")
    assert annotations_of(decider, "several")["gas-container-cards"] == "card1,card2|"
    assert booked(decider) == {0: (600, 0), 1: (500, GIB), 2: (500, GIB)}


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (
            sharing("pod", share(gpuid="abcde"), with_card("main", 2)),
            "kubeshare/GPUID: expected a pod of one card, found a container with 2; remove the annotation or lower"
            " kubeshare/vgpu",
        ),
        (
            sharing("pod", share(), with_card("a"), with_card("b", 2)),
            "container 'b': expected kubeshare/vgpu 1, because other containers have a card as well, found 2; lower it,"
            " or leave the others without a card",
        ),
        (
            sharing("pod", share(), with_card("a", 0), with_card("b", None)),
            "kubeshare/vgpu: expected 1 or more in a container, found 0; raise it or remove it",
        ),
        (
            sharing("pod", share("0.5"), with_card("a", 1, millicores=400, memory_max=0)),
            "kubeshare/millicores: expected 500 in total, as annotation kubeshare/gpu_request says, found 400; remove"
            " the requests from the template, or correct one of the two",
        ),
        (
            sharing("pod", share("0.5", "1", "7"), with_card("a", 1, millicores=500, memory_max=8)),
            "kubeshare/memory.max: expected 7 in total, as annotation kubeshare/gpu_mem says, found 8; remove the"
            " requests from the template, or correct one of the two",
        ),
    ],
)
async def test_contradictions_in_a_pod_are_refused(asked: dict[str, Any], sentence: str) -> None:
    decider = following([sharing_node()], asked)
    assert (await decider.ask(asked, "n1"))["FailedNodes"] == {"n1": sentence}


# contract S1.22
async def test_annotations_alone_suffice_to_place_a_pod() -> None:
    plain = sharing("plain", share("0.7"), with_card("a", None), with_card("b", None))
    decider = following([sharing_node(memory=[8 * GIB])], plain, late := sharing("late", share("0.4")))
    assert (await decider.ask(plain, "n1"))["NodeNames"] == ["n1"]
    assert await decider.bind(plain, "n1") == ""
    assert annotations_of(decider, "plain")["gas-container-cards"] == "card0|card0"
    assert (await decider.ask(late, "n1"))["FailedNodes"].keys() == {"n1"}


FIXED = sharing("pod", share("0.5", "1", str(GIB)), with_card("main", 1, millicores=500, memory_max=GIB))


def restarted(before: DrivenDecider) -> DrivenDecider:
    after = DrivenDecider(before.cluster, options=OPTIONS)
    after.follow([decoded(sharing_node())])
    return after


# contract S1.23
async def test_editing_annotations_of_a_bound_pod_does_not_change_its_booking_and_is_reported() -> None:
    decider = following([sharing_node()])
    await bound(decider, FIXED)
    name = annotations_of(decider, "pod")[GPUID]
    edit(decider, "pod", {"kubeshare/gpu_request": "0.1", "kubeshare/gpu_mem": "0"})
    sentence = (
        "its annotations kubeshare/gpu_request and kubeshare/gpu_mem say other amounts than its containers request;"
        " those of the containers are booked"
    )
    assert decider.reports.mismatches == [("default/pod", sentence)]
    after = restarted(decider)
    for each in (decider, after):
        assert booked(each) == {0: (500, GIB)}
        assert each.ledger.usage("n1").names == {Card(0): {name}}
    assert after.reports.mismatches == [("default/pod", sentence)]
    edit(decider, "pod", {"kubeshare/gpu_request": "0.5", "kubeshare/gpu_mem": str(GIB)})
    assert after.pods.in_trouble == {}


# contract S1.23
@pytest.mark.parametrize("edited", ["0.1", "much", None])
async def test_without_the_resources_an_edit_counts_only_for_an_extender_that_starts_again(edited: str | None) -> None:
    decider = following([sharing_node()])
    await bound(decider, sharing("pod", share("0.5", "1", str(GIB))))
    edit(decider, "pod", {"kubeshare/gpu_request": edited})
    assert booked(decider) == {0: (500, GIB)}
    ((_, sentence),) = decider.reports.mismatches
    assert sentence == "its annotations were changed after binding; its booking is unchanged"
    after = restarted(decider)
    assert booked(after) == {0: (100 if edited == "0.1" else 0, GIB)}


# contract S1.23
@pytest.mark.parametrize("end", [Cluster.end, Cluster.remove])
async def test_removing_all_annotations_of_a_bound_pod_changes_nothing_until_it_ends(
    end: Callable[[Cluster, str], object],
) -> None:
    decider = following([sharing_node()])
    await bound(decider, sharing("pod", share("0.5"), with_card("main", None)))
    removed = {name: None for name in annotations_of(decider, "pod") if name.startswith("kubeshare/gpu_")}
    edit(decider, "pod", removed)
    assert not decider.asks_for_cards(decider.cluster.pod("default/pod"))
    assert decider.pods.needs(decider.cluster.pod("default/pod"))
    assert booked(decider) == {0: (500, 0)}
    assert decider.reports.mismatches[-1][1].startswith("its annotations that ask for cards were removed after binding")
    end(decider.cluster, "default/pod")
    assert booked(decider) == {}
    assert not decider.pods.needs(as_pod(sharing("pod", {}, with_card("main", None))))


# contract S1.23
@pytest.mark.parametrize(
    "cards",
    [
        pytest.param({"gas-container-cards": "card0", "gas-allocated-cards": "card1"}, id="receipt"),
        pytest.param({"gas-allocated-cards": "card9"}, id="receipt-about-a-card-that-may-come"),
    ],
)
async def test_annotations_that_an_ordinary_pod_gets_after_binding_book_nothing_and_are_reported(
    cards: dict[str, str],
) -> None:
    ordinary = sharing("pod", {}, with_card("main", None), node="n1")
    decider = following([sharing_node()], ordinary)
    edit(decider, "pod", share("1") | cards)
    decider.pods.node_changed("n1")
    after = restarted(decider)
    for each in (decider, after):
        assert booked(each) == {}
        assert differences(each.pods, each.ledger) == []
        sentence = "its cards are not booked: its annotations ask for them, but no container requests any"
        assert each.reports.mismatches == [("default/pod", sentence)]


# contract S1.23
@pytest.mark.parametrize("order", ["intel,vendor,kubeshare", "kubeshare,vendor,intel"])
async def test_a_bound_pod_of_other_words_stays_one_whatever_annotations_it_gets(order: str) -> None:
    options = Options(vocabularies=Vocabularies(parse_vocabularies(order)))
    node = sharing_node(driver="nvidia", nvidia_com__gpu=2)
    decider = following([node], pod := pod_json(asking(nvidia=1), uid="u"), options=options)
    assert await decider.bind(pod, "n1") == ""
    assert booked(decider) == {0: (1000, 0)}
    edit(decider, pod["metadata"]["name"], share("0"))
    assert decider.reports.mismatches == []
    after = DrivenDecider(decider.cluster, options=options)
    after.follow([decoded(node)])
    assert booked(decider) == booked(after) == {0: (1000, 0)}


async def test_a_waiting_pod_whose_annotations_are_removed_is_forgotten_until_it_has_them_again() -> None:
    decider = following([sharing_node()], pod := sharing("pod", share("0.5"), with_card("main", None)))
    assert "pod" in decider.pods.waiting
    edit(decider, "pod", dict.fromkeys(share()))
    assert decider.pods.waiting == {}
    edit(decider, "pod", share("0.5"))
    assert "pod" in decider.pods.waiting
    assert await decider.bind(pod, "n1") == ""
    assert booked(decider) == {0: (500, 0)}
    decider.cluster.end("default/pod")
    assert booked(decider) == {}


UUIDS = ("GPU-00000000-0000-0000-0000-000000000000", "GPU-11111111-1111-1111-1111-111111111111")
OLD = of_the_original("old", share("0.6", memory=str(GIB), gpuid="abcde"), UUIDS[1])


# contract S1.24
@pytest.mark.parametrize("before", [UUIDS, UUIDS[::-1], None], ids=["always", "since-its-cards-changed", "shown-later"])
async def test_a_pod_of_the_original_holds_the_card_that_its_variable_names(before: tuple[str, ...] | None) -> None:
    decider = following([sharing_node(uuids=before)] if before else [], OLD)
    decider.nodes.changed(decoded(sharing_node(uuids=UUIDS)))
    assert booked(decider) == {1: (600, GIB)}
    assert decider.pods.in_trouble == {}
    assert differences(decider.pods, decider.ledger) == []
    assert await bound(decider, sharing("whole", share("1.0"))) == ("card0", annotations_of(decider, "whole")[GPUID])
    too_large = sharing("large", share("0.5"))
    assert "n1" in (await decider.ask(too_large, "n1"))["FailedNodes"]
    assert await bound(decider, sharing("mate", share("0.4", gpuid="abcde"))) == ("card1", "abcde")
    decider.cluster.remove("default/old")
    assert booked(decider) == {0: (1000, 0), 1: (400, 0)}


# contract S1.24
@pytest.mark.parametrize("edited", [{"kubeshare/gpu_request": "0"}, {"gas-container-cards": "card0"}])
async def test_an_edit_of_a_pod_of_the_original_is_reported_and_moves_nothing(edited: dict[str, str]) -> None:
    decider = following([sharing_node(uuids=UUIDS)], OLD)
    edit(decider, "old", edited)
    assert booked(decider) == {1: (600, GIB)}
    assert [pod for pod, _ in decider.reports.mismatches] == ["default/old"]


# contract S1.24
@pytest.mark.parametrize("uuid", ["GPU-unknown", ",".join(UUIDS), "all", ""])
async def test_a_pod_of_the_original_on_no_known_card_is_reported(uuid: str) -> None:
    decider = following([sharing_node(uuids=UUIDS)], of_the_original("old", share("0.5", gpuid="abcde"), uuid))
    assert decider.reports.mismatches == [
        ("default/old", "it is bound without cards written on it, so its cards are not booked")
    ]
    assert booked(decider) == {}


# contract S1.24
async def test_the_variable_of_a_pod_that_requests_a_card_names_none() -> None:
    asking_too = of_the_original("old", share("0.5"), UUIDS[1])
    asking_too["spec"]["containers"].append(with_card("other"))
    decider = following([sharing_node(uuids=UUIDS)], asking_too)
    assert booked(decider) == {}


def test_of_a_bound_pod_an_amount_that_cannot_be_read_counts_as_0() -> None:
    edited = as_pod(sharing("p", dict.fromkeys(share("0.5"), "many")))
    assert VOCABULARIES.booked_need(edited).containers[0].per_card == (("vgpu", 1),)


def test_a_node_without_records_of_its_cards_has_none_for_shares() -> None:
    node = sharing_node()
    node["metadata"]["annotations"] = {}
    facts = VOCABULARIES.facts(decoded(node))
    assert facts.inventory.capacity == {}
    assert facts.problems == (
        "allocatable kubeshare/vgpu: expected a card in annotation gas-cards, found none; pods get no card of this node"
        " in the words of kubeshare",
    )


@pytest.mark.parametrize(("text", "problems"), [("many", 1), ("0", 0)])
def test_a_node_that_offers_no_card_has_none(text: str, problems: int) -> None:
    node = sharing_node()
    node["status"]["allocatable"][VGPU] = text
    facts = Vocabularies(parse_vocabularies("kubeshare")).facts(decoded(node))
    assert facts.inventory.capacity == {}
    assert len(facts.problems) == problems
    assert all(each.startswith("allocatable kubeshare/vgpu: ") for each in facts.problems)


def test_a_node_of_the_vocabulary_has_thousandths_and_the_memory_of_each_card() -> None:
    facts = VOCABULARIES.facts(decoded(sharing_node(memory=[GIB, 3 * GIB, 0])))
    assert facts.problems == ()
    card = {"vgpu": 1000, "millicores": 1000}
    assert list(facts.inventory.capacity.values()) == [card | {MEMORY_MAX: GIB}, card | {MEMORY_MAX: 3 * GIB}, card]


# contract S1.20
def test_everything_that_the_plugin_writes_is_its_own_and_so_is_removed_when_it_is_uninstalled() -> None:
    spoken = Vocabularies(parse_vocabularies("kubeshare"))
    written = spoken.describe([gpu(0), gpu(1, healthy=False)], DeviceOptions())
    assert written.resources == {"kubeshare/millicores": 1000, "kubeshare/memory.max": gpu(0).memory}
    assert written.labels == {}
    assert all(spoken.owns_resource(name) for name in written.resources)
    assert not spoken.owns_resource(VGPU)  # kubelet's
