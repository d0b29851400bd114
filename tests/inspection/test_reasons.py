"""The reasons why a pod waits: the one that is nearest to fitting comes first, in the same words everywhere."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gas.inspection.fit import fit_all, fit_report
from gas.inspection.manifests import WantedPods
from gas.inspection.page.board import Board
from gas.inspection.reasons import Diagnoses, diagnose
from gas.inspection.rows import asks, pod_report
from gas.inspection.why import explain
from tests.builders import described_node, pod_json
from tests.inspection.example_cluster import (
    GB,
    cluster_of,
    decoded_pod,
    example_nodes,
    example_pods,
    extender_pod,
    gpu_node_json,
    page_of,
    record,
    running,
    waiting,
)
from tests.other_words import aliyun_node, asking

FPGA = "example.com/fpga"
PLAIN = [described_node(f"plain-{at}", {"cpu": "8"}) for at in range(4)]


def tainted(node: dict[str, Any]) -> dict[str, Any]:
    return {**node, "spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}}


def test_full_gpu_nodes_are_the_reason_and_not_the_many_nodes_without_gpus() -> None:
    found = diagnose(
        cluster_of([*PLAIN, *example_nodes()], example_pods()), decoded_pod(waiting("p", memory_max=14 * GB, i915=1))
    )
    assert found.line == (
        "no card has 14.0 GB of memory.max free; nearest: gpu-2 card0 with 10.0 GB of memory.max"
        " (3 of 7 nodes; excluded or without what it asks for: 4)"
    )
    assert [(each.text, each.nodes) for each in found.reasons] == [
        ("no card has 14.0 GB of memory.max free", 3),
        ("the node has no gpu.intel.com/i915", 4),
    ]


def test_amounts_that_look_equal_when_they_are_rounded_are_in_bytes() -> None:
    pods = [running("a", "n", "card0", i915=1, memory_max=10 * GB)]
    found = diagnose(
        cluster_of([gpu_node_json("n", record(0))], pods), decoded_pod(waiting("p", i915=1, memory_max=6 * GB + 1))
    )
    assert found.line.endswith("nearest: n card0 with 6000000000 of 6000000001 bytes of memory.max")


# contract A1.25
def test_a_pod_in_aliyuns_words_reads_its_own_unit() -> None:
    taken = pod_json(asking(gpu_mem=700), name="a", uid="a", node="n1", annotations={"ALIYUN_COM_GPU_MEM_IDX": "0"})
    wanted = pod_json(asking(gpu_mem=400), name="p", uid="p")
    pods = [extender_pod("--vocabularies=intel,aliyun"), taken]
    found = diagnose(cluster_of([aliyun_node(cards=1, units=1024)], pods), decoded_pod(wanted))
    assert found.line == (
        "no card has 400 MiB of aliyun.com/gpu-mem free; nearest: n1 card0 with 324 MiB of aliyun.com/gpu-mem"
    )
    two = pod_json(asking(gpu_mem=200), asking("b", gpu_mem=200), name="two", uid="two")
    cluster = cluster_of([aliyun_node(cards=1, units=1024)], [*pods, two, wanted])
    assert " GB " not in diagnose(cluster, decoded_pod(two)).line
    shown = {str(row["name"]): row.get("asks") for row in pod_report(cluster, explains=False).rows}
    assert shown["p"] == "1 card with 400 MiB of aliyun.com/gpu-mem"
    assert shown["a"] is None


@pytest.mark.parametrize(
    ("amounts", "asked", "line"),
    [
        ({"gpumem": 6000}, "1 card with 6000 MiB of nvidia.com/gpumem", "fits on 1 of 1 nodes; "),
        (
            {"gpumem": 30000},
            "1 card with 30000 MiB of nvidia.com/gpumem",
            "no card has 30000 MiB of nvidia.com/gpumem free",
        ),
        ({"gpu": 2}, "2 cards", "container 'main' asks for 2 cards, but the node has 1"),
    ],
)
def test_resources_that_no_node_offers_are_no_reason(amounts: dict[str, int], asked: str, line: str) -> None:
    node = described_node("n", {"nvidia.com/gpu": "10"}, memory=[2**34], driver="nvidia", uuids=["GPU-00000"])
    held = hami("held", gpumem=10000)
    held["metadata"]["annotations"] = {"gas-ts": "1", "gas-container-cards": "card0"}
    held["spec"]["nodeName"] = "n"
    cluster = cluster_of([node], [extender_pod("--vocabularies=intel,hami"), held])
    pod = decoded_pod(hami("p", **amounts))
    assert diagnose(cluster, pod).line.startswith(line)
    assert [*cluster.unknown_resources(pod)] == []
    assert asks(cluster, pod) == asked


def hami(name: str, **amounts: int) -> dict[str, Any]:
    requests = {f"nvidia.com/{resource}": str(amount) for resource, amount in {"gpu": 1, **amounts}.items()}
    return pod_json({"name": "main", "resources": {"limits": requests, "requests": requests}}, name=name, uid=name)


def test_room_that_is_promised_to_another_pod_is_taken_and_its_pod_is_named() -> None:
    promised, equal, higher = (waiting(name, i915=1, memory_max=10 * GB) for name in ("promised", "p", "higher"))
    promised["status"]["nominatedNodeName"] = "n"
    higher["spec"]["priority"] = 1
    pods = [promised, equal, higher, waiting("small", i915=1, memory_max=GB)]
    cluster = cluster_of([gpu_node_json("n", record(0))], pods)
    of = Diagnoses(cluster).of
    nearest = "no card has 10.0 GB of memory.max free; nearest: n card0 with 6.0 GB of memory.max"
    chosen = "fits on 1 of 1 nodes; kube-scheduler has chosen node n for it, and has yet to bind it"
    lines = [of(decoded_pod(each)).line for each in (equal, promised, higher)]
    assert lines == [nearest, chosen, "fits on 1 of 1 nodes; kube-scheduler has yet to bind it"]
    found = explain(cluster, decoded_pod(equal))
    taken = "its place is promised to a pod that kube-scheduler has yet to bind: 'default/promised on n'"
    assert found.details == (taken,)
    assert [each.text.partition(" instead")[0] for each in found.suggestions] == [
        "ask for 6000000000 (6.0 GB) of gpu.intel.com/memory.max in container main"
    ]
    fitted = fit_all(cluster, [WantedPods(each["metadata"]["name"], decoded_pod(each), 9) for each in pods[1::2]])
    assert explain(cluster, decoded_pod(waiting("huge", i915=1, memory_max=17 * GB))).details == ()
    assert [(each.fitting, each.more) for each in fitted] == [(0, 0), (6, 0)]
    assert fitted[0].refusal == of(decoded_pod(equal))


def test_diagnoses_are_shared_until_a_pod_changes() -> None:
    cluster = cluster_of([gpu_node_json("n", record(0))], [running("a", "n", "card0", i915=1, memory_max=10 * GB)])
    diagnoses = Diagnoses(cluster)
    first = diagnoses.of(decoded_pod(waiting("p", i915=1, memory_max=7 * GB)))
    assert diagnoses.of(decoded_pod(waiting("q", i915=1, memory_max=7 * GB))) is first
    cluster.watched_pods.changed(decoded_pod(running("b", "n", "card0", i915=1, memory_max=2 * GB)))
    later = diagnoses.of(decoded_pod(waiting("p", i915=1, memory_max=7 * GB)))
    assert later.line.endswith("nearest: n card0 with 4.0 GB of memory.max")


def test_parts_of_a_card_without_a_card_fit_only_where_they_are_offered_and_each_pod_names_its_own() -> None:
    cluster = cluster_of([*PLAIN, *example_nodes()], [])
    diagnoses = Diagnoses(cluster)
    memory, compute = (
        diagnoses.of(decoded_pod(pod)) for pod in (waiting("p", memory_max=100), waiting("p", millicores=100))
    )
    assert "; fits on 3 of 7 nodes; " in memory.line
    assert memory.line.startswith("container 'main' asks for 'gpu.intel.com/memory.max' but for no card; add ")
    assert "gpu.intel.com/millicores' but for no card" in compute.line
    huge = diagnoses.of(decoded_pod(waiting("huge", memory_max=10**15)))
    assert huge.passing == 0
    assert "but for no card" in huge.line


def test_of_resources_that_only_some_nodes_lack_that_which_no_node_has_is_named() -> None:
    nodes = [*example_nodes(), *(described_node(f"fpga-{at}", {"cpu": "8", FPGA: "1"}) for at in range(2))]
    pod = waiting("p", i915=1)
    pod["spec"]["containers"][0]["resources"]["requests"] |= {FPGA: "1", "foo.com/bar": "1"}
    assert diagnose(cluster_of(nodes, []), decoded_pod(pod)).line == "no node has foo.com/bar"


def test_of_several_cards_the_last_that_is_needed_is_the_nearest() -> None:
    pods = [
        running("a", "n", "card1", i915=1, memory_max=12 * GB),
        running("b", "n", "card2", i915=1, memory_max=9 * GB),
    ]
    nodes = [gpu_node_json("n", record(0), record(1), record(2))]
    found = diagnose(cluster_of(nodes, pods), decoded_pod(waiting("p", i915=2, memory_max=20 * GB)))
    assert found.line == (
        "needs 2 cards with 10.0 GB of memory.max free each, found 1; nearest: n card2 with 7.0 GB of memory.max"
    )


def test_too_little_cpu_says_how_much_is_asked_and_free() -> None:
    nodes = [gpu_node_json("n", record(0), cpu="2"), gpu_node_json("m", record(0), cpu="1")]
    pods = [running("a", "n", "card0", i915=1, cpu="500m")]
    found = diagnose(cluster_of(nodes, pods), decoded_pod(waiting("p", i915=1, cpu="2")))
    assert found.line == "the node has less than 2000m of cpu free; nearest: n with 1500m of cpu"


def test_a_rule_that_excludes_the_nodes_with_gpus_comes_before_the_nodes_without() -> None:
    found = diagnose(
        cluster_of([*PLAIN, tainted(gpu_node_json("n", record(0)))], []), decoded_pod(waiting("p", i915=1))
    )
    assert found.line == "the pod does not tolerate the taint gpu (1 of 5 nodes)"


def test_a_resource_that_no_node_has_together_with_the_others_is_named() -> None:
    pod = waiting("p", i915=1)
    pod["spec"]["containers"][0]["resources"]["requests"][FPGA] = "1"
    cards = [gpu_node_json("n", record(0)), gpu_node_json("m", record(0))]
    found = diagnose(cluster_of([*PLAIN, *cards, described_node("f", {FPGA: "1", "cpu": "8"})], []), decoded_pod(pod))
    assert found.line == "no node has example.com/fpga together with gpu.intel.com/i915"
    assert diagnose(cluster_of([*PLAIN, *cards], []), decoded_pod(pod)).line == "no node has example.com/fpga"


async def test_list_why_fit_and_page_use_the_same_words() -> None:
    waits = waiting("p", i915=1, memory_max=14 * GB)
    cluster = cluster_of([*PLAIN, *example_nodes()], [*example_pods(), waits])
    pod = decoded_pod(waits)
    line = diagnose(cluster, pod).line
    assert "nearest" in line
    assert [row["note"] for row in pod_report(cluster).rows if row["name"] == "p"] == [line]
    assert explain(cluster, pod).line == line
    view = page_of(cluster, Board("epoch"))
    assert (await view.why("default", "p"))["reason"] == (await view.pod("default", "p"))["note"] == line
    (row,) = fit_report(fit_all(cluster, [WantedPods("Pod default/p", pod, 1)])).rows
    assert row["reason"] == line


NODES = st.lists(
    st.tuples(
        st.lists(st.integers(0, 8), max_size=3),  # GB booked on each card of 8 GB
        st.integers(0, 10),  # booked CPU of 10
        st.booleans(),  # tainted
    ),
    min_size=1,
    max_size=5,
)


@example([([0], 9, False), ([0], 0, False)], 9, 2)
@given(NODES, st.integers(1, 9), st.integers(1, 11))
def test_the_first_reason_is_the_one_of_the_node_that_brute_force_finds_nearest(
    built: list[tuple[list[int], int, bool]], memory: int, cpu: int
) -> None:
    def gap(cards: list[int], busy: int) -> float:
        of_memory = min(max(memory - (8 - booked), 0) / memory for booked in cards) + (memory > 8)  # then it never fits
        return max(of_memory, max(cpu - (10 - busy), 0) / cpu)

    nodes, pods, gaps = [], [], []
    for at, (cards, busy, is_tainted) in enumerate(built):
        node = gpu_node_json(f"n-{at}", *map(record, range(len(cards))), memory=8 * GB, cpu="10")
        nodes.append(tainted(node) if is_tainted else node)
        for card, booked in enumerate(cards):
            pods.append(running(f"p-{at}-{card}", f"n-{at}", f"card{card}", i915=1, memory_max=booked * GB))
        plain = {"name": "main", "resources": {"requests": {"cpu": str(busy)}}}
        pods.append(pod_json(plain, name=f"c-{at}", node=f"n-{at}", phase="Running"))
        if cards and not is_tainted:
            gaps.append(gap(cards, busy))
    found = diagnose(cluster_of(nodes, pods), decoded_pod(waiting("w", i915=1, memory_max=memory * GB, cpu=str(cpu))))
    assert found.passing == sum(gap == 0 for gap in gaps)
    if found.passing:
        return
    assert sum(each.nodes for each in found.reasons) == len(nodes)
    assert sum(each.nodes for each in found.reasons if each.may_fit) == len(gaps)
    if gaps:
        at_nearest = int(found.reasons[0].nearest.split()[0].removeprefix("n-"))
        cards, busy, _ = built[at_nearest]
        assert gap(cards, busy) == min(gaps)


async def test_of_a_pod_that_asks_for_memory_but_for_no_card_everything_says_what_is_missing() -> None:
    waits, bound = waiting("w", memory_max=GB), running("b", "gpu-1", "", memory_max=GB)
    cluster = cluster_of(example_nodes(), [waits, bound])
    missing = "container 'main' asks for 'gpu.intel.com/memory.max' but for no card; add gpu.intel.com/i915"
    view = page_of(cluster, Board("epoch"))
    for pod, name in ((waits, "w"), (bound, "b")):
        assert missing in explain(cluster, decoded_pod(pod)).line
        assert [missing in str(row["note"]) for row in pod_report(cluster).rows if row["name"] == name] == [True]
        assert missing in str((await view.why("default", name))["reason"])
        assert missing in str((await view.pod("default", name))["note"])


def test_nodes_that_could_never_hold_the_pod_come_after_full_ones() -> None:
    few = [gpu_node_json(f"few-{at}", record(0)) for at in range(3)]
    full = [running(f"r{at}", "n", f"card{at}", i915=1, memory_max=16 * GB) for at in (0, 1)]
    nodes = [*few, gpu_node_json("n", record(0), record(1))]
    found = diagnose(cluster_of(nodes, full), decoded_pod(waiting("p", i915=2, memory_max=8 * GB)))
    assert found.line.startswith("needs 2 cards with 4.0 GB of memory.max free each, found none; nearest: n card")
    big = [gpu_node_json("big", record(0), memory=32 * GB), *few]
    taken = [running("a", "big", "card0", i915=1, memory_max=31 * GB)]
    found = diagnose(cluster_of(big, taken), decoded_pod(waiting("p", i915=1, memory_max=20 * GB)))
    assert found.line.endswith("nearest: big card0 with 1.0 GB of memory.max")


def test_fit_says_what_a_pod_lacks_that_fits() -> None:
    pod = decoded_pod(waiting("p", memory_max=100))
    (row,) = fit_report(fit_all(cluster_of(example_nodes(), []), [WantedPods("Pod default/p", pod, 1)])).rows
    assert row["fit"] == 1
    assert "but for no card" in str(row["reason"])
