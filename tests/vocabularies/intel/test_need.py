"""Reading a pod's need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gas.objects.stored import Container, ObjectMeta, Pod, PodSpec, ResourceRequirements
from gas.placement.inventory import NO_COMPANY, Company
from gas.placement.need import ContainerNeed, PodNeed, Role, Scope
from gas.placement.order import DEFAULT_ORDER, NATURAL, BestFit, LeastUsed
from gas.values.amounts import MAX_AMOUNT
from gas.values.cards import Card
from gas.vocabularies.intel.need import read_booked_need, read_need
from gas.vocabularies.known import DEFAULT
from gas.vocabularies.pod_parts import need_facts
from gas.vocabularies.protocol import BadNeed, NeedOptions
from tests.builders import container, facts, pod

COUNT_RESOURCES = frozenset({"i915", "xe"})


def need(*containers: Mapping[str, Any], allowlist: bool = False, denylist: bool = False, **fields: Any) -> PodNeed:
    return read_need(facts(*containers, **fields), NeedOptions(allowlist=allowlist, denylist=denylist))


def asks(requests: Mapping[str, int | str], name: str = "main") -> dict[str, Any]:
    return container(name, always=False, **requests)


def refusal(*containers: Mapping[str, Any], **fields: Any) -> str:
    with pytest.raises(BadNeed) as refused:
        need(*containers, **fields)
    return str(refused.value)


# contract E1.2, E1.4, E1.5, E5.1, E5.2, E5.3
@pytest.mark.parametrize(
    ("requests", "count", "per_card"),
    [
        pytest.param({"i915": 1}, 1, {"i915": 1}, id="one-card"),
        pytest.param({"xe": 2}, 2, {"xe": 1}, id="the-count-resource-is-one-for-each-card"),
        pytest.param(
            {"i915": 2, "millicores": 1000, "memory_max": "10G"},
            2,
            {"i915": 1, "millicores": 500, "memory.max": 5 * 10**9},
            id="divided-by-the-count",
        ),
        pytest.param({"i915": 2, "millicores": 3}, 2, {"i915": 1, "millicores": 2}, id="rounded-up"),
        pytest.param({"i915": 3, "tiles": 6}, 3, {"i915": 1, "tiles": 2}, id="tiles-on-each-card"),
        pytest.param({"i915": 1, "millicores": 0}, 1, {"i915": 1}, id="zero-of-a-resource"),
        pytest.param({"i915": "2000m"}, 2, {"i915": 1}, id="quantity"),
        pytest.param({"i915": 1, "xe": 0}, 1, {"i915": 1}, id="zero-of-the-other-kind"),
        pytest.param({"i915": 1, "example": 7}, 1, {"i915": 1, "example": 7}, id="any-prefixed-resource"),
        pytest.param(
            {"i915": 1, "i915_monitoring": 1, "xe_monitoring": 1, "monitoring": 1},
            1,
            {"i915": 1},
            id="monitoring-is-dropped",
        ),
        pytest.param({"i915": 1, "monitoring": "x"}, 1, {"i915": 1}, id="monitoring-is-never-read"),
        pytest.param({"monitoring": 1}, 0, {}, id="only-monitoring"),
        pytest.param({"millicores": 500}, 0, {}, id="without-a-count-no-cards"),
        pytest.param({"i915": 0, "millicores": 500}, 0, {}, id="count-of-0"),
        pytest.param({}, 0, {}, id="no-requests"),
        pytest.param(
            {"i915": MAX_AMOUNT, "tiles": 1}, MAX_AMOUNT, {"i915": 1, "tiles": 1}, id="very-many-cards-cost-nothing"
        ),
    ],
)
def test_a_containers_need(requests: Mapping[str, int | str], count: int, per_card: Mapping[str, int]) -> None:
    read = need(asks(requests))
    containers = (ContainerNeed("main", count, tuple(sorted(per_card.items()))),)
    assert read == PodNeed(containers=containers, count_resources=COUNT_RESOURCES)


# contract E1.1
def test_resources_with_other_prefixes_are_ignored() -> None:
    requests = {"cpu": "1.5", "nvidia.com/gpu": "1", "xgpu.intel.com/i915": "1", "gpu.intel.com/i915": "1"}
    plain = Container(name="main", resources=ResourceRequirements(requests=dict(requests)))
    read = read_need(need_facts(Pod(metadata=ObjectMeta(), spec=PodSpec(containers=[plain]))), NeedOptions())
    assert read.containers == (ContainerNeed("main", 1, (("i915", 1),)),)


def test_containers_come_in_the_order_in_which_kubelet_starts_them() -> None:
    read = need(
        container("app", i915=1),
        container("plain"),
        init=(container("first", i915=2), container("side", always=True, i915=1)),
    )
    assert [(each.name, each.role, each.count) for each in read.containers] == [
        ("first", Role.INIT, 2),
        ("side", Role.SIDECAR, 1),
        ("app", Role.APP, 1),
        ("plain", Role.APP, 0),
    ]


# contract E5.4
@pytest.mark.parametrize(
    ("requests", "sentence"),
    [
        ({"i915": "1.5"}, "'gpu.intel.com/i915': expected a whole number, found '1.5'"),
        (
            {"i915": 1, "millicores": "-1"},
            "'gpu.intel.com/millicores': expected a number that is not negative, found '-1'",
        ),
        ({"i915": "1e30"}, "'gpu.intel.com/i915': expected at most 2^63-1, found '1e30'"),
        ({"i915": ""}, "'gpu.intel.com/i915': expected a quantity such as 5, 500k or 5Gi, found ''"),
        ({"millicores": "9" * 20}, f"'gpu.intel.com/millicores': expected at most 2^63-1, found '{'9' * 20}'"),
    ],
)
def test_an_unreadable_amount_is_refused_by_name(requests: Mapping[str, int | str], sentence: str) -> None:
    assert refusal(asks(requests)) == f"container 'main', {sentence}"
    assert refusal(container("app"), init=(asks(requests),)) == f"container 'main', {sentence}"


# contract E5.4
def test_sums_over_2_to_the_63_are_refused() -> None:
    half = 2**62
    assert (
        refusal(container("a", i915=1, millicores=half), container("b", i915=1, millicores=half))
        == "the pod's containers ask for more than 2^63-1 of 'gpu.intel.com/millicores' in total; lower the requests"
    )
    need(container("a", i915=1, millicores=half), container("b", i915=1, millicores=half - 1))


# contract E1.3
def test_i915_and_xe_in_one_pod_are_refused() -> None:
    rule = "use only one of them in the whole pod"
    one = f"container 'a' asks for both gpu.intel.com/i915 and gpu.intel.com/xe; {rule}"
    two = f"container 'a' asks for gpu.intel.com/i915 and container 'b' for gpu.intel.com/xe; {rule}"
    assert refusal(container("a", i915=1, xe=1)) == one
    assert refusal(container("a", i915=1), container("b", xe=1)) == two
    assert refusal(container("b", xe=1), container("a", i915=1)) == two
    assert refusal(container("a", i915=1), init=(container("b", xe=1),)) == two


def test_a_resource_without_a_name_is_refused() -> None:
    nameless = {"name": "main", "resources": {"requests": {"gpu.intel.com/i915": 1, "gpu.intel.com/": 1}}}
    assert refusal(nameless) == "container 'main': expected the name of a resource after 'gpu.intel.com/', found none"
    assert read_booked_need(facts(nameless)).containers[0].count == 1


def test_a_pod_without_containers_is_refused() -> None:
    assert refusal() == "the pod has no containers"


ONE_CARD = container("main", i915=1)


# contract E6.6
@pytest.mark.parametrize(
    ("text", "cards"),
    [
        pytest.param("card0", {0}, id="one"),
        pytest.param("card0,card10", {0, 10}, id="two"),
        pytest.param(" card0 , card1 ", {0, 1}, id="blanks"),
        pytest.param("card0,card0", {0}, id="twice"),
        pytest.param("gpu0,card1,,card01", {1}, id="entries-that-are-not-card-names-are-ignored"),
        pytest.param("", set[int](), id="empty"),
        pytest.param("none", set[int](), id="no-card-at-all"),
    ],
)
def test_allow_and_deny_lists_count_only_with_their_flags(text: str, cards: set[int]) -> None:
    named = frozenset(map(Card, cards))
    annotations = {"gas-allow": text, "gas-deny": text}
    off = need(ONE_CARD, annotations=annotations)
    assert (off.allowed, off.denied) == (None, frozenset())
    allow = need(ONE_CARD, annotations=annotations, allowlist=True)
    assert only_cards(allow.allowed) == named
    assert allow.denied == frozenset()
    deny = need(ONE_CARD, annotations=annotations, denylist=True)
    assert deny.allowed is None
    assert only_cards(deny.denied) == named


def only_cards(named: Iterable[Card | str] | None) -> frozenset[Card]:
    return frozenset(name for name in named or () if isinstance(name, Card))


def test_allow_and_deny_lists_name_models_and_pci_addresses_too() -> None:
    annotations = {"gas-allow": "Data Center GPU Flex 170, 4D:00.0", "gas-deny": "card3,0x56C1,"}
    read = need(ONE_CARD, annotations=annotations, allowlist=True, denylist=True)
    assert read.allowed == frozenset[Card | str](["data center gpu flex 170", "0000:4d:00.0"])
    assert read.denied == {Card(3), "0x56c1"}


def test_without_the_annotations_every_card_may_be_used() -> None:
    read = need(ONE_CARD, allowlist=True, denylist=True)
    assert (read.allowed, read.denied) == (None, frozenset())


# contract E7.8
@pytest.mark.parametrize("text", ["", "false", "x"])
def test_any_value_asks_for_one_numa_group(text: str) -> None:
    assert need(ONE_CARD, annotations={"gas-allocate-single-numa": text}).scope is Scope.NUMA
    assert need(ONE_CARD).scope is Scope.ANYWHERE


A, B, C = (container(name, i915=1) for name in "abc")
X = "x" * 38


@pytest.mark.parametrize(
    ("text", "positions"),
    [
        pytest.param("a,b", {1, 2}, id="two-of-three"),
        pytest.param(" c , a ", {1, 3}, id="blanks-and-any-order"),
        pytest.param("a,b,c", {1, 2, 3}, id="all"),
    ],
)
def test_same_gpu_gives_positions_among_all_containers(text: str, positions: set[int]) -> None:
    read = need(A, B, C, init=(container("first"),), annotations={"gas-same-gpu": text})
    assert read.same_card == positions


def test_same_gpu_accepts_xe() -> None:
    read = need(container("a", xe=1), container("b", xe=1), annotations={"gas-same-gpu": "a,b"})
    assert read.same_card == {0, 1}


# contract E7.1, E7.2
@pytest.mark.parametrize(
    ("text", "other", "sentence"),
    [
        ("a", B, "expected at least two containers of the pod, found 'a'"),
        ("", B, "expected at least two containers of the pod, found ''"),
        ("a,b,a", B, "expected every container once, found 'a,b,a'"),
        ("a,x,b,y", B, "'x', 'y' are not app containers of the pod; it has 'a', 'b'"),
        ("a,", B, "'' is not an app container of the pod; it has 'a', 'b'"),
        (f"{X}1,{X}2,{X}3", container(X), f"'{X}1', '{X}2', '{X}3' are not app containers of the pod"),
        ("a,first", B, "'first' is not an app container of the pod; it has 'a', 'b'"),
        ("a,b", container("b", i915=2), "container 'b' asks for 2 cards, expected exactly 1"),
        ("a,b", container("b"), "container 'b' asks for 0 cards, expected exactly 1"),
        (
            "a,b",
            container("b", i915=1, tiles=1),
            "container 'b' asks for 1 tile(s), which cannot be combined with a shared card; "
            "remove the tiles request or take the container out of gas-same-gpu",
        ),
        *(
            pytest.param(
                "a,b",
                asks({"i915": 1, name: 1}, name="b"),
                "container 'b' asks for monitoring, which cannot be combined with a shared card; "
                "remove the monitoring request or take the container out of gas-same-gpu",
                id=name,
            )
            for name in ("i915_monitoring", "xe_monitoring", "monitoring")
        ),
    ],
)
def test_same_gpu_is_refused(text: str, other: Mapping[str, Any], sentence: str) -> None:
    init = (container("first", i915=1),)
    assert refusal(A, other, init=init, annotations={"gas-same-gpu": text}) == f"gas-same-gpu: {sentence}"


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(container("b", i915=1, tiles=0), id="no-tiles"),
        pytest.param(container("b", i915=1, monitoring=0), id="no-monitoring"),
    ],
)
def test_same_gpu_ignores_requests_of_0(other: Mapping[str, Any]) -> None:
    assert need(A, other, annotations={"gas-same-gpu": "a,b"}).same_card == {0, 1}


# contract E7.4
def test_same_gpu_cannot_be_combined_with_linked_cards() -> None:
    pair = container("a", i915=2, tiles=2)
    annotations = {"gas-same-gpu": "a,b", "gas-allocate-xelink": ""}
    assert refusal(pair, B | pair, annotations=annotations) == (
        "gas-same-gpu cannot be combined with gas-allocate-xelink; use only one of them"
    )


# contract E7.6
@pytest.mark.parametrize("text", ["", "false", "x"])
def test_any_value_asks_for_linked_cards(text: str) -> None:
    read = need(
        container("main", i915=4, tiles=4),
        container("plain", monitoring=1),
        annotations={"gas-allocate-xelink": text},
    )
    assert read.linked
    assert read.containers[0] == ContainerNeed("main", 4, (("i915", 1), ("tiles", 1)))


# contract E7.6
@pytest.mark.parametrize(
    ("requests", "sentence"),
    [
        ({"i915": 1, "tiles": 1}, "asks for 1 card(s), expected an even number"),
        ({"i915": 2}, "asks for 0 tile(s), expected as many as cards, 2"),
        ({"i915": 2, "tiles": 1}, "asks for 1 tile(s), expected as many as cards, 2"),
        ({"xe": 2, "tiles": 4}, "asks for 4 tile(s), expected as many as cards, 2"),
        *(
            pytest.param(
                {"i915": 2, "tiles": 2, name: amount},
                "asks for monitoring, which cannot be combined with linked cards",
                id=f"{name}-{amount}",
            )
            for name, amount in (("i915_monitoring", 1), ("xe_monitoring", "many"), ("monitoring", 1))
        ),
    ],
)
def test_linked_cards_are_refused(requests: Mapping[str, Any], sentence: str) -> None:
    annotations = {"gas-allocate-xelink": "true"}
    expected = f"gas-allocate-xelink: container 'main' {sentence}"
    assert refusal(asks(requests), annotations=annotations) == expected
    init = (asks(requests),)
    assert refusal(container("app"), init=init, annotations=annotations) == expected


def test_the_order_of_cards_is_the_administrators_unless_the_pod_states_one() -> None:
    spread = NeedOptions(card_order=LeastUsed("millicores"))
    assert need(ONE_CARD).order == DEFAULT_ORDER != NATURAL
    assert read_need(facts(ONE_CARD), spread).order == LeastUsed("millicores")
    assert need(ONE_CARD, annotations={"gas-card-order": "best-fit=memory.max"}).order == BestFit("memory.max")
    assert read_need(facts(ONE_CARD, annotations={"gas-card-order": "natural"}), spread).order == NATURAL


def test_another_text_for_the_order_of_cards_is_refused() -> None:
    sentence = (
        "gas-card-order: expected natural|least-used[=RESOURCE]|most-used|best-fit=RESOURCE"
        "|fewest-containers|used-first, with a RESOURCE such as millicores, found 'best-fit'"
    )
    assert refusal(ONE_CARD, annotations={"gas-card-order": "best-fit"}) == sentence


@pytest.mark.parametrize(
    "annotation",
    [
        "gas-card-order",
        "gas-card-near",
        "gas-card-affinity",
        "gas-card-anti-affinity",
        "gas-card-exclusion",
        "gas-card-name",
        "gas-node-score",
    ],
)
def test_an_empty_annotation_means_the_same_as_none(annotation: str) -> None:
    """As templates write it for a value that is not set."""
    options = NeedOptions(card_order=LeastUsed("millicores"))
    assert read_need(facts(ONE_CARD, annotations={annotation: ""}), options) == read_need(facts(ONE_CARD), options)


def test_nearness_is_off_unless_the_pod_asks_for_it() -> None:
    assert not need(ONE_CARD).near
    assert need(ONE_CARD, annotations={"gas-card-near": "true"}).near
    assert not need(ONE_CARD, annotations={"gas-card-near": "false"}).near
    assert refusal(ONE_CARD, annotations={"gas-card-near": "no"}) == "gas-card-near: expected true or false, found 'no'"


COMPANY = {"gas-card-affinity": "red", "gas-card-anti-affinity": "Green_1", "gas-card-exclusion": "b.l-ue"}


def test_company_labels() -> None:
    assert need(ONE_CARD).company == NO_COMPANY
    assert need(ONE_CARD, annotations=COMPANY).company == Company(
        affinity="red", anti_affinity="Green_1", exclusion="b.l-ue"
    )
    assert need(ONE_CARD, annotations=dict.fromkeys(COMPANY, "")).company == NO_COMPANY


NAMED = {"gas-card-name": "train"}


def test_a_named_card_serves_the_whole_pod() -> None:
    read = need(ONE_CARD, container("other"), init=(container("init", xe=0, i915=1),), annotations=NAMED)
    assert (read.named, read.scope) == ("train", Scope.CARD)
    unnamed = need(container(i915=2), annotations={"gas-card-name": ""})
    assert (unnamed.named, unnamed.scope) == ("", Scope.ANYWHERE)


# contract E7.8
def test_a_named_card_can_be_asked_for_from_a_numa_group() -> None:
    read = need(ONE_CARD, annotations=NAMED | {"gas-allocate-single-numa": ""})
    assert (read.named, read.scope) == ("train", Scope.NUMA_CARD)


def test_a_pod_of_several_cards_cannot_name_one() -> None:
    sentence = (
        "gas-card-name: container 'two' asks for 2 cards, expected at most 1, because all containers of the pod get"
        " the named card"
    )
    assert refusal(ONE_CARD, container("two", i915=2), annotations=NAMED) == sentence
    assert refusal(ONE_CARD, init=(container("two", i915=2),), annotations=NAMED) == sentence


@pytest.mark.parametrize(
    ("name", "card"),
    [
        ("card0", Card(0)),
        ("card12", Card(12)),
        ("0000:4d:00.0", "0000:4d:00.0"),
        ("4D:00.7", "0000:4d:00.7"),
        ("00010000:4d:00.0", "00010000:4d:00.0"),
    ],
)
def test_a_number_or_an_address_in_place_of_a_name_chooses_that_card(name: str, card: Card | str) -> None:
    chosen = need(ONE_CARD, container("two", i915=1), annotations={"gas-card-name": name}, allowlist=True)
    assert (chosen.allowed, chosen.scope, chosen.named) == (frozenset((card,)), Scope.CARD, "")
    within_a_group = {"gas-card-name": name, "gas-allocate-single-numa": ""}
    assert need(ONE_CARD, annotations=within_a_group, allowlist=True).scope is Scope.NUMA_CARD
    assert refusal(container(i915=2), annotations={"gas-card-name": name}, allowlist=True).startswith(
        "gas-card-name: container 'main' asks for 2 cards, expected at most 1"
    )


@pytest.mark.parametrize("name", ["card0", "4d:00.0"])
def test_only_pods_that_may_choose_cards_may_choose_one_by_its_name(name: str) -> None:
    assert refusal(ONE_CARD, annotations={"gas-card-name": name}) == (
        f"gas-card-name: '{name}' chooses a card, which pods may do only if the extender runs with --enableAllowlist"
    )
    assert refusal(ONE_CARD, annotations={"gas-card-name": name, "gas-allow": "card1"}, allowlist=True) == (
        f"gas-card-name: '{name}' chooses a card, and gas-allow chooses cards as well; remove one of them"
    )


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("Card1", "is not the number of a card; expected a form such as card1"),
        ("card01", "is not the number of a card; expected a form such as card1"),
        ("0x56c0", "is a model, not one card; expected a name of your own or one card; use gas-allow"),
        ("0xE20B", "is a model, not one card; expected a name of your own or one card; use gas-allow"),
    ],
)
def test_a_name_that_seems_to_choose_a_card_and_does_not_is_refused(name: str, sentence: str) -> None:
    assert refusal(ONE_CARD, annotations={"gas-card-name": name}, allowlist=True) == (
        f"gas-card-name: '{name}' {sentence}"
    )


def test_a_card_that_a_bound_pod_chose_has_no_name() -> None:
    for name in ("card0", "4d:00.0"):
        booked = read_booked_need(facts(ONE_CARD, annotations={"gas-card-name": name}))
        assert (booked.named, booked.scope) == ("", Scope.ANYWHERE)


@pytest.mark.parametrize("name", ["card", "card-1", "card1a", "my.card1", "discard1", "4d"])
def test_a_name_that_only_resembles_a_card_is_a_name(name: str) -> None:
    assert need(ONE_CARD, annotations={"gas-card-name": name}).named == name


def test_the_name_of_a_bound_pods_card_counts_if_it_is_valid() -> None:
    assert read_booked_need(facts(ONE_CARD, annotations=NAMED)).named == "train"
    assert read_booked_need(facts(ONE_CARD, annotations={"gas-card-name": "two words"})).named == ""
    assert read_booked_need(facts(container(i915=2), annotations=NAMED)).named == ""


@pytest.mark.parametrize("name", [*COMPANY, *NAMED])
@pytest.mark.parametrize("text", ["two words", "-a", "a.", " ", "a,b", "é", "a" * 64, "a\n"])
def test_company_that_is_not_the_value_of_a_label_is_refused(name: str, text: str) -> None:
    assert refusal(ONE_CARD, annotations={name: text}).startswith(
        f"{name}: expected at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends, found '"
    )
    assert need(ONE_CARD, annotations={name: "a" * 63}) != need(ONE_CARD)


def test_the_company_of_a_bound_pod_counts_as_far_as_it_is_valid() -> None:
    bound = pod(ONE_CARD, annotations=COMPANY | {"gas-card-exclusion": "two words"}, node="node-1")
    assert read_booked_need(need_facts(bound)).company == Company(affinity="red", anti_affinity="Green_1")
    assert COMPANY.keys() <= DEFAULT.metadata


def test_annotations_of_a_pod_without_cards_are_ignored() -> None:
    texts = dict.fromkeys(("gas-same-gpu", "gas-card-order", "gas-card-near", "gas-card-affinity"), "x y")
    annotations = {**texts, "gas-allocate-xelink": "", "gas-allocate-single-numa": "", "gas-allow": ""}
    read = need(container("main", millicores=1), annotations=annotations, allowlist=True)
    assert read == PodNeed(containers=(ContainerNeed("main"),), count_resources=COUNT_RESOURCES)


def test_a_bound_pods_need_does_not_depend_on_its_annotations() -> None:
    annotations = {
        "gas-same-gpu": "x",
        "gas-allocate-xelink": "",
        "gas-allocate-single-numa": "",
        "gas-card-order": "used-first",
        "gas-card-near": "true",
    }
    bound = pod(ONE_CARD, annotations=annotations, node="node-1")
    assert read_booked_need(need_facts(bound)) == need(ONE_CARD)


@pytest.mark.parametrize(
    ("requests", "count", "per_card"),
    [
        pytest.param({"i915": 1, "xe": 2, "millicores": 500}, 2, {"i915": 1, "millicores": 250, "xe": 1}, id="more-xe"),
        pytest.param(
            {"i915": 2, "xe": 1, "millicores": 500}, 1, {"i915": 2, "millicores": 500, "xe": 1}, id="more-i915"
        ),
        pytest.param({"i915": 2, "xe": 0, "millicores": 500}, 2, {"i915": 1, "millicores": 250}, id="no-xe"),
    ],
)
def test_xe_counts_for_a_bound_container_that_asks_for_both_kinds(
    requests: Mapping[str, int], count: int, per_card: Mapping[str, int]
) -> None:
    expected = ContainerNeed("main", count, tuple(sorted(per_card.items())))
    assert read_booked_need(facts(asks(requests), node="node-1")).containers == (expected,)


def test_a_bound_pod_may_have_containers_of_both_kinds() -> None:
    bound = pod(container("a", i915=2), container("b", xe=1), node="node-1")
    assert read_booked_need(need_facts(bound)).containers == (
        ContainerNeed("a", 2, (("i915", 1),)),
        ContainerNeed("b", 1, (("xe", 1),)),
    )


def test_an_unreadable_amount_of_a_bound_pod_is_refused() -> None:
    with pytest.raises(BadNeed, match="expected a whole number"):
        read_booked_need(facts(container(i915="1.5")))


@pytest.mark.parametrize(
    "containers",
    [
        pytest.param([container(i915=2, foo="20E", millicores=3)], id="beyond-2^63"),
        pytest.param([container(i915=2, foo="much", millicores=3)], id="not-a-number"),
        pytest.param([container(i915=2, foo="5E", millicores=3), container("other", foo="5E")], id="only-together"),
    ],
)
def test_an_amount_of_a_bound_pod_that_no_card_can_have_is_left_out(containers: list[dict[str, Any]]) -> None:
    """Its node does not have that resource, or kubelet would not have started it. The pod has its card anyway."""
    need = read_booked_need(facts(*containers))
    assert need.containers[0] == ContainerNeed("main", 2, (("i915", 1), ("millicores", 2)))
    with pytest.raises(BadNeed):
        read_need(facts(*containers), NeedOptions())


def test_too_many_cards_are_refused_for_a_bound_pod_too() -> None:
    with pytest.raises(BadNeed, match=r"more than 2\^63-1 of 'gpu.intel.com/i915'"):
        read_booked_need(facts(container(i915="5E"), container("other", i915="5E")))


def sentence_about(hostile: Pod) -> str:
    """Return the sentence that refuses the pod, or an empty text."""
    try:
        read = read_need(need_facts(hostile), NeedOptions(allowlist=True, denylist=True))
    except BadNeed as bad:
        return str(bad)
    containers = [*(hostile.spec.init_containers or ()), *(hostile.spec.containers or ())]
    assert [each.name for each in read.containers] == [each.name for each in containers]
    assert hash(read) == hash(read_need(need_facts(hostile), NeedOptions(allowlist=True, denylist=True)))
    return ""


HUGE = "\x00\x1b" * 131_072


@pytest.mark.parametrize(
    "annotation",
    [
        "gas-same-gpu",
        "gas-allow",
        "gas-deny",
        "gas-allocate-xelink",
        "gas-allocate-single-numa",
        "gas-card-order",
        "gas-card-near",
        "gas-card-affinity",
        "gas-card-anti-affinity",
        "gas-card-exclusion",
        "gas-card-name",
    ],
)
@pytest.mark.parametrize("text", [pytest.param(HUGE, id="control"), pytest.param("," * 262_144, id="commas")])
def test_hostile_annotations_are_refused_in_one_short_sentence_or_harmless(annotation: str, text: str) -> None:
    sentence = sentence_about(pod(ONE_CARD, annotations={annotation: text}))
    assert len(sentence) <= 200
    assert sentence.isprintable()


TEXT = st.text(st.characters(), max_size=60)
QUANTITY = st.sampled_from(["1", "2", "0"]) | TEXT | st.integers() | st.floats()
CONTAINERS = st.lists(
    st.builds(
        Container,
        name=st.sampled_from(["a", "b", "x" * 300]) | TEXT,
        restart_policy=st.none() | st.just("Always"),
        resources=st.none()
        | st.builds(
            ResourceRequirements,
            requests=st.none()
            | st.dictionaries(
                st.sampled_from(["i915", "xe", "tiles", "monitoring"]).map("gpu.intel.com/".__add__)
                | TEXT.map("gpu.intel.com/".__add__),
                QUANTITY,
                max_size=3,
            ),
        ),
    ),
    max_size=3,
)
ANNOTATIONS = st.dictionaries(
    st.sampled_from(["gas-allow", "gas-deny", "gas-same-gpu", "gas-allocate-xelink", "gas-allocate-single-numa"]),
    st.sampled_from(["a,b", "card0"]) | TEXT,
)


@given(CONTAINERS, CONTAINERS, ANNOTATIONS)
def test_any_pod_has_a_need_or_is_refused_in_one_short_sentence(
    containers: list[Container], init: list[Container], annotations: dict[str, str]
) -> None:
    spec = PodSpec(containers=containers, init_containers=init)
    sentence = sentence_about(Pod(metadata=ObjectMeta(annotations=annotations), spec=spec))
    assert len(sentence) <= 200
    assert sentence.isprintable()
