"""The parts of the Helm chart that need no Helm: values, schema, page, and copies of the kustomizations' files."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from gas.daemon.flags import flags_of
from gas.extender.command_line import COMMAND_LINE
from gas.plugin.flags import COMMAND_LINE as PLUGIN
from tests.deploy.json_schema import KEYWORDS, Schema, parts, problems, resolved
from tests.deploy.manifests import BASE, COMPONENTS, DEPLOY, ROOT, read
from tests.e2e.helm import documented_values

CHART = DEPLOY / "chart"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
SCHEMA: Schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
TEMPLATES = {file.name: file.read_text(encoding="utf-8") for file in sorted((CHART / "templates").iterdir())}
PAGE = (ROOT / "docs/chart.md").read_text(encoding="utf-8")

FREE = (
    "/properties/global",
    "/nodeAffinity",
    "/podAffinity",
    "/podAntiAffinity",
    "/namespaceSelector",
    "/podSelector",
    "/ipBlock",
    "/valueFrom",
    "/volumes/items",
    "/claims/items",
    "/configuration",
    "/profile",
    "/extraExtenders/items",
)
"""Kubernetes objects that the chart passes on unchecked."""

_EVERY_PODS_OWN = {"kubeConfig", "metrics-port", "metrics-address", "version", "help"}
_LEADING = {"leader-elect", "lease-name", "lease-namespace"}
_ADMISSION = {
    "admission-port",
    "admission-certificate",
    "admission-key",
    "admission-client-ca",
    "admission-client-names",
    "admission-scheduler-name",
}
CHARTS_OWN = {
    "extender": {*_EVERY_PODS_OWN, *_LEADING, *_ADMISSION, "port", "bind-address", "cert", "key", "cacert"},
    "plugin": {*_EVERY_PODS_OWN, "node-name", "kubelet-dir", "device-plugins-dir", "uninstall"},
}
"""Flags that the chart sets itself, because they must fit the rest of the pod."""

TABLES = {
    "extender": {flag.name: flag for flag in COMMAND_LINE.flags},
    "plugin": {flag.name: flag for flag in flags_of(PLUGIN)},
}


@pytest.mark.parametrize("template", ["extender-deployment.yaml", "_page.tpl"])
def test_extender_and_page_have_no_capabilities(template: str) -> None:
    assert re.search(r'securityContext:\n *{{- include "gas.restricted" ', TEMPLATES[template])
    assert re.search(r'define "gas.restricted" -}}[^{]*\ncapabilities:\n  drop: \[ALL\]\n{{', TEMPLATES["_objects.tpl"])


def flag_schemas(component: str) -> dict[str, Schema]:
    found: dict[str, Schema] = SCHEMA["properties"][component]["properties"]["flags"]["properties"]
    return {name: resolved(each, SCHEMA) for name, each in found.items()}


def test_the_schema_is_one() -> None:
    assert SCHEMA["$schema"] == "http://json-schema.org/draft-07/schema#"
    used = set()
    for where, part in parts(SCHEMA):
        assert part.keys() <= KEYWORDS, where
        if "$ref" in part:
            assert part.keys() == {"$ref"}, f"{where}: in draft 7 nothing counts beside $ref"
            used.add(part["$ref"].removeprefix("#/definitions/"))
            resolved(part, SCHEMA)
        if "pattern" in part:
            re.compile(part["pattern"])
    assert used == SCHEMA["definitions"].keys()


def test_the_schema_knows_every_name_of_every_object() -> None:
    """So that a typo is refused, wherever it is."""
    for where, part in parts(SCHEMA):
        if part.get("type") == "object" and part.get("additionalProperties") is not False:
            is_map = isinstance(part.get("additionalProperties"), dict)
            assert is_map or where.endswith(FREE), where
        elif "properties" in part:
            assert part["additionalProperties"] is False, where


def test_the_schema_has_the_values_that_there_are_and_no_others() -> None:
    def compare(values: Mapping[str, Any], schema: Schema, where: str) -> None:
        named = schema["properties"].keys() - ({"global"} if not where else set())
        assert values.keys() == named, where
        for name, value in values.items():
            below = resolved(schema["properties"][name], SCHEMA)
            if name != "flags" and "properties" in below and value:
                compare(value, below | {"properties": _present(below, value)}, f"{where}.{name}")

    compare(VALUES, SCHEMA, "")
    assert list(problems(VALUES, SCHEMA, SCHEMA)) == []


def _present(schema: Schema, value: Mapping[str, Any]) -> Schema:
    """Of the parts of a Kubernetes object, whose defaults are the API server's, those that are given."""
    is_kubernetes = schema in (resolved({"$ref": "#/definitions/resources"}, SCHEMA),)
    properties: Schema = schema["properties"]
    return {name: each for name, each in properties.items() if name in value} if is_kubernetes else properties


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({"extender": {"replica": 2}}, id="a typo"),
        pytest.param({"extender": {"replicas": "2"}}, id="text for a number"),
        pytest.param({"extender": {"replicas": -1}}, id="a negative number"),
        pytest.param({"extender": {"port": 70000}}, id="no port"),
        pytest.param({"extender": {"flags": {"enableAllowlist": "yes"}}}, id="text for a boolean"),
        pytest.param({"extender": {"flags": {"--v": 2}}}, id="a flag with dashes"),
        pytest.param({"extender": {"extraArgs": ["v=2"]}}, id="an argument without dashes"),
        pytest.param({"plugin": {"flags": {"write-node": "NFD"}}}, id="a choice that is none"),
        pytest.param({"plugin": {"flags": {"deny-ids": "0x56c0"}}}, id="text for a list"),
        pytest.param({"image": {"tag": 1.2}}, id="a number for text"),
        pytest.param({"image": {"repository": "Gas"}}, id="no name of an image"),
        pytest.param({"scheduler": {"configuration": {"extenders": []}}}, id="what the chart decides"),
        pytest.param({"scheduler": {"profile": {"schedulerName": "x"}}}, id="the name in the wrong place"),
        pytest.param({"scheduler": {"image": {"pullSecrets": ["x"]}}}, id="a value of the other image"),
        pytest.param({"monitoring": True}, id="a boolean for an object"),
        pytest.param({"tolerations": []}, id="one floor too high"),
        pytest.param({"extender": {"flags": {"allowed-names": []}}}, id="no name, which would allow every client"),
        pytest.param({"plugin": {"podLabels": {"app": "x"}}}, id="a label that the chart sets"),
        pytest.param({"admission": {"timeoutSeconds": 31}}, id="a time-out that the API server refuses"),
        pytest.param({"admission": {"timeoutSeconds": 1}}, id="a time-out that the extender may not keep"),
        pytest.param({"admission": {"strictUsers": ["it's"]}}, id="a user that would end a text in CEL"),
        pytest.param({"admission": {"caBundle": "bm9uZQ=="}}, id="an authority that is not PEM"),
    ],
)
def test_the_schema_refuses(values: dict[str, Any]) -> None:
    assert list(problems(with_defaults(values), SCHEMA, SCHEMA))


