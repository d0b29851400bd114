from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gas.extender.verdicts import at_once
from gas.objects.json_patch import Operation, Patch
from gas.objects.stored import NewPod, Pod
from gas.placement.inventory import UNUSED
from gas.placement.order import LeastUsed
from gas.placement.place import place
from gas.placement.refusal import Refusal
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.intel import names
from gas.vocabularies.intel.vocabulary import INTEL, Intel
from gas.vocabularies.known import DEFAULT, KNOWN
from gas.vocabularies.pod_checks import (
    LONGEST_WARNING,
    MOST_KINDS,
    MOST_SEARCHED_CONTAINERS,
    Findings,
    PodChecks,
    counted,
)
from gas.vocabularies.protocol import NeedOptions, NodeFacts
from tests.builders import container, node, pod, pod_json, requesting
from tests.extender.admission.reviews import apply, as_json
from tests.made_up import MADE_UP

CHECKS = PodChecks(DEFAULT, NeedOptions())
BOTH = "container 'main' asks for both gpu.intel.com/i915 and gpu.intel.com/xe; use only one of them in the whole pod"
NO_CARD = (
    "container 'main' asks for 'gpu.intel.com/millicores' but for no card; add gpu.intel.com/i915 or gpu.intel.com/xe"
    " to the container, or remove the request"
)
UNKNOWN = "annotation 'gas-same-gpus' is not known and has no effect; did you mean gas-same-gpu?"


@pytest.mark.parametrize(
    ("checked", "findings"),
    [
        pytest.param(pod(container(i915=1)), Findings(), id="fine"),
        pytest.param(pod(container(), annotations={"gas-same-gpus": "a"}), Findings(), id="no-gpu"),
        pytest.param(pod(container(i915=1, xe=1)), Findings(BOTH), id="bad-need"),
        pytest.param(pod(container(millicores=1)), Findings("", (NO_CARD,)), id="fault"),
        pytest.param(
            pod(container(i915=1), annotations={"gas-same-gpus": "a"}), Findings("", (), (UNKNOWN,)), id="warning"
        ),
        pytest.param(
            pod(container("a", i915="1.5"), container(millicores=1), annotations={"gas-same-gpus": "a"}),
            Findings(
                "container 'a', 'gpu.intel.com/i915': expected a whole number, found '1.5'", (NO_CARD,), (UNKNOWN,)
            ),
            id="all-at-once",
        ),
        pytest.param(
            pod(container(i915=1), node="n1"),
            Findings(
                "",
                (),
                ("the pod names its node itself, 'n1', so no cards are chosen for it; use a nodeSelector instead",),
            ),
            id="names-its-node",
        ),
        pytest.param(pod(container(monitoring=1), node="n1"), Findings(), id="monitoring-on-its-node"),
    ],
)
def test_a_pod_is_checked(checked: Pod, findings: Findings) -> None:
    assert CHECKS.pod(checked) == findings


PREFERENCES = {
    "gas-card-order": "sideways",
    "gas-node-score": "best",
}
WRONG: dict[str, tuple[list[dict[str, Any]], dict[str, str], dict[str, str]]] = {
    "intel": (
        [{"gpu.intel.com/i915": "1.5", "gpu.intel.com/millicores": "x"}, {"gpu.intel.com/i915": -1}],
        {},
        PREFERENCES
        | {"gas-card-near": "maybe", "gas-card-affinity": "a b", "gas-card-exclusion": "-", "gas-same-gpu": "a"},
    ),
    "aliyun": ([{"aliyun.com/gpu-mem": "1.5"}, {"aliyun.com/gpu-mem": -1}], {}, PREFERENCES),
    "koordinator": (
        [{"koordinator.sh/gpu-core": "50"}],
        {},
        PREFERENCES | {"scheduling.koordinator.sh/device-allocate-hint": "["},
    ),
    "kubeshare": (
        [{"kubeshare/vgpu": "1.5"}],
        dict.fromkeys(("kubeshare/gpu_request", "kubeshare/gpu_limit", "kubeshare/gpu_mem"), "1"),
        PREFERENCES | {"kubeshare/gpu_request": "x", "kubeshare/gpu_limit": "y", "kubeshare/gpu_mem": "z"},
    ),
    "vendor": ([{"nvidia.com/gpu": "1.5"}, {"nvidia.com/gpu": -1}], {}, PREFERENCES | {"gas-card-near": "maybe"}),
}


