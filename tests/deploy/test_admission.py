"""The admission webhooks of deploy/: what they match, which policy they have, and that a cluster can always start."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
import yaml

from configurator.api_server import PROGRAM as API_SERVER
from configurator.certificate_plan import WEBHOOK_SERVICES
from configurator.flags import DEFAULT_WEBHOOKS
from gas.decision.names import CHECKED
from gas.extender.binding_reviews.reviews import REVIEW_TIMES
from gas.extender.pod_webhooks.reviews import CHANGED, TEMPLATES
from gas.objects.stored import NewPod
from gas.vocabularies.known import KNOWN
from gas.vocabularies.protocol import Vocabulary
from tests.builders import pod_json
from tests.deploy.manifests import BASE, COMPONENTS, DEPLOY, MUTATING, ROOT, VALIDATING, WEBHOOKS, Manifest, one, read

COMPONENT = COMPONENTS / "admission"
SERVICES = {each["metadata"]["name"]: each["spec"] for each in read(COMPONENT / "services.yaml")}
EXTENDER = one(BASE / "extender", "Deployment")
BINDING = "bind.pods.gas"
COMPLETING = "complete.pods.gas"
MARKED = f"'{CHECKED}' in object.metadata.?annotations.orValue({{}})"  # the pod has the mark of `COMPLETING`
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
    assert REVIEW_TIMES.read_timeout + REVIEW_TIMES.watch_patience < webhook["timeoutSeconds"] <= 2
    assert webhook["admissionReviewVersions"] == ["v1"]


def test_no_other_webhook_changes_cards_after_the_extender_chose_them() -> None:
    assert WEBHOOKS[BINDING]["reinvocationPolicy"] == "IfNeeded"


@pytest.mark.parametrize("name", sorted(WEBHOOKS.keys() - {BINDING, COMPLETING}))
def test_checks_leave_kube_system_and_pods_without_cards_to_the_api_server(name: str) -> None:
    webhook = WEBHOOKS[name]
    check_kube_system(webhook)
    assert "asks-for-cards" in [each["name"] for each in webhook["matchConditions"]]


# contract O1.7, O1.12
def test_only_pods_in_words_with_defaults_are_completed() -> None:
    webhook = WEBHOOKS[COMPLETING]
    check_kube_system(webhook)
    (condition,) = webhook["matchConditions"]
    (checked,) = [each for each in WEBHOOKS["create.pods.gas"]["matchConditions"] if each["name"] == "asks-for-cards"]
    assert condition["expression"].partition("]")[2] == f"{checked['expression'].partition(']')[2]} || {MARKED}"
    for vocabulary in KNOWN:
        resource = vocabulary.managed_resources[0]
        asked = {"name": "main", "resources": {"requests": {resource: "1"}, "limits": {resource: "1"}}}
        new = msgspec.convert(pod_json(asked), NewPod)
        assert not vocabulary.complete(new) or resource.startswith(vocabulary.completed.resources)


def test_pods_that_were_checked_when_they_were_completed_are_not_checked_again_and_users_cannot_mark_them() -> None:
    conditions = WEBHOOKS["create.pods.gas"]["matchConditions"]
    assert {"name": "not-checked", "expression": f"!({MARKED})"} in conditions
    assert not any(MARKED in str(WEBHOOKS[name]) for name in ("update.pods.gas", "templates.pods.gas"))
    assert WEBHOOKS[COMPLETING]["matchConditions"][0]["expression"].endswith(f" || {MARKED}")
    assert WEBHOOKS[COMPLETING]["reinvocationPolicy"] == "IfNeeded"


def check_kube_system(webhook: Manifest) -> None:
    (expression,) = webhook["namespaceSelector"]["matchExpressions"]
    assert expression == {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"]}
    assert webhook["sideEffects"] == "None"


@pytest.mark.parametrize("vocabulary", KNOWN, ids=lambda each: each.name)
def test_pods_of_every_vocabulary_are_checked(vocabulary: Vocabulary) -> None:
    for resource in (*vocabulary.managed_resources, *vocabulary.resources):
        assert resource.startswith(vocabulary.asking.resources), resource


def test_our_own_pods_ask_for_no_cards() -> None:
    for workload in (EXTENDER, one(BASE / "plugin", "DaemonSet"), one(DEPLOY / "configurator", "Job")):
        written = str(workload["spec"]["template"]["spec"]["containers"])
        assert not any(name in written for each in KNOWN for name in each.asking.resources)


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


def patches_of_the_page() -> list[list[dict[str, Any]]]:
    """Return the operations of each patch of the mutating webhooks that the page has: strict users first."""
    blocks = re.findall(r"```yaml\n(- target: .*?)```", PAGE, re.DOTALL)
    written = [each for block in blocks for each in yaml.safe_load(block)]
    target = {"kind": "MutatingWebhookConfiguration", "name": MUTATING["metadata"]["name"]}
    assert [each["target"] for each in written] == [target] * len(written)
    return sorted((yaml.safe_load(each["patch"]) for each in written), key=len, reverse=True)


def test_the_patch_of_the_page_adds_a_strict_webhook_that_differs_only_in_users_and_policy() -> None:
    left_out, added = patches_of_the_page()[0]
    assert (left_out["op"], left_out["path"]) == ("add", "/webhooks/0/matchConditions/-")
    assert MUTATING["webhooks"][0]["name"] == BINDING
    assert (added["op"], added["path"]) == ("add", "/webhooks/-")
    strict = added["value"]
    (condition,) = strict["matchConditions"]
    usual = {"failurePolicy": "Fail", "matchConditions": [condition], "name": "bind-strict.pods.gas"}
    assert strict == WEBHOOKS[BINDING] | usual
    (user,) = re.findall(r"^request\.userInfo\.username in \['([^']+)'\]$", condition["expression"])
    assert left_out["value"]["expression"] == f"request.userInfo.username != '{user}'"
    assert user in (DEPLOY / "chart/values.yaml").read_text(encoding="utf-8")


def test_the_patch_of_the_page_skips_the_extenders_account_alone() -> None:
    _, (change,) = patches_of_the_page()
    _, _, webhook, _, condition, field = change["path"].split("/")
    assert MUTATING["webhooks"][int(webhook)]["name"] == BINDING
    assert MUTATING["webhooks"][int(webhook)]["matchConditions"][int(condition)]["name"] == "not-the-extender"
    assert field == "expression"
    account = one(BASE / "extender", "ServiceAccount")["metadata"]
    user = f"system:serviceaccount:{account['namespace']}:{account['name']}"
    assert change["value"] == f"request.userInfo.username != '{user}'"


def test_changes_of_pods_are_checked_by_every_way_to_their_annotations() -> None:
    (rule,) = WEBHOOKS["update.pods.gas"]["rules"]
    assert set(rule["resources"]) == CHANGED


def test_templates_of_every_workload_are_checked() -> None:
    found = {resource for rule in WEBHOOKS["templates.pods.gas"]["rules"] for resource in rule["resources"]}
    assert found == {each.rpartition("/")[2] for each in TEMPLATES}


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
    of_chart = {"bind-strict.pods.gas": "Fail"}
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


@pytest.mark.parametrize(
    "file",
    [
        "deploy/components/admission-client-certificate/kustomization.yaml",
        "deploy/chart/templates/extender-deployment.yaml",
    ],
)
def test_the_client_name_is_that_of_the_configurators_certificate(file: str) -> None:
    assert f"--admission-client-names={API_SERVER}\n" in (ROOT / file).read_text(encoding="utf-8")