def with_defaults(values: Mapping[str, Any], defaults: Mapping[str, Any] = VALUES) -> dict[str, Any]:
    """As Helm puts them together before it looks at the schema; a value of null takes a default away."""
    both = {**defaults, **values}
    for name, value in values.items():
        if isinstance(value, Mapping) and isinstance(defaults.get(name), Mapping):
            both[name] = with_defaults(value, defaults[name])
    return {name: value for name, value in both.items() if value is not None}


@pytest.mark.parametrize("section", [name for name, value in VALUES.items() if isinstance(value, Mapping)])
def test_a_section_that_is_left_empty_is_missed(section: str) -> None:
    """``plugin:`` with nothing below it, or only comments."""
    assert list(problems(with_defaults({section: None}), SCHEMA, SCHEMA)) == [f": {section} is missing"]


@pytest.mark.parametrize("name", ["plugin.tolerations", "plugin.seLinuxOptions", "extender.resources", "image.tag"])
def test_a_default_may_be_taken_away(name: str) -> None:
    section, value = name.split(".")
    assert list(problems(with_defaults({section: {value: None}}), SCHEMA, SCHEMA)) == []


@pytest.mark.parametrize("component", TABLES)
def test_flags_are_those_of_the_program_that_are_not_the_charts_own(component: str) -> None:
    assert flag_schemas(component).keys() == TABLES[component].keys() - CHARTS_OWN[component]
    assert CHARTS_OWN[component] <= TABLES[component].keys()


@pytest.mark.parametrize(
    ("component", "name"), [(component, name) for component in TABLES for name in flag_schemas(component)]
)
def test_what_the_schema_lets_through_for_a_flag_the_program_takes(component: str, name: str) -> None:
    schema, flag = flag_schemas(component)[name], TABLES[component][name]
    assert (schema.get("type") == "boolean") == flag.is_boolean
    examples = list(_examples(schema))
    assert examples
    for example in examples:
        assert list(problems(example, schema, SCHEMA)) == []
        flag.parse(_as_argument(example))


STRINGS = (
    *("20s", "1.5m", "500ms", "/a/b-c.json", "millicores", "natural", "best-fit=tiles", "used-first"),
    "gpu=example.com/vgpu,gpumem=example.com/vmem",
)


def _examples(schema: Schema) -> Iterator[Any]:
    if "enum" in schema:
        yield from schema["enum"]
    elif schema["type"] == "boolean":
        yield from (True, False)
    elif schema["type"] == "integer":
        yield from (schema["minimum"], 1000)
    elif schema["type"] == "number":
        yield from (0.5, 1000)
    elif schema["type"] == "array":
        yield from (
            each
            for each in (["0x56c0", "0x56C1"], ["kube-scheduler", "a.b"], ["intel"], ["sysfs"], ["catalogue", "31-32"])
            if _fits(each, schema)
        )
    elif schema["type"] == "string":
        yield from (each for each in STRINGS if _fits(each, schema))


