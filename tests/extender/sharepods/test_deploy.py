"""SharePods in flags and in deploy/: the component, its rights and the definition of the kind."""

from __future__ import annotations

import msgspec
import yaml

from gas.cluster import paths
from gas.extender.command_line import parse_flags
from gas.extender.sharepods.part import SHAREPODS
from gas.vocabularies.kubeshare.sharepod import API_VERSION, KIND, MadePod, SharePod, status_of
from tests.deploy.manifests import COMPONENTS, DEPLOY, read


def test_sharepods_are_switched_on_with_the_rights_that_the_chart_states() -> None:
    (component,) = read(COMPONENTS / "sharepods/kustomization.yaml")
    (flag,), *rules = (
        [each["value"] for each in yaml.safe_load(patch["patch"]) if each["op"] == "add"]
        for patch in component["patches"]
    )
    assert SHAREPODS.is_on(parse_flags([flag, "--vocabularies=kubeshare"]))
    (given,) = rules
    charted = yaml.safe_load((DEPLOY / "chart/files/extender-rules.yaml").read_text(encoding="utf-8"))
    assert sorted(charted["flags"]["sharepods"], key=str) == sorted(given, key=str)


def test_the_definition_is_of_the_kind_that_the_controller_serves() -> None:
    definition, *_ = read(COMPONENTS / "sharepods/definition.yaml")
    spec = definition["spec"]
    (version,) = spec["versions"]
    assert f"/apis/{spec['group']}/{version['name']}/{spec['names']['plural']}" == paths.SHAREPODS
    assert (f"{spec['group']}/{version['name']}", spec["names"]["kind"]) == (API_VERSION, KIND)
    shown = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    share = msgspec.convert({"metadata": {}, "status": {"BoundDeviceID": "", "PodManagerPort": 1}}, SharePod)
    made = msgspec.convert({"metadata": {}, "spec": {"nodeName": "n"}}, MadePod)
    assert {*status_of(share, made, {}), "message"} == set(shown)


def test_the_kind_stays_when_gas_is_removed() -> None:
    definition, *others = read(COMPONENTS / "sharepods/definition.yaml")
    component = "app.kubernetes.io/component"
    assert definition["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert definition["metadata"]["labels"][component] not in [each["metadata"]["labels"][component] for each in others]
    guide = (DEPLOY.parent / "docs/from-kubeshare.md").read_text(encoding="utf-8")
    assert f"-l {component}!={definition['metadata']['labels'][component]}`" in guide


def test_sharepods_need_their_vocabulary() -> None:
    assert not SHAREPODS.is_on(parse_flags([]))
    assert SHAREPODS.is_on(parse_flags(["--sharepods", "--vocabularies=intel,kubeshare"]))
    ignored = parse_flags(["--sharepods"])
    assert not SHAREPODS.is_on(ignored)
    assert ignored.warnings == ("ignored: --sharepods; it needs kubeshare among --vocabularies",)