@pytest.mark.parametrize("words", WRONG)
def test_a_pod_with_many_faults_is_refused_once_for_all_of_them(words: str) -> None:
    """Each fault is one of the pod that has no other."""
    checks = PodChecks(Vocabularies(KNOWN), NeedOptions())
    requests, needed, wrong = WRONG[words]
    good = [dict.fromkeys(each, 1) for each in requests]

    def found(asked: list[dict[str, Any]], annotations: dict[str, str]) -> tuple[str, ...]:
        containers = [requesting(each, f"c{at}") for at, each in enumerate(asked)]
        return checks.pod(pod(*containers, annotations=needed | annotations)).refusals

    alone = [found(good, {name: text}) for name, text in wrong.items()]
    for at, each in enumerate(requests):
        for name, amount in each.items():
            alone.append(found([*good[:at], good[at] | {name: amount}, *good[at + 1 :]], {}))
    assert all(alone), alone
    together = found(requests, wrong)
    assert {sentence for each in alone for sentence in each} - set(together) == set()
    assert len(together) == len(set(together))


SHARE = {"kubeshare/gpu_request": "0.5", "kubeshare/gpu_limit": "1.0", "kubeshare/gpu_mem": "8000"}


@pytest.mark.parametrize(
    ("requests", "annotations", "is_warned"),
    [
        ({"gpu.intel.com/i915": 1, "gpu.intel.com/memory.max": 8000}, {}, True),
        ({"gpu.intel.com/i915": 2, "gpu.intel.com/memory.max": 8000}, {}, True),
        ({"gpu.intel.com/i915": 1, "gpu.intel.com/memory.max": "8000Mi"}, {}, False),
        ({"koordinator.sh/gpu.shared": 1, "koordinator.sh/gpu-memory": 8000}, {}, True),
        ({"koordinator.sh/gpu.shared": 1, "koordinator.sh/gpu-memory-ratio": 50}, {}, False),
        ({}, SHARE, True),
        ({"aliyun.com/gpu-mem": 8000}, {}, False),  # which is MiB
    ],
)
def test_bytes_that_were_meant_as_mib_are_a_warning(
    requests: dict[str, int | str], annotations: dict[str, str], *, is_warned: bool
) -> None:
    found = PodChecks(Vocabularies(KNOWN), NeedOptions()).pod(pod(requesting(requests), annotations=annotations))
    asks = "container 'main' asks for 8000 bytes of memory.max; if MiB are meant, ask for 8388608000"
    assert found == Findings("", (), (asks,) * is_warned)


GIVEN = {"kubernetes.io/limit-ranger": "LimitRanger plugin set: gpu.intel.com/i915, gpu.intel.com/xe request for a"}
OF_LIMIT_RANGE = "a LimitRange of the namespace gave the pod its requests of {}: without a default, its max counts; "
ONE, TWO = "'gpu.intel.com/i915'", "'gpu.intel.com/i915', 'gpu.intel.com/xe'"


# As kube-apiserver makes them: tests/e2e/test_admission.py.
@pytest.mark.parametrize(
    ("requests", "refused", "warned"),
    [
        pytest.param({"i915": 2, "xe": 2}, OF_LIMIT_RANGE.format(TWO), "", id="refused"),
        pytest.param({"i915": 2}, "", OF_LIMIT_RANGE.format(ONE), id="cards-without-need"),
        pytest.param({"i915": 0, "xe": 0}, "", "", id="default-of-0"),
        pytest.param({"monitoring": 1}, "", "", id="other-requests"),
    ],
)
def test_requests_of_a_limit_range_are_named(requests: dict[str, Any], refused: str, warned: str) -> None:
    found = CHECKS.pod(pod(container(**requests), annotations=GIVEN))
    action = "set their default to 0 in the LimitRange"
    assert found.faults == ((refused + action,) if refused else ())
    assert found.warnings == ((warned + action,) if warned else ())


def test_the_rest_of_a_pod_that_is_too_large_is_not_read() -> None:
    requests = {"gpu.intel.com/millicores": 1, **{f"gpu.intel.com/x{number}": 1 for number in range(32)}}
    large = msgspec.convert(
        pod_json({"name": "a", "resources": {"requests": requests}}, annotations={"gas-same-gpus": "a"}), Pod
    )
    sentence = "container 'a': expected requests of at most 32 resources, found 33; remove some"
    assert CHECKS.pod(large) == Findings(sentence)


