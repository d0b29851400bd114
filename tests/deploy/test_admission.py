"""The admission webhooks of deploy/: what they match, which policy they have, and that a cluster can always start."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from configurator.certificate_plan import WEBHOOK_SERVICES
from configurator.flags import DEFAULT_WEBHOOKS
from gas.intel import names
from gas.vocabularies import KNOWN
from gas.vocabulary import Vocabularies, Vocabulary
from tests.deploy.manifests import BASE, COMPONENTS, DEPLOY, ROOT, Manifest, one, read

COMPONENT = COMPONENTS / "admission"
VALIDATING, MUTATING = (one(COMPONENT, f"{kind}WebhookConfiguration") for kind in ("Validating", "Mutating"))
WEBHOOKS: dict[str, Manifest] = {each["name"]: each for each in (*VALIDATING["webhooks"], *MUTATING["webhooks"])}
SERVICES = {each["metadata"]["name"]: each["spec"] for each in read(COMPONENT / "services.yaml")}
EXTENDER = one(BASE / "extender", "Deployment")
BINDING = "bind.pods.gas"
BEGINNINGS = ["gpu.intel.com/", "aliyun.com/gpu-mem", "nvidia.com/gpu", "dcu.com/gpu"]
PAGE = (ROOT / "docs/admission.md").read_text(encoding="utf-8")


def patched(name: str) -> list[dict[str, Any]]:
    """Return the operations of the component's patch of an object of the base."""
    (kustomization,) = read(COMPONENT / "kustomization.yaml")
    (patch,) = [each["patch"] for each in kustomization["patches"] if each["target"]["kind"] == name]
    operations: list[dict[str, Any]] = yaml.safe_load(patch)
    return operations


@pytest.mark.parametrize("name", WEBHOOKS)
def test_no_webhook_can_stop_a_cluster(name: str) -> None:
    webhook = WEBHOOKS[name]
    assert webhook["failurePolicy"] == "Ignore"
    assert webhook["timeoutSeconds"] <= 2
    assert webhook["admissionReviewVersions"] == ["v1"]


def test_no_other_webhook_changes_cards_after_the_extender_chose_them() -> None:
    assert WEBHOOKS[BINDING]["reinvocationPolicy"] == "IfNeeded"


