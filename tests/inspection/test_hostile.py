"""Texts that try to control the terminal, in every place where users can put them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gas.inspection.output import FORMATS
from sandbox.api.kinds import NODES
from tests.inspection.conftest import Kubectl
from tests.inspection.example_cluster import create_pod, gpu_node_json, record, running, waiting

HOSTILE = "[red]x\x1b[2J\u202eevil\u05d0\r\n"
MARKS = {"\x1b", "\u202e", "\u05d0", "\r", "\x07"}


@pytest.fixture
async def hostile(kubectl: Kubectl, tmp_path: Path) -> Kubectl:
    """Provide a cluster with such texts in labels, annotations and models, and a manifest with more of them."""
    node = gpu_node_json(
        "evil", record(0, model="[bold]\u05d0 Card"), record(1, model="x" * 80), labels={"evil": "yes"}
    )
    node["metadata"]["annotations"]["gas-cards"] = (
        node["metadata"]["annotations"]["gas-cards"][:-1] + ',{"card":"\\u001b[2J"}]'
    )
    node["spec"] = {"taints": [{"key": "gpu", "value": HOSTILE, "effect": "PreferNoSchedule"}]}
    kubectl.server.api.create(NODES, None, node)
    moved = running("m" * 253, "evil", "card0", i915=1, memory_max=9 * 10**9)
    create_pod(kubectl.server, moved)
    pod = waiting("evil", i915=2, memory_max=90 * 10**9)
    pod["metadata"]["annotations"] = {"gas-card-order": HOSTILE, "gas-allow": HOSTILE}
    create_pod(kubectl.server, pod)
    template = {"spec": {"containers": [{"name": HOSTILE, "resources": {"limits": {"gpu.intel.com/i915": HOSTILE}}}]}}
    (tmp_path / "evil.json").write_text(
        json.dumps({"kind": "Job", "metadata": {"name": HOSTILE}, "spec": {"template": template}})
    )
    room = waiting("room", i915=2, memory_max=30 * 10**9)
    room["spec"]["nodeSelector"] = {"evil": "yes"}
    (tmp_path / "room.json").write_text(json.dumps(room))
    (tmp_path / "bad.yaml").write_text(f"kind: {json.dumps(HOSTILE)}\nspec: {{")
    return kubectl


@pytest.mark.parametrize(
    "command",
    [
        ["top"],
        ["top", "nodes"],
        ["pods", "-A"],
        ["inspect", "evil"],
        ["why", "evil"],
        ["waste"],
        ["fit", "{}/evil.json"],
        ["fit", "--explain", "{}/evil.json"],
        ["fit", "{}/bad.yaml"],
        ["defrag", "pod/evil"],
        ["defrag", "{}/evil.json"],
        ["defrag", "gpu.intel.com/i915=2,gpu.intel.com/memory.max=30G"],
        ["defrag", f"{HOSTILE}=1,{HOSTILE}=2"],
        ["defrag", f"pod/{HOSTILE}"],
        ["inspect", HOSTILE],
        ["why", HOSTILE],
        ["top", "--context", HOSTILE],
        ["top", "--where", HOSTILE],
        ["top", "-l", HOSTILE],
        ["top", HOSTILE],
    ],
    ids=lambda command: command[0] if command[-1].isascii() else f"{command[0]}-hostile",
)
async def test_no_output_controls_the_terminal(hostile: Kubectl, tmp_path: Path, command: list[str]) -> None:
    for form in FORMATS:
        result = await hostile(*(word.replace("{}", str(tmp_path)) for word in command), "-o", form)
        assert result.out or result.err, form
        assert not set(result.out + result.err) & MARKS, form


async def test_the_names_are_there_as_text(hostile: Kubectl) -> None:
    shown = (await hostile("top", "-o", "wide")).out
    assert "[bold]\\u05d0 Card" in shown
    assert "x" * 80 in shown


async def test_the_longest_names_are_shown_whole(hostile: Kubectl, tmp_path: Path) -> None:
    assert "m" * 253 in (await hostile("pods", "-A")).out
    assert "m" * 253 in (await hostile("defrag", str(tmp_path / "room.json"))).out