def test_of_very_many_and_very_long_unknown_annotations_the_first_are_named() -> None:
    names = [f"gas-{number:03}" for number in range(100)]
    many = {name + "x" * 100_000: "" for name in reversed(names)}
    warnings = CHECKS.pod(pod(container(i915=1), annotations=many)).warnings
    assert [warning.split("'")[1][:7] for warning in warnings] == names[:20]


def test_the_refusals_of_a_pod_come_before_its_warnings() -> None:
    assert Findings("a", ("b",), ("c",)).refusals == ("a", "b")
    assert Findings("a", ("b",), ("c",)).all == ("a", "b", "c")
    assert Findings("", ("b",), ("c",)).all == ("b", "c")


def test_a_vocabulary_without_admission_words_has_only_its_need() -> None:
    checks = PodChecks(Vocabularies([MADE_UP]), NeedOptions(), "other")
    slices = pod_json({"name": "a", "resources": {"requests": {"made-up.example/slice": 11}}})
    assert checks.pod(msgspec.convert(slices, Pod)) == Findings(
        "made-up.example/slice: expected at most 10 in a container"
    )
    assert checks.complete(msgspec.convert(slices, NewPod)) == (Operation("add", "/spec/schedulerName", "other"),)


@pytest.mark.parametrize(
    ("resource", "name", "text", "warning"),
    [
        ("aliyun.com/gpu-mem", "gas-card-order", "used-first", ""),
        ("aliyun.com/gpu-mem", "gas-node-score", "spread", ""),
        (
            "aliyun.com/gpu-mem",
            "gas-card-near",
            "true",
            "annotation gas-card-near has no effect on a pod in the words of aliyun",
        ),
        (
            "aliyun.com/gpu-mem",
            "gas-card-ordre",
            "x",
            "annotation 'gas-card-ordre' is not known and has no effect; did you mean gas-card-order?",
        ),
        (
            "aliyun.com/gpu-mem",
            "gas-ts",
            "1",
            "annotation gas-ts is written when the pod is bound; remove it, it seems to be another pod's",
        ),
        ("nvidia.com/gpu", "gas-card-near", "true", ""),
        (
            "nvidia.com/gpu",
            "gas-same-gpu",
            "a,b",
            "annotation gas-same-gpu has no effect on a pod in the words of hami",
        ),
    ],
)
def test_each_vocabulary_obeys_annotations_of_its_own(resource: str, name: str, text: str, warning: str) -> None:
    asking = pod_json({"name": "a", "resources": {"requests": {resource: 1000}}}, annotations={name: text})
    checks = PodChecks(Vocabularies([*KNOWN, MADE_UP]), NeedOptions())
    assert checks.pod(msgspec.convert(asking, Pod)) == Findings("", (), (warning,) if warning else ())


def facts(**fields: Any) -> NodeFacts:
    return DEFAULT.facts(node(**fields))


PLAIN = facts(cards="")
SMALL = facts(cards=1, i915=1, millicores=1000, memory_max=4_000_000_000)
LARGE = facts(cards=2, i915=2, millicores=2000, memory_max=32_000_000_000)
NEVER = "no node of the cluster could run the pod now, even without other pods"


