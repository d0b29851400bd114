"""The demo of a user's own cluster, with the real extender as a process of its own."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from sandbox.demo.manifests import BadManifest, read_manifests
from sandbox.demo.own_cluster import show_cluster
from tests.kubeshare_words import share, sharing, sharing_node, with_card
from tests.sandbox.demo.manifest_files import node, pod, write


async def _shown(file: Path, *flags: str) -> tuple[bool, list[str]]:
    """Return whether all objects could be used, and the output without times."""
    written = StringIO()
    console = Console(file=written, width=200, color_system=None, highlight=False)
    faultless = await show_cluster(console, file, read_manifests(file), flags)
    lines = (line.partition(" s  ")[2] or line for line in written.getvalue().splitlines())
    return faultless, [" ".join(line.split()) for line in lines]


async def test_waiting_pods_are_scheduled_to_free_cards(tmp_path: Path) -> None:
    on_card0 = {"gas-container-cards": "card0"}
    held = pod("held", annotations=on_card0, nodeName="n1")
    ended = pod("ended", 8, annotations=on_card0, nodeName="n1") | {"status": {"phase": "Succeeded"}}
    leaving = pod("leaving", 8)
    leaving["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z"
    late, early, urgent = pod("late"), pod("early", 1), pod("urgent", priority=7)
    late["metadata"]["creationTimestamp"] = "2024-01-02T00:00:00Z"
    early["metadata"]["creationTimestamp"] = "2024-01-01T00:00:00Z"
    service = {"kind": "Service", "metadata": {"name": "s"}}
    elsewhere = pod("elsewhere", 8, schedulerName="other")
    waiting = [late, early, urgent, pod("no-gpu", 0)]
    file = write(tmp_path / "own.json", node("n1"), held, ended, leaving, elsewhere, service, *waiting)
    faultless, lines = await _shown(file)
    assert faultless
    ignored = "ignored: 1 Service object, 1 ended pod, 1 deleted pod, 1 other pod"
    assert lines[0] == f"{file}: 1 node, 1 pod with a node, 4 waiting pods; {ignored}"
    start = lines.index("Where the waiting pods would go")
    assert "held n1 card0" in lines[:start]
    assert lines[start + 4 : start + 8] == ["urgent n1 card1", "no-gpu n1", "early n1 card0", "late none"]
    assert lines[-1] == "3 of 4 pods got a node."
    assert "n1 card0: 2.0 of 8.0 GB of memory.max free, 5.0 needed" in lines
    assert not [line for line in lines if line.startswith("warning")]


async def test_sharepods_without_a_pod_are_waiting_pods(tmp_path: Path) -> None:
    shares = [sharing(name, share("0.6"), with_card("main", None)) | {"kind": "SharePod"} for name in ("a", "b", "has")]
    for each in shares:
        each["apiVersion"] = "kubeshare.nthu/v1"
    file = write(tmp_path / "own.json", sharing_node(), *shares, sharing("has", share("0.6"), node="n1"))
    faultless, lines = await _shown(file)
    assert faultless
    assert lines[0] == f"{file}: 1 node, 1 pod with a node, 2 waiting pods; ignored: 1 SharePod object"
    assert lines[-1] == "2 of 2 pods got a node."


async def test_flags_of_the_extender_change_the_result(tmp_path: Path) -> None:
    file = write(tmp_path / "own.json", node("n1"), pod("a", 1), pod("b", 1))
    _, lines = await _shown(file, "--balancedResource=memory.max")
    assert {"a n1 card0", "b n1 card1"} <= set(lines)


async def test_each_unusable_object_is_reported_and_the_others_are_used(tmp_path: Path) -> None:
    half = pod("half")
    half["spec"]["containers"][0]["resources"]["limits"] = {"gpu.intel.com/i915": "1.5"}
    nonsense = pod("nonsense")
    nonsense["spec"]["containers"][0]["resources"]["limits"] = {"gpu.intel.com/i915": "lots"}
    bad_node = node("Bad_Node")
    file = write(
        tmp_path / "own.json",
        node("n1"),
        node("n2", unschedulable=True) | {"metadata": {"name": "n2"}},
        bad_node,
        pod("bare", 1, nodeName="n1"),
        pod("damaged", 1, annotations={"gas-container-cards": "cardX"}, nodeName="n1"),
        pod("elsewhere", annotations={"gas-container-cards": "card0"}, nodeName="n9"),
        pod("good"),
        pod("good"),
        pod("chosen", topologySpreadConstraints=[{"whenUnsatisfiable": "DoNotSchedule"}]),
        half,
        nonsense,
        pod(None),
        17,
    )
    faultless, lines = await _shown(file)
    assert not faultless
    warnings = [line.removeprefix("warning: ") for line in lines if line.startswith("warning: ")]
    expected = [
        f"ignored: {file}, document 1, items[12]: expected an object with a kind, found 17",
        f'ignored: {file}, Node Bad_Node: Node "Bad_Node" is invalid: metadata.name: ',
        f'ignored: {file}, Pod default/good: pods "good" already exists',
        f'ignored: {file}, Pod default/half: Pod "half" is invalid: '
        "[spec.containers[0].resources.limits[gpu.intel.com/i915]: ",
        f'ignored: {file}, Pod default/nonsense: Pod in version "v1" cannot be handled as a Pod: quantities must ',
        f'ignored: {file}, Pod default/: Pod "" is invalid: metadata.name: Required value: ',
        "node n2: gpu.intel.com/i915 is allocatable, but neither label ",
        "pod default/bare on n1: it is bound without cards written on it, so its cards are not booked",
        "pod default/damaged on n1: its cards are not booked: annotation gas-container-cards: ",
        "1 pod on node n9, which is not in the file",
        "not looked at: topology spread constraints of 1 waiting pod",
    ]
    assert len(warnings) == len(expected)
    for start in expected:
        assert [warning for warning in warnings if warning.startswith(start)], start
    assert {"bare n1 no cards annotated", "damaged n1 cardX", "elsewhere n9 card0"} <= set(lines)
    assert {"good n1 card0", "chosen n1 card1"} <= set(lines)
    assert lines[-1] == "2 of 2 pods got a node."


async def test_gates_taints_and_affinity_are_obeyed_as_by_kubectl_gas_fit(tmp_path: Path) -> None:
    gate: dict[str, Any] = {"schedulingGates": [{"name": "queue"}]}
    only_n2 = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n2"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": only_n2}}
    toleration: dict[str, Any] = {"tolerations": [{"key": "gpu", "operator": "Exists"}]}
    file = write(
        tmp_path / "own.json",
        node("n1", taints=[{"key": "gpu", "effect": "NoSchedule"}]),
        pod("gated", 1, **gate, **toleration),
        pod("tolerant", 1, **toleration),
        pod("intolerant", 1),
        pod("elsewhere", 1, **toleration, affinity={"nodeAffinity": required}),
    )
    _, lines = await _shown(file)
    assert lines[0].endswith("3 waiting pods; ignored: 1 gated pod")
    start = lines.index("Where the waiting pods would go")
    assert lines[start + 4 : start + 7] == ["tolerant n1 card0", "intolerant none", "elsewhere none"]
    assert any("untolerated taint(s)" in line for line in lines)
    assert lines[-1] == "1 of 3 pods got a node."


async def test_a_file_without_a_usable_node_is_refused_with_its_faults(tmp_path: Path) -> None:
    file = write(tmp_path / "own.json", pod("p"), 17)
    with pytest.raises(BadManifest) as refused:
        await _shown(file)
    first, second = str(refused.value).splitlines()
    assert first.startswith(f"{file}: no usable node in this file")
    assert second == f"{file}, document 1, items[1]: expected an object with a kind, found 17"