def _as_argument(value: object) -> str:
    """As the chart writes it after the flag's equals sign."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, list) else str(value)


def _fits(value: object, schema: Schema) -> bool:
    return not list(problems(value, schema, SCHEMA))


def test_every_value_is_used() -> None:
    templates = "\n".join(TEMPLATES.values())

    def leaves(values: Mapping[str, Any], schema: Schema) -> Iterator[str]:
        for name, value in values.items():
            below = resolved(schema["properties"][name], SCHEMA)
            yield name
            if value and name not in ("flags", "resources", "issuer") and "properties" in below:
                yield from leaves(value, below)

    for name in leaves(VALUES, SCHEMA):
        assert re.search(rf"\.{name}\b", templates), name


def test_names_are_those_of_the_kustomizations() -> None:
    (plain, overridden) = re.findall(r"\$names :?= dict\n(.*?)-\}\}", TEMPLATES["_names.tpl"], re.DOTALL)
    names = dict(re.findall(r'"(\w+)" "([a-z-]+)"', plain))
    assert list(names) == re.findall(r'^  "(\w+)" ', overridden, re.MULTILINE)
    files = [file for folder in (BASE, COMPONENTS) for file in folder.rglob("*.yaml")]
    made = {
        each["metadata"]["name"]
        for file in files
        if file.name != "kustomization.yaml"
        for each in read(file)
        if "metadata" in each
    }
    kept = {"app", "lease", "secret", "clientSecret", "authority", "certificates", "scheduler", "dashboard"}
    assert {name for key, name in names.items() if key not in kept} <= made
    assert made <= {
        *names.values(),
        f"{names['plugin']}-own-node-only",
        "gas-system",
        "sharepods.kubeshare.nthu",
        "gas-sharepods",
        "v1alpha1.explain.gas",
        f"{names['plugin']}-nvidia",
    }


def alert_texts(rules: str) -> list[str]:
    """Return the expressions and annotations of a file of alerts."""
    return [
        text
        for group in yaml.safe_load(rules)["spec"]["groups"]
        for rule in group["rules"]
        for text in (rule["expr"], *rule["annotations"].values())
    ]


def test_alerts_name_the_charts_own_workloads() -> None:
    """Another name than the original's replaces it in every text of an alert, wherever a line of the file ends."""
    replaced = re.findall(r'replace "([^"]+)" \(printf "([^"]+)" \$names\.(\w+)\)', TEMPLATES["monitoring.yaml"])
    assert [name for _, _, name in replaced] == ["extender", "plugin"]
    rules = renamed = (CHART / "files/alerts.yaml").read_text(encoding="utf-8")
    for before, after, name in replaced:
        assert before in rules
        renamed = renamed.replace(before, after % f"other-{name}")
    texts = alert_texts(renamed)
    for before, after in (
        ("Deployment gpu-aware-scheduling", "Deployment other-extender"),
        ("the gas-plugin pod", "the other-plugin pod"),
    ):
        assert sum(after in text for text in texts) == sum(before in text for text in alert_texts(rules)) > 0
    assert [text for text in texts if re.search("gpu-aware-scheduling|gas-plugin", text)] == []


@pytest.mark.parametrize(
    ("version", "release"),
    [
        pytest.param("v1.34.4", "v1.34.4", id="three numbers"),
        pytest.param("v1.34.4-gke.1", "v1.34.4", id="a vendor's suffix"),
        pytest.param("v1.34", "v1.34", id="two numbers, as helm template --kube-version=1.34 gives them"),
    ],
)
def test_every_form_of_the_clusters_version_is_read(version: str, release: str) -> None:
    patterns = {
        pattern
        for text in TEMPLATES.values()
        for pattern in re.findall(r'regexFind "([^"]+)" [.\w]*Capabilities\.KubeVersion\.Version', text)
    }
    assert len(patterns) == 1
    for pattern in patterns:
        found = re.search(pattern, version)
        assert found is not None
        assert found[0] == release


def test_versions_are_the_projects() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert chart["version"] == str(chart["appVersion"]) == project["version"]


@pytest.mark.parametrize("name", documented_values())
def test_documented_values_are_values(name: str) -> None:
    assert list(problems(with_defaults(yaml.safe_load(documented_values()[name])), SCHEMA, SCHEMA)) == []


def test_values_that_the_page_names_are_there() -> None:
    named = set(
        re.findall(r"`((?:image|certificates|rbac|extender|admission|plugin|scheduler|monitoring)\.[A-Za-z.]+)", PAGE)
    )
    assert len(named) > 10
    for path in named:
        value: Any = VALUES
        for step in path.split("."):
            value = value[step]


def test_everything_that_the_chart_makes_has_its_file() -> None:
    """Files of templates are parts or whole objects, by Helm's rule that names with an underscore make nothing."""
    for name, text in TEMPLATES.items():
        makes = re.search(r"^kind: ", text, re.MULTILINE) is not None
        assert makes == (not name.startswith("_") and name != "NOTES.txt"), name
