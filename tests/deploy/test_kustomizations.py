"""The kustomizations and manifests of deploy/ fit together, and fit the programs that they start."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from gas.daemon.flags import CommandLine, Flag, flags_of, read_flags
from gas.extender.command_line import COMMAND_LINE
from gas.extender.flags import Flags as ExtenderFlags
from gas.inspection.page.flags import Flags as PageFlags
from gas.plugin.flags import COMMAND_LINE as PLUGIN_LINE
from gas.plugin.flags import Flags as PluginFlags
from tests.deploy.manifests import BASE, COMPONENTS, DEPLOY, KUSTOMIZATIONS, Manifest, container, local_files, one, read

ROOT = DEPLOY.parent
EXTENDER = one(BASE / "extender", "Deployment")
PLUGIN = one(BASE / "plugin", "DaemonSet")
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]


def flags_by_name(program: CommandLine[Any]) -> dict[str, Flag]:
    return {flag.name: flag for flag in flags_of(program)}


def labels_of(workload: Manifest) -> dict[str, str]:
    labels: dict[str, str] = workload["spec"]["template"]["metadata"]["labels"]
    return labels


def ports_of(workload: Manifest) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for port in container(workload)["ports"]}


@pytest.mark.parametrize("kustomization", KUSTOMIZATIONS, ids=lambda file: str(file.parent.relative_to(DEPLOY)))
def test_what_a_kustomization_names_is_there(kustomization: Path) -> None:
    for file in local_files(kustomization):
        assert file.is_file() or (file / "kustomization.yaml").is_file(), file


@pytest.mark.parametrize("directory", sorted({file.parent for file in KUSTOMIZATIONS}), ids=lambda path: path.name)
def test_every_file_beside_a_kustomization_is_part_of_it(directory: Path) -> None:
    named = {file.resolve() for file in local_files(directory / "kustomization.yaml")}
    assert {file.resolve() for file in directory.glob("*.[yj]*") if file.name != "kustomization.yaml"} <= named


@pytest.mark.parametrize(
    ("workload", "program"),
    [pytest.param(EXTENDER, COMMAND_LINE, id="extender"), pytest.param(PLUGIN, PLUGIN_LINE, id="plugin")],
)
def test_the_arguments_are_flags_of_the_program(workload: Manifest, program: CommandLine[Any]) -> None:
    for argument in container(workload)["args"]:
        name, _, value = argument.removeprefix("--").partition("=")
        flags_by_name(program)[name].parse(value if "=" in argument else "true")


def test_the_arguments_that_components_add_are_flags_of_the_programs() -> None:
    found = {
        flag
        for file in COMPONENTS.rglob("kustomization.yaml")
        for flag in re.findall(r"value: --([A-Za-z-]+)", file.read_text(encoding="utf-8"))
    }
    assert len(found) > 5
    assert found <= flags_by_name(COMMAND_LINE).keys() | flags_by_name(PLUGIN_LINE).keys()


def test_the_component_page_adds_a_container_with_the_port_that_the_pages_and_the_chart_name() -> None:
    (patch,) = read(COMPONENTS / "page/deployment.yaml")
    assert patch["metadata"] == {"name": EXTENDER["metadata"]["name"], "namespace": "default"}
    extender, page = patch["spec"]["template"]["spec"]["containers"]
    assert extender == {"name": container(EXTENDER)["name"]}  # kustomize keeps it in front
    assert page["securityContext"] == container(EXTENDER)["securityContext"]
    port = read(ROOT / "deploy/chart/values.yaml")[0]["page"]["port"]
    assert read_flags(PageFlags, page["args"]).page_port == port
    assert f"deployment/{EXTENDER['metadata']['name']} {port}" in (ROOT / "docs/page.md").read_text(encoding="utf-8")


def test_the_ports_are_those_of_the_programs() -> None:
    extender, plugin = ExtenderFlags(), PluginFlags()
    assert ports_of(EXTENDER) == {"extender": extender.port, "metrics": extender.metrics_port}
    assert ports_of(PLUGIN) == {"metrics": plugin.metrics_port}
    for workload in (EXTENDER, PLUGIN):
        for probe in ("readinessProbe", "livenessProbe"):
            assert container(workload)[probe]["httpGet"]["port"] in ports_of(workload)


def test_the_service_leads_to_the_extender_and_to_nothing_else() -> None:
    service = one(BASE / "extender", "Service")["spec"]
    assert service["selector"].items() <= labels_of(EXTENDER).items()
    assert not service["selector"].items() <= labels_of(PLUGIN).items()
    assert [(port["port"], port["targetPort"]) for port in service["ports"]] == [(9001, 9001)]


@pytest.mark.parametrize(
    ("selected", "workload"),
    [
        pytest.param(EXTENDER["spec"]["selector"], EXTENDER, id="the Deployment"),
        pytest.param(PLUGIN["spec"]["selector"], PLUGIN, id="the DaemonSet"),
        pytest.param(one(BASE / "extender", "NetworkPolicy")["spec"]["podSelector"], EXTENDER, id="extender's network"),
        pytest.param(one(BASE / "plugin", "NetworkPolicy")["spec"]["podSelector"], PLUGIN, id="the plugin's network"),
        pytest.param(
            one(COMPONENTS / "leader-election", "PodDisruptionBudget")["spec"]["selector"], EXTENDER, id="the budget"
        ),
    ],
)
def test_a_selector_finds_its_pods_and_no_others(selected: Manifest, workload: Manifest) -> None:
    other = PLUGIN if workload is EXTENDER else EXTENDER
    assert selected["matchLabels"].items() <= labels_of(workload).items()
    assert not selected["matchLabels"].items() <= labels_of(other).items()


def test_pod_monitors_name_ports_that_are_there() -> None:
    monitors = {each["metadata"]["name"]: each["spec"] for each in read(COMPONENTS / "monitoring/pod-monitors.yaml")}
    for name, workload in (("gas-extender", EXTENDER), ("gas-plugin", PLUGIN)):
        assert monitors[name]["selector"]["matchLabels"].items() <= labels_of(workload).items()
        for endpoint in monitors[name]["podMetricsEndpoints"]:
            assert endpoint["port"] in ports_of(workload)


# contract E14.1
def test_what_the_original_cannot_change_is_as_it_was() -> None:
    """Names, and the selector, which cannot be changed in an existing Deployment."""
    assert EXTENDER["metadata"]["name"] == "gpu-aware-scheduling"
    assert EXTENDER["metadata"]["namespace"] == "default"
    assert EXTENDER["spec"]["selector"] == {"matchLabels": {"app": "gas"}}
    assert container(EXTENDER)["name"] == "gasext"
    (volume,) = EXTENDER["spec"]["template"]["spec"]["volumes"]
    assert volume["secret"]["secretName"] == "extender-secret"
    assert one(BASE / "extender", "Service")["metadata"]["name"] == "gas-service"
    assert one(BASE / "extender", "ServiceAccount")["metadata"]["name"] == "gpu-aware-scheduling-service-account"
    assert one(BASE / "extender", "ClusterRole")["metadata"]["name"] == "gas-handler"


# contract E14.2
def test_the_extender_is_unprivileged_and_mounts_its_certificates() -> None:
    pod = EXTENDER["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    (volume,) = pod["volumes"]
    (mount,) = container(EXTENDER)["volumeMounts"]
    assert (mount["name"], mount["mountPath"]) == (volume["name"], "/gas/cert")


# contract E14.2
@pytest.mark.parametrize("directory", [BASE / "extender", COMPONENTS / "page"], ids=["extender", "page"])
def test_extender_and_page_have_no_capabilities_and_write_no_files(directory: Path) -> None:
    last = one(directory, "Deployment")["spec"]["template"]["spec"]["containers"][-1]
    restricted = {"readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}, "allowPrivilegeEscalation": False}
    assert last["securityContext"] == restricted


@pytest.mark.parametrize(
    ("account", "is_limited"),
    [
        pytest.param("system:serviceaccount:default:gas-plugin", True, id="as in the base"),
        pytest.param("system:serviceaccount:gpu:gas-plugin", True, id="in another namespace"),
        pytest.param("system:serviceaccount:gpu:my-gas-plugin", True, id="with a namePrefix"),
        pytest.param("system:serviceaccount:gpu:gas-plugin-b", True, id="with a nameSuffix"),
        pytest.param("system:serviceaccount:gas-plugin:default", False, id="in a namespace of that name"),
        pytest.param("system:serviceaccount:default:gpu-aware-scheduling-service-account", False, id="the extender"),
        pytest.param("gas-plugin", False, id="a user of that name"),
    ],
)
def test_the_admission_policy_limits_the_account_of_the_plugin(account: str, *, is_limited: bool) -> None:
    (condition,) = one(BASE / "plugin", "ValidatingAdmissionPolicy")["spec"]["matchConditions"]
    pattern = condition["expression"].removeprefix("request.userInfo.username.matches('").removesuffix("')")
    assert bool(re.search(pattern, account)) is is_limited
    assert one(BASE / "plugin", "ServiceAccount")["metadata"]["name"] == "gas-plugin"


def test_the_admission_policy_guards_every_field_of_a_status_but_those_that_the_plugin_writes() -> None:
    """A list of guarded fields would lack those of the next release of Kubernetes."""
    policy = one(BASE / "plugin", "ValidatingAdmissionPolicy")["spec"]
    expressions = [each["expression"] for part in ("variables", "validations") for each in policy[part]]
    named = {name for each in expressions for name in re.findall(r"[sS]tatus\.\??([a-zA-Z]+)", each)}
    assert named - {"all", "orValue"} == {"capacity", "allocatable"}
    assert sum("name in ['capacity', 'allocatable']" in each for each in expressions) == 1


def test_objects_of_the_whole_cluster_have_no_namespace() -> None:
    """With `namespace:` kustomize gives policies a namespace too, because it does not know that kind."""
    for directory in (BASE / "extender", BASE / "plugin"):
        written = [each for file in sorted(directory.glob("*.yaml")) for each in read(file)]
        (kustomization,) = [each for each in written if each["kind"] == "Kustomization"]
        has_policy = any(each["kind"].startswith("ValidatingAdmissionPolicy") for each in written)
        assert not (has_policy and "namespace" in kustomization)
        for each in written:
            if each["kind"] == "Kustomization":
                continue
            of_cluster = each["kind"].startswith(("ClusterRole", "ValidatingAdmissionPolicy"))
            assert each["metadata"].get("namespace") == (None if of_cluster else "default"), each["kind"]


def test_manifests_and_image_are_of_this_version() -> None:
    for workload in (EXTENDER, PLUGIN):
        assert container(workload)["image"] == f"gas:{VERSION}"
    assert f"ARG VERSION={VERSION}\n" in (ROOT / "Containerfile").read_text(encoding="utf-8")


def test_the_builder_gets_everything_that_the_containerfile_copies() -> None:
    sent = (ROOT / ".containerignore").read_text(encoding="utf-8").splitlines()
    assert "*" in sent
    for line in re.findall(
        r"^COPY (?!--from)(.*) \S+$", (ROOT / "Containerfile").read_text(encoding="utf-8"), re.MULTILINE
    ):
        for source in line.split():
            assert (ROOT / source).exists(), source
            assert any(f"!{parent}" in sent for parent in (source, *map(str, Path(source).parents))), source