@pytest.mark.parametrize(
    ("checked", "nodes", "warning"),
    [
        pytest.param(pod(container(i915=1, memory_max="16G")), [SMALL, LARGE], "", id="fits-on-one"),
        pytest.param(pod(container(i915=1, memory_max="17G")), [], "", id="no-node-is-known"),
        pytest.param(
            pod(container(i915=1, memory_max="17G")),
            [PLAIN, SMALL, LARGE, LARGE],
            f"{NEVER}: no card has 17.0 GB of memory.max free (3 nodes)",
            id="amount",
        ),
        pytest.param(
            pod(container(i915=3)),
            [SMALL, LARGE],
            f"{NEVER}: container 'main' asks for 3 cards, but the node has 2 (1 node); container 'main' asks for 3"
            " cards, but the node has 1 (1 node)",
            id="count",
        ),
        pytest.param(
            pod(container(i915=1, memory_max="17G")),
            [facts(cards=1, i915=1), facts(cards=1, i915=1), LARGE],
            f"{NEVER}: no card has 17.0 GB of memory.max free (1 node); no card of the node has any memory.max (see the"
            " events of the node) (2 nodes)",
            id="nearest-first",
        ),
        pytest.param(
            pod(container(i915=1, milicores=1)), [SMALL], f"{NEVER}: no card of the node has any milicores (1 node)"
        ),
        pytest.param(
            pod(container(i915=2), annotations={"gas-allocate-single-numa": ""}),
            [facts(cards=2, labels={"gpu.intel.com/numa-gpu-map": "0-0_1-1"})],
            f"{NEVER}: no NUMA group has 2 cards with 1 i915 free each (1 node)",
            id="labels",
        ),
        pytest.param(
            pod(container(i915=1)),
            [PLAIN, PLAIN],
            "no node of the cluster has known GPU cards now, so the pod will wait for one",
            id="no-cards",
        ),
        pytest.param(pod(container(monitoring=1)), [PLAIN], "", id="monitoring"),
        pytest.param(pod(container()), [PLAIN], "", id="no-gpu"),
        pytest.param(pod(container(i915=-1)), [PLAIN], "", id="bad-need"),
        pytest.param(
            pod(container(i915=1)),
            [facts(cards=1, labels={"telemetry.aware.scheduling.x/gas-disable-card0": "true"})],
            "",
            id="a-disabled-card-may-be-enabled-again",
        ),
    ],
)
def test_a_pod_that_no_node_could_hold_is_a_warning(checked: Pod, nodes: list[NodeFacts], warning: str) -> None:
    assert at_once(CHECKS.in_cluster(checked, counted(nodes), {})) == ((warning,) if warning else ())


amounts = st.integers(0, 3)
clusters = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=4)


@given(st.lists(st.tuples(amounts, amounts, amounts), min_size=1, max_size=2), clusters)
def test_a_pod_gets_the_warning_exactly_if_no_empty_node_has_room(
    wanted: list[tuple[int, int, int]], cluster: list[tuple[int, int, int]]
) -> None:
    checked = pod(
        *(
            container(f"c{at}", i915=count, millicores=500 * cores, memory_max=memory)
            for at, (count, cores, memory) in enumerate(wanted)
        )
    )
    nodes = [
        facts(cards=count, i915=count * 2, millicores=count * 500 * cores, memory_max=count * memory)
        for count, cores, memory in cluster
    ]
    need = DEFAULT.need(checked, NeedOptions())
    fits = any(not isinstance(place(need, each.inventory, UNUSED), Refusal) for each in nodes)
    assert bool(at_once(CHECKS.in_cluster(checked, counted(nodes), {}))) == (need.wants_cards and not fits)


def test_equal_nodes_are_searched_once_and_others_in_turns() -> None:
    checked = pod(container(i915=9))
    assert len(list(CHECKS.in_cluster(checked, counted([SMALL] * 5000), {}))) == 1
    assert len(list(CHECKS.in_cluster(checked, counted([SMALL, LARGE, SMALL]), {}))) == 2


@pytest.mark.parametrize(
    ("count", "is_searched"), [(MOST_SEARCHED_CONTAINERS, True), (MOST_SEARCHED_CONTAINERS + 1, False)]
)
def test_nodes_are_not_searched_for_a_pod_of_very_many_containers(count: int, *, is_searched: bool) -> None:
    checked = pod(*(container(f"c{number}", i915=9) for number in range(count)))
    assert bool(at_once(CHECKS.in_cluster(checked, counted([SMALL]), {}))) == is_searched


def test_only_as_many_reasons_are_given_as_one_warning_has_room_for() -> None:
    few = pod(container("x" * 40, i915=9))
    (warning,) = at_once(CHECKS.in_cluster(few, counted([SMALL, LARGE, LARGE]), {}))
    name = "x" * 40
    assert warning == f"{NEVER}: container '{name}' asks for 9 cards, but the node has 2 (2 nodes)"
    names: dict[str, Any] = {letter * 60: 1 for letter in "abcd"}
    long = pod(container(i915=1, **names))
    nodes = [facts(cards=1, i915=1, **{each: 1 for each in names if each != without}) for without in list(names)[:2]]
    (warning,) = at_once(CHECKS.in_cluster(long, counted(nodes), {}))
    assert warning == f"{NEVER}: no card of the node has any {'a' * 60} (1 node)"


