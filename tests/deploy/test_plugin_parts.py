"""The components of deploy/ give the plugin's pod what the parts need that they switch on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from gas.plugin.flags import parse_flags
from gas.plugin.part import Part
from gas.plugin.parts import PARTS
from tests.deploy.manifests import COMPONENTS


def switched_on_by(component: Path) -> list[Part[Any]]:
    """Return the parts that the arguments of a component switch on."""
    arguments = re.findall(
        r'(?:value: |args: \[")(--(?:usage|memory-limits|write-node|card-sources|cdi)[^\s"}]*)', text(component)
    )
    flags = parse_flags(arguments, environ={}, host_name="n")
    return [part for part in PARTS if part.runs_with(flags)]


def text(component: Path) -> str:
    return "\n".join(file.read_text(encoding="utf-8") for file in sorted(component.glob("*.yaml")))


WITH_PARTS = [
    pytest.param(component, part, id=f"{component.name}: {part.name}")
    for component in sorted(COMPONENTS.iterdir())
    for part in switched_on_by(component)
]


@pytest.mark.parametrize(("component", "part"), WITH_PARTS)
def test_the_component_gives_the_pod_what_the_part_needs(component: Path, part: Part[Any]) -> None:
    yaml = text(component)
    assert ("hostPID" in yaml) is part.pod.host_pid
    assert set(re.findall(r"add: \[([A-Z_, ]+)\]", yaml)) == ({", ".join(part.pod.capabilities)} - {""})
    mounts = re.findall(r"\{name: \S+, mountPath: ([^,}]+)\}", yaml)
    assert [each for each in mounts if not each.startswith("/var/lib/kubelet")] == list(part.pod.mounts)
    assert set(part.pod.environment.items()) <= set(re.findall(r"\{name: (\w+), value: (\w+)\}", yaml))