@pytest.mark.parametrize("name", sorted(WEBHOOKS.keys() - {BINDING}))
def test_checks_leave_kube_system_and_pods_without_cards_to_the_api_server(name: str) -> None:
    webhook = WEBHOOKS[name]
    (expression,) = webhook["namespaceSelector"]["matchExpressions"]
    assert expression == {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"]}
    (condition,) = [each for each in webhook["matchConditions"] if each["name"] == "asks-for-cards"]
    assert beginnings_of(condition["expression"]) == BEGINNINGS
    assert webhook["sideEffects"] == "None"


def beginnings_of(expression: str) -> list[str]:
    """Return the beginnings of the names of resources that a condition looks for."""
    (listed,) = re.findall(r"\[((?:'[^']*'(?:, )?)+)\]\.exists\(beginning", expression)
    return re.findall(r"'([^']*)'", listed)


@pytest.mark.parametrize("vocabulary", KNOWN, ids=lambda each: each.name)
def test_pods_of_every_vocabulary_are_checked(vocabulary: Vocabulary) -> None:
    spoken = Vocabularies([vocabulary])
    for resource in (*spoken.managed_resources, *spoken.resources):
        assert resource.startswith(tuple(BEGINNINGS)), resource


def test_no_other_pods_are_checked() -> None:
    every = [resource for each in KNOWN for resource in Vocabularies([each]).managed_resources]
    assert [each for each in BEGINNINGS if not any(resource.startswith(each) for resource in every)] == []
    assert BEGINNINGS[0] == names.PREFIX


def test_our_own_pods_ask_for_no_cards() -> None:
    for workload in (EXTENDER, one(BASE / "plugin", "DaemonSet"), one(DEPLOY / "configurator", "Job")):
        written = str(workload["spec"]["template"]["spec"]["containers"])
        assert not any(each in written for each in BEGINNINGS)


def test_bindings_of_both_resources_are_matched_and_change_nothing_in_a_dry_run() -> None:
    (rule,) = WEBHOOKS[BINDING]["rules"]
    assert rule["resources"] == ["pods/binding", "bindings"]
    assert WEBHOOKS[BINDING]["sideEffects"] == "NoneOnDryRun"


@pytest.mark.parametrize(
    ("user", "is_skipped"),
    [
        pytest.param("system:serviceaccount:default:gpu-aware-scheduling-service-account", True, id="as in the base"),
        pytest.param("system:serviceaccount:gpu:gpu-aware-scheduling-service-account", True, id="another namespace"),
        pytest.param("system:serviceaccount:gpu:my-gpu-aware-scheduling-service-account-b", True, id="prefix, suffix"),
        pytest.param("system:serviceaccount:gpu-aware-scheduling-service-account:default", False, id="a namespace"),
        pytest.param("system:serviceaccount:x:mygpu-aware-scheduling-service-account", False, id="another name"),
        pytest.param("gpu-aware-scheduling-service-account", False, id="a user of that name"),
        pytest.param("system:kube-scheduler", False, id="kube-scheduler"),
    ],
)
def test_only_bindings_of_the_extender_itself_are_skipped(user: str, *, is_skipped: bool) -> None:
    (condition,) = WEBHOOKS[BINDING]["matchConditions"]
    (pattern,) = re.findall(r"^!request\.userInfo\.username\.matches\( ?'(.*)'\)$", condition["expression"])
    assert bool(re.search(pattern, user)) is is_skipped
    assert one(BASE / "extender", "ServiceAccount")["metadata"]["name"] == "gpu-aware-scheduling-service-account"


def test_templates_of_every_workload_are_checked() -> None:
    found = {resource for rule in WEBHOOKS["templates.pods.gas"]["rules"] for resource in rule["resources"]}
    assert found == {"deployments", "statefulsets", "daemonsets", "replicasets", "jobs", "cronjobs"}


def test_webhooks_call_services_that_lead_to_the_port_of_the_extender() -> None:
    (argument, port) = [operation["value"] for operation in patched("Deployment")]
    assert argument == f"--admission-port={port['containerPort']}"
    assert [operation["value"]["port"] for operation in patched("NetworkPolicy")] == [port["containerPort"]]
    for name, webhook in WEBHOOKS.items():
        called = webhook["clientConfig"]["service"]
        service = SERVICES[called["name"]]
        (entry,) = service["ports"]
        assert (entry["port"], entry["targetPort"]) == (called["port"], port["containerPort"])
        assert service["selector"].items() <= EXTENDER["spec"]["template"]["metadata"]["labels"].items()
        # Checks are answered by every replica, bindings by the one that leads, which alone is ready.
        assert service.get("publishNotReadyAddresses", False) is (name != BINDING)


def test_the_page_states_the_policy_of_every_webhook() -> None:
    section = PAGE.partition("## When the extender is away")[2].partition("\n## ")[0]
    stated: dict[str, str] = {}
    for names_cell, policy in re.findall(r"^\| ([^|]*pods\.gas[^|]*) \| `(\w+)` \|", section, re.MULTILINE):
        stated |= dict.fromkeys(re.findall(r"`([\w-]+\.pods\.gas)`", names_cell), policy)
    of_chart = {"complete.pods.gas": "Ignore", "bind-strict.pods.gas": "Fail"}
    assert stated == {name: each["failurePolicy"] for name, each in WEBHOOKS.items()} | of_chart
    template = (DEPLOY / "chart/templates/admission.yaml").read_text(encoding="utf-8")
    assert set(re.findall(r'"([\w-]+\.pods\.gas)"', template)) == of_chart.keys()
    assert {each["timeoutSeconds"] for each in WEBHOOKS.values()} == {
        int(re.findall(r"`timeoutSeconds` \((\d+) s\)", PAGE)[0])
    }


def test_the_configurator_knows_these_names() -> None:
    assert set(SERVICES) == set(WEBHOOK_SERVICES)
    assert {VALIDATING["metadata"]["name"], MUTATING["metadata"]["name"]} == {DEFAULT_WEBHOOKS}


def test_the_client_authority_is_that_of_the_secret() -> None:
    text = (COMPONENTS / "admission-client-certificate/kustomization.yaml").read_text(encoding="utf-8")
    (mount,) = EXTENDER["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]
    assert f"--admission-client-ca={mount['mountPath']}/ca.crt" in text
