"""The DaemonSet for nodes with NVIDIA's cards: its kustomization beside that of the other one."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml

from gas.extender.command_line import parse_flags as parse_extender_flags
from gas.plugin.flags import parse_flags
from tests.deploy.manifests import BASE, COMPONENTS, arguments, container, one, read

INTEL = one(BASE / "plugin", "DaemonSet")
NVIDIA = one(COMPONENTS / "nvidia", "DaemonSet")
LABEL = "nvidia.com/gpu.present"


def pod_of(workload: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = copy.deepcopy(workload["spec"]["template"]["spec"])
    return spec


def patch(kind: str) -> dict[str, Any]:
    """Return the one operation of the component on an object of this kind."""
    (component,) = read(COMPONENTS / "nvidia/kustomization.yaml")
    (of_kind,) = (each for each in component["patches"] if each["target"]["kind"] == kind)
    (operation,) = yaml.safe_load(of_kind["patch"])
    found: dict[str, Any] = operation
    return found


def test_it_differs_from_intels_only_by_cards_nodes_and_runtime() -> None:
    nvidia, intel = pod_of(NVIDIA), pod_of(INTEL)
    assert parse_flags(nvidia["containers"][0].pop("args"), environ={}).card_sources == {"nvml"}
    assert intel["containers"][0].pop("args") == []
    (_, *added) = nvidia["containers"][0]["env"]
    assert added == [
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
        {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "utility"},
    ]
    del nvidia["containers"][0]["env"][1:]
    assert nvidia["nodeSelector"].pop(LABEL) == "true"
    assert nvidia == intel
    assert container(NVIDIA)["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_its_pods_are_its_own() -> None:
    labels = NVIDIA["spec"]["template"]["metadata"]["labels"]
    assert labels["app"] == NVIDIA["metadata"]["name"] == "gas-plugin-nvidia"
    assert NVIDIA["spec"]["selector"]["matchLabels"] == {"app": "gas-plugin-nvidia"}
    operation = patch("NetworkPolicy")
    (expression,) = operation["value"]["matchExpressions"]
    assert expression == {"key": "app", "operator": "In", "values": ["gas-plugin", "gas-plugin-nvidia"]}
    assert operation["path"] == "/spec/podSelector"


def test_the_other_daemonset_leaves_its_nodes_alone() -> None:
    operation = patch("DaemonSet")
    assert operation["value"] == {"key": LABEL, "operator": "NotIn", "values": ["true"]}
    *path, end = operation["path"].strip("/").split("/")
    found: Any = INTEL
    for part in path:
        found = found[int(part) if part.isdigit() else part]
    assert (path[-1], end, type(found)) == ("matchExpressions", "-", list)


@pytest.mark.parametrize(
    ("overlay", "vocabularies"),
    [
        ("nvidia", ["intel", "vendor"]),
        ("aliyun-nvidia", ["intel", "aliyun", "vendor"]),
        ("koordinator-nvidia", ["intel", "koordinator", "vendor"]),
        ("hami-nvidia", ["intel", "hami", "vendor"]),
        ("kubeshare-nvidia", ["intel", "kubeshare", "vendor"]),
    ],
)
def test_an_overlay_gives_all_programs_the_same_vocabularies(overlay: str, vocabularies: list[str]) -> None:
    extender = parse_extender_flags(arguments(overlay, "gpu-aware-scheduling"))
    intel, nvidia = (parse_flags(arguments(overlay, name), environ={}) for name in ("gas-plugin", "gas-plugin-nvidia"))
    assert sorted(each.name for each in extender.vocabularies) == sorted(vocabularies)
    assert extender.vocabularies == intel.vocabularies == nvidia.vocabularies
    assert intel.card_sources == {"sysfs"}
    assert nvidia.card_sources == {"nvml"}
    assert extender.warnings == intel.warnings == nvidia.warnings == ()


@pytest.mark.parametrize("workload", ["gpu-aware-scheduling", "gas-plugin", "gas-plugin-nvidia"])
def test_aliyuns_memory_is_counted_as_its_own_plugin_counts_it_by_default(workload: str) -> None:
    assert "--aliyun-unit=GiB" in arguments("aliyun-nvidia", workload)
