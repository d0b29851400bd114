"""The statements of deploy/ and the configurator about vocabularies agree with the vocabularies themselves."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from configurator.plan import BUILT_IN_TEMPLATE
from gas.daemon.flags import flags_of
from gas.extender.flags import parse_flags as parse_extender_flags
from gas.plugin.flags import Flags as PluginFlags
from gas.plugin.flags import parse_flags as parse_plugin_flags
from gas.vocabularies import DEFAULT, KNOWN
from gas.vocabulary import DeviceOptions, Vocabularies
from tests.builders import pod
from tests.deploy.manifests import BASE, COMPONENTS, DEPLOY, read
from tests.other_words import asking
from tests.plugin.gpus import gpu

TEMPLATE = (DEPLOY / "chart/templates/_scheduler.tpl").read_text(encoding="utf-8")
POLICY = (BASE / "plugin/own-node-only.yaml").read_text(encoding="utf-8")
CONFIGURATIONS = [BUILT_IN_TEMPLATE, *sorted((DEPLOY / "extender-configuration").glob("*.yaml"))]


def extenders(value: object) -> Iterator[dict[str, Any]]:
    """Yield every entry of an extender in a document, and in the documents that are texts in it."""
    if isinstance(value, dict):
        if "managedResources" in value:
            yield value
        for each in value.values():
            yield from extenders(each)
    elif isinstance(value, list):
        for each in value:
            yield from extenders(each)
    elif isinstance(value, str) and "managedResources" in value:
        yield from extenders(yaml.safe_load(value))


def test_every_configuration_of_kube_scheduler_manages_the_resources_of_the_default_vocabulary() -> None:
    compared = 0
    for file in CONFIGURATIONS:
        for document in read(file):
            for entry in extenders(document):
                if "gas-service" in entry["urlPrefix"]:
                    names = tuple(each["name"] for each in entry["managedResources"])
                    assert names == DEFAULT.managed_resources, file
                    compared += 1
    assert compared >= 5


@pytest.mark.parametrize("vocabulary", KNOWN, ids=lambda each: each.name)
def test_the_chart_knows_the_resources_of_each_vocabulary(vocabulary: Any) -> None:
    (known,) = re.findall(rf'"{vocabulary.name}" \(list ([^)]*)\)', TEMPLATE)
    assert tuple(known.replace('"', "").split()) == Vocabularies([vocabulary]).managed_resources


def test_the_chart_knows_no_other_vocabulary() -> None:
    (known,) = re.findall(r"\$known := dict\n(.*?)\n-}}", TEMPLATE, re.DOTALL)
    assert re.findall(r'^\s*"([^"]*)" \(list', known, re.MULTILINE) == [each.name for each in KNOWN]


@pytest.mark.parametrize("vocabulary", KNOWN, ids=lambda each: each.name)
def test_the_admission_policy_lets_through_what_the_plugin_writes(vocabulary: Any) -> None:
    spoken = Vocabularies([vocabulary])
    description = spoken.describe([gpu(0), gpu(1, memory=9_000_000_000)], DeviceOptions(pci_grouping_level=1))
    for name in (*description.labels, *description.resources):
        assert name.startswith("gpu.intel.com/") or f"'{name}'" in POLICY
    bound = pod(asking(gpu_mem=1), asking("other", nvidia=1), annotations={"ALIYUN_COM_GPU_MEM_IDX": "0"})
    for name in (*description.annotations, *vocabulary.devices.after_allocate(bound)):
        assert f"'{name}'" in POLICY


def test_the_component_switches_the_same_vocabularies_on_in_both_programs() -> None:
    (component,) = read(COMPONENTS / "aliyun/kustomization.yaml")
    extender, plugin = (
        [each["value"] for each in yaml.safe_load(patch["patch"]) if each["op"] == "add"]
        for patch in component["patches"]
    )
    assert [patch["target"]["kind"] for patch in component["patches"]] == ["Deployment", "DaemonSet"]
    spoken = [each.name for each in parse_extender_flags(extender, environ={}).vocabularies]
    assert spoken == [each.name for each in parse_plugin_flags(plugin, environ={}, host_name="n").vocabularies]
    assert spoken == ["intel", "aliyun"]


def test_the_chart_accepts_the_units() -> None:
    schema = json.loads((DEPLOY / "chart/values.schema.json").read_text(encoding="utf-8"))
    (unit,) = (each for each in flags_of(PluginFlags) if each.name == "aliyun-unit")
    for program in ("extender", "plugin"):
        accepted = schema["properties"][program]["properties"]["flags"]["properties"]["aliyun-unit"]["enum"]
        assert [str(unit.parse(text)) for text in accepted] == ["MiB", "GiB"]


def test_the_pages_of_the_component_exist() -> None:
    (comment,) = re.findall(r"docs/[a-z-]+\.md", (COMPONENTS / "aliyun/kustomization.yaml").read_text(encoding="utf-8"))
    assert (DEPLOY.parent / Path(comment)).is_file()
