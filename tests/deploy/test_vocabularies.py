"""The statements of deploy/ and the configurator about vocabularies agree with the vocabularies themselves."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from gas.daemon.flags import flags_of
from gas.extender.command_line import parse_flags as parse_extender_flags
from gas.plugin.flags import COMMAND_LINE as PLUGIN
from gas.plugin.flags import parse_flags as parse_plugin_flags
from gas.vocabularies.known import KNOWN
from gas.vocabularies.protocol import DeviceOptions
from tests.builders import pod
from tests.deploy.manifests import COMPONENTS, DEPLOY, read
from tests.other_words import asking
from tests.plugin.gpus import gpu


@pytest.mark.parametrize("vocabulary", KNOWN, ids=lambda each: each.name)
def test_the_admission_policy_lets_through_what_the_plugin_writes(vocabulary: Any) -> None:
    written, cards = vocabulary.written, [gpu(0), gpu(1, memory=9_000_000_000)]
    description = vocabulary.describe(cards, DeviceOptions(pci_grouping_level=1))
    assert all(name.startswith(written.labels) for name in description.labels)
    assert all(name in written.resources or name.startswith("gpu.intel.com/") for name in description.resources)
    assert description.annotations.keys() <= set(written.annotations)
    bound = pod(asking(gpu_mem=1), asking("other", nvidia=1), annotations={"ALIYUN_COM_GPU_MEM_IDX": "0"})
    assert vocabulary.after_allocate(bound).keys() <= set(written.pod_annotations)


def test_components_can_be_combined() -> None:
    """Each adds a flag of its own to both programs, and all of them count."""
    flags: dict[str, list[str]] = {"Deployment": [], "DaemonSet": []}
    for vocabulary in KNOWN:
        if vocabulary.component is not None:
            (component,) = read(COMPONENTS / vocabulary.name / "kustomization.yaml")
            for patch in component["patches"]:
                flags[patch["target"]["kind"]] += [each["value"] for each in yaml.safe_load(patch["patch"])]
    extender = parse_extender_flags(flags["Deployment"])
    plugin = parse_plugin_flags(flags["DaemonSet"], environ={}, host_name="n")
    assert [each.name for each in extender.vocabularies] == [each.name for each in KNOWN]
    assert [each.name for each in plugin.vocabularies] == [each.name for each in KNOWN]


def test_the_chart_accepts_the_units() -> None:
    schema = json.loads((DEPLOY / "chart/values.schema.json").read_text(encoding="utf-8"))
    (unit,) = (each for each in flags_of(PLUGIN) if each.name == "aliyun-unit")
    for program in ("extender", "plugin"):
        accepted = schema["properties"][program]["properties"]["flags"]["properties"]["aliyun-unit"]["enum"]
        assert [str(unit.parse(text)) for text in accepted] == ["MiB", "GiB"]


@pytest.mark.parametrize("page", [each.reference.page for each in KNOWN if each.reference.page])
def test_the_page_of_a_vocabulary_exists(page: str) -> None:
    assert (DEPLOY.parent / "docs" / page).is_file()
