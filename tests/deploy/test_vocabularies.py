"""The statements of deploy/ and the configurator about vocabularies agree with the vocabularies themselves."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from configurator.plan import BUILT_IN_TEMPLATE
from gas.cluster import paths
from gas.daemon.flags import flags_of
from gas.extender.command_line import parse_flags as parse_extender_flags
from gas.extender.sharepods.part import SHAREPODS
from gas.plugin.flags import Flags as PluginFlags
from gas.plugin.flags import parse_flags as parse_plugin_flags
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.known import DEFAULT, KNOWN
from gas.vocabularies.kubeshare.sharepod import API_VERSION, KIND, MadePod, status_of
from gas.vocabularies.protocol import DeviceOptions
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


COMPONENTS_OF_WORDS = {
    "aliyun": ["intel", "aliyun"],
    "koordinator": ["intel", "koordinator", "vendor"],
    "kubeshare": ["intel", "kubeshare"],
}


@pytest.mark.parametrize("name", COMPONENTS_OF_WORDS)
def test_a_component_switches_the_same_vocabularies_on_in_both_programs(name: str) -> None:
    (component,) = read(COMPONENTS / name / "kustomization.yaml")
    extender, plugin = (
        [each["value"] for each in yaml.safe_load(patch["patch"]) if each["op"] == "add"]
        for patch in component["patches"]
    )
    assert [patch["target"]["kind"] for patch in component["patches"]] == ["Deployment", "DaemonSet"]
    spoken = [each.name for each in parse_extender_flags(extender).vocabularies]
    assert spoken == [each.name for each in parse_plugin_flags(plugin, environ={}, host_name="n").vocabularies]
    assert spoken == COMPONENTS_OF_WORDS[name]
    assert component["patches"][1]["target"]["name"] == "gas-plugin.*", "the one for NVIDIA's cards as well"


def test_components_can_be_combined() -> None:
    """Each adds a flag of its own, and all of them count."""
    flags = [f"--vocabularies={','.join(names)}" for names in COMPONENTS_OF_WORDS.values()]
    for parsed in (parse_extender_flags(flags), parse_plugin_flags(flags, environ={}, host_name="n")):
        spoken = [each.name for each in parsed.vocabularies]
        assert spoken == ["intel", "aliyun", "koordinator", "vendor", "kubeshare"]


def test_the_chart_accepts_the_units() -> None:
    schema = json.loads((DEPLOY / "chart/values.schema.json").read_text(encoding="utf-8"))
    (unit,) = (each for each in flags_of(PluginFlags) if each.name == "aliyun-unit")
    for program in ("extender", "plugin"):
        accepted = schema["properties"][program]["properties"]["flags"]["properties"]["aliyun-unit"]["enum"]
        assert [str(unit.parse(text)) for text in accepted] == ["MiB", "GiB"]


@pytest.mark.parametrize("name", COMPONENTS_OF_WORDS)
def test_the_page_of_a_component_exists(name: str) -> None:
    text = (COMPONENTS / name / "kustomization.yaml").read_text(encoding="utf-8")
    (comment,) = re.findall(r"docs/[a-z-]+\.md", text)
    assert (DEPLOY.parent / Path(comment)).is_file()


def test_sharepods_are_switched_on_with_the_rights_that_the_page_and_the_chart_state() -> None:
    (component,) = read(COMPONENTS / "sharepods/kustomization.yaml")
    (flag,), *rules = (
        [each["value"] for each in yaml.safe_load(patch["patch"]) if each["op"] == "add"]
        for patch in component["patches"]
    )
    assert SHAREPODS.is_on(parse_extender_flags([flag, "--vocabularies=kubeshare"]))
    (given,) = rules
    page = (DEPLOY.parent / "docs/extender.md").read_text(encoding="utf-8")
    (stated,) = re.findall(r"For `--sharepods`, add these rules:\n\n```yaml\n(.*?)```", page, re.DOTALL)
    assert yaml.safe_load(stated) == given
    role = (DEPLOY / "chart/templates/extender-role.yaml").read_text(encoding="utf-8")
    (charted,) = re.findall(r'"sharepods" }}\n(.*?){{- end', role, re.DOTALL)
    assert yaml.safe_load(charted) == given


def test_the_definition_is_of_the_kind_that_the_controller_serves() -> None:
    (definition,) = read(COMPONENTS / "sharepods/definition.yaml")
    spec = definition["spec"]
    (version,) = spec["versions"]
    assert f"/apis/{spec['group']}/{version['name']}/{spec['names']['plural']}" == paths.sharepods()
    assert (f"{spec['group']}/{version['name']}", spec["names"]["kind"]) == (API_VERSION, KIND)
    shown = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    card = msgspec.convert({"metadata": {"annotations": {"gas-container-cards": "card0"}}}, MadePod)
    assert {*status_of(card), "message"} == set(shown)