@pytest.mark.parametrize(("scores_nodes", "count"), [(True, 0), (False, 1)])
@pytest.mark.parametrize("resource", ["gpu.intel.com/i915", "aliyun.com/gpu-mem", "nvidia.com/gpu"])
def test_a_way_of_scoring_is_a_warning_where_nodes_are_not_scored(
    resource: str, count: int, *, scores_nodes: bool
) -> None:
    checks = PodChecks(Vocabularies(KNOWN), NeedOptions(), scores_nodes=scores_nodes)
    asking = {"name": "a", "resources": {"requests": {resource: 1000}}}
    scored = msgspec.convert(pod_json(asking, annotations={"gas-node-score": "best-fit"}), Pod)
    sentence = "annotation gas-node-score has no effect, because the extender runs without --node-score"
    assert checks.pod(scored).warnings == (sentence,) * count
    emptied = msgspec.convert(pod_json(asking, annotations={"gas-node-score": ""}), Pod)
    assert checks.pod(emptied).warnings == ()


def test_too_many_different_nodes_are_not_searched() -> None:
    different = [replace(SMALL) for _ in range(MOST_KINDS + 1)]
    assert at_once(CHECKS.in_cluster(pod(container(i915=9)), counted(different), {})) == ()
    assert at_once(CHECKS.in_cluster(pod(container(i915=9)), counted(different[1:]), {})) != ()


@pytest.mark.parametrize(
    ("order", "nodes", "warning"),
    [
        (
            "least-used=milicores",
            [SMALL],
            "order of cards 'least-used=milicores' has no effect: no card has 'milicores'; did you mean millicores?",
        ),
        (
            "best-fit=gold",
            [SMALL],
            "order of cards 'best-fit=gold' has no effect: no card has 'gold'; they have 'i915', 'memory.max',"
            " 'millicores'",
        ),
        ("best-fit=millicores", [SMALL], ""),
        ("best-fit=tiles", [SMALL, facts(cards=1, i915=1, tiles=2)], ""),
        ("used-first", [SMALL], ""),
    ],
)
def test_an_order_of_cards_by_a_resource_that_no_card_has_is_a_warning(
    order: str, nodes: list[NodeFacts], warning: str
) -> None:
    checked = pod(container(i915=1), annotations={"gas-card-order": order})
    assert at_once(CHECKS.in_cluster(checked, counted(nodes), {})) == ((warning,) if warning else ())


def test_the_pod_is_not_warned_of_the_administrators_order() -> None:
    checks = PodChecks(DEFAULT, NeedOptions(card_order=LeastUsed("gold")))
    assert at_once(checks.in_cluster(pod(container(i915=1)), counted([SMALL]), {})) == ()


RESOURCES = ["i915", "xe", "tiles", "millicores", "memory.max", "monitoring", "gold", "", "x" * 300]
AMOUNTS = st.sampled_from([0, 1, 2, 3, -1, 2**63, 10**30, "1", "1.5", "1Ki", "x", "", "9" * 300])
TEXTS = st.sampled_from(["", "a", "a,b", "true", "false", "best-fit=gold", "x" * 300, "\n\x1b[31m", "card0"])
ANNOTATIONS = st.sampled_from([*names.USERS_ANNOTATIONS, "gas-ts", "gas-same-gpus", "gas-" + "x" * 300, "gas-\n", "b"])


@given(
    st.lists(st.dictionaries(st.sampled_from(RESOURCES), AMOUNTS, max_size=3), max_size=3),
    st.dictionaries(ANNOTATIONS, TEXTS, max_size=3),
    st.sampled_from([None, "n1", "\n" * 300]),
)
def test_whatever_a_pod_says_it_is_checked_in_short_printable_sentences(
    requests: list[dict[str, int | str]], annotations: dict[str, str], node: str | None
) -> None:
    containers = [
        {"name": f"c{at}\n", "resources": {"requests": {f"gpu.intel.com/{name}": text for name, text in each.items()}}}
        for at, each in enumerate(requests)
    ]
    checked = pod(*containers, annotations=annotations, node=node)
    findings = CHECKS.pod(checked)
    for sentence in (*findings.all, *at_once(CHECKS.in_cluster(checked, counted([SMALL, LARGE]), {}))):
        assert sentence.isprintable()
        assert len(sentence) <= LONGEST_WARNING
    assert CHECKS.change(checked, checked) == ()
    assert DEFAULT.is_gpu_pod(checked) or findings == Findings()


def gpu_pod(node: str | None = None, **annotations: str) -> Pod:
    named = {name.replace("_", "-"): text for name, text in annotations.items()}
    return pod(container(i915=1), node=node, annotations=named)


class TestChanges:
    @pytest.mark.parametrize(
        ("old", "new"),
        [
            pytest.param(gpu_pod("n1", gas_ts="1"), gpu_pod("n1", gas_ts="1", note="x"), id="another-annotation"),
            pytest.param(gpu_pod("n1"), gpu_pod("n1", gas_container_cards=""), id="emptied"),
            pytest.param(gpu_pod("n1"), gpu_pod("n1", gas_same_gpus="a"), id="bound"),
            pytest.param(gpu_pod(gas_same_gpus="a"), gpu_pod(gas_same_gpus="b", note="x"), id="the-same-warning"),
            pytest.param(
                pod(container(), node="n1"),
                pod(container(), node="n1", annotations={"gas-container-cards": "card0"}),
                id="no-gpu",
            ),
        ],
    )
    def test_most_changes_are_no_reason_for_a_warning(self, old: Pod, new: Pod) -> None:
        assert CHECKS.change(old, new) == ()

    @pytest.mark.parametrize(
        "name",
        ["gas-ts", "gas-container-cards", "gas-container-tiles", "gas-init-container-cards", "gas-card-exclusion"],
    )
    def test_a_change_of_what_a_bound_pod_holds_is_a_warning(self, name: str) -> None:
        old, new = pod(container(i915=1), node="n1"), pod(container(i915=1), node="n1", annotations={name: "card1"})
        for one, other in ((old, new), (new, old)):
            (sentence,) = CHECKS.change(one, other)
            assert sentence.startswith(f"'{name}' says what the bound pod holds; undo the change")

    def test_a_receipt_counts_so_only_the_plugin_should_write_it(self) -> None:
        old, new = gpu_pod("n1"), gpu_pod("n1", gas_allocated_cards="card1")
        (sentence,) = CHECKS.change(old, new)
        assert sentence.startswith("'gas-allocated-cards' says what kubelet gave the bound pod")
        assert CHECKS.change(old, new, may_write_receipts=True) == ()

    def test_a_waiting_pod_is_checked_for_what_is_new(self) -> None:
        old = gpu_pod(gas_same_gpus="a")
        new = gpu_pod(gas_same_gpus="a", gas_card_near="maybe")
        assert CHECKS.change(old, new) == ("gas-card-near: expected true or false, found 'maybe'",)


class WithDefaults(Intel):
    """A vocabulary that writes defaults into new pods."""

    def complete(self, pod: Pod) -> Patch:
        return () if pod.annotations.get("a/b") else (Operation("add", "/metadata/annotations", {"a/b": "1"}),)


@given(
    schedulers=st.tuples(
        st.sampled_from([None, "", "default-scheduler", "gas-scheduler", "other"]),
        st.sampled_from([None, "default-scheduler", "gas-scheduler", "other"]),
    ),
    annotations=st.none() | st.dictionaries(st.sampled_from(["a/b", "c"]), st.sampled_from(["", "1"])),
    node=st.sampled_from([None, "n1"]),
    i915=st.integers(0, 1),
    with_defaults=st.booleans(),
)
def test_completing_a_pod_twice_equals_completing_it_once(
    schedulers: tuple[str | None, str | None],
    annotations: Mapping[str, str] | None,
    node: str | None,
    i915: int,
    with_defaults: bool,
) -> None:
    scheduler, flag = schedulers
    vocabulary = WithDefaults() if with_defaults else INTEL
    checks = PodChecks(Vocabularies([vocabulary]), NeedOptions(), flag)
    document = pod_json(container(i915=i915) if i915 else container(), annotations=annotations, node=node)
    if scheduler is not None:
        document["spec"]["schedulerName"] = scheduler
    once = completed(checks, document)
    assert completed(checks, once) == once
    if not i915 or node:
        assert once == document


def completed(checks: PodChecks, document: Any) -> Any:
    changed = json.loads(json.dumps(document))
    for operation in checks.complete(msgspec.convert(document, NewPod)):
        apply(changed, as_json(operation))
    return changed
