"""The check of the admission webhooks: what is registered, what serves it, and what its failure does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from configurator.certificates import mint_authority, mint_client, mint_server
from gas.doctor.checks.accounts import Account
from gas.doctor.findings import Unseen
from gas.doctor.objects import RegisteredWebhook
from gas.doctor.parts.admission import Webhook
from gas.doctor.snapshot import ServiceSeen
from gas.objects.stored import DetailedPod
from gas.programs import EXTENDER
from tests.deploy.manifests import WEBHOOKS
from tests.doctor import snapshots
from tests.doctor.snapshots import (
    CASE,
    NOT_SEEN,
    NOW,
    assert_case,
    call,
    case,
    configuration,
    entry,
    extender_pod,
    findings,
    fine,
    plugin_pod,
    program_pod,
    scheduler,
)

TODAY = datetime.fromtimestamp(NOW, UTC)
YEAR = timedelta(days=365)
AUTHORITY = mint_authority(TODAY - YEAR)
SERVER = mint_server(AUTHORITY, ["gas-admission.default.svc"], TODAY)
FILE = "/etc/kubernetes/pki/gas/api-server.crt"
POINTS = (("10.0.0.7", 9443),)


def extender(*flags: str, name: str = "gas-0") -> DetailedPod:
    return program_pod(name, "gas:1", "gas-extender", *flags)


def serving(*flags: str, name: str = "gas-0") -> DetailedPod:
    return extender("--admission-port=9443", *flags, name=name)


def api_server(*flags: str) -> DetailedPod:
    return program_pod("kube-apiserver-cp", "registry.k8s.io/kube-apiserver:v1.37.1", "kube-apiserver", *flags)


def webhook(
    name: str = "update.pods.gas",
    *,
    bundle: bytes = AUTHORITY.chain,
    conditions: Sequence[str] | None = None,
    registered: Mapping[str, Any] | None = None,
    **outcome: Any,
) -> Webhook:
    """Build a webhook as the manifests register it, that was reached. ``registered`` has changes in their words."""
    written = {**WEBHOOKS[name], **(registered or {})}
    if conditions is not None:
        written["matchConditions"] = [{"expression": each} for each in conditions]
    called = WEBHOOKS[name]["clientConfig"]["service"]
    service = ServiceSeen(
        name=called["name"],
        namespace="default",
        exists=True,
        cluster_address=("10.96.0.9", 443),
        ready=POINTS,
        has_not_ready=called["path"] != "/bind",
    )
    written["clientConfig"] = {"service": called, "caBundle": bundle}
    usual = Webhook(
        kind="mutatingwebhookconfiguration" if called["path"] == "/bind" else "validatingwebhookconfiguration",
        configuration="gas-admission",
        registered=msgspec.convert(written, RegisteredWebhook),
        service=service,
        connected="10.96.0.9:443",
        server_certificate=SERVER.certificate.public_bytes(Encoding.DER),
    )
    return replace(usual, **outcome)


ALL = tuple(map(webhook, WEBHOOKS))
NOT_COMPLETING = tuple(each for each in ALL if each.name not in ("create.pods.gas", "complete.pods.gas"))
SERVED = serving()
DEMANDING = serving("--admission-client-ca=/ca.crt")
NAMING = (serving("--admission-scheduler-name=gas"), serving("--admission-scheduler-name=gas", name="gas-1"))


def completing(*conditions: str) -> tuple[Webhook, ...]:
    """Return all webhooks, of which the one that completes pods has these conditions."""
    return (*NOT_COMPLETING, webhook("complete.pods.gas", conditions=conditions))


def shown(content: bytes, *flags: str) -> dict[str, Any]:
    """Return a cluster whose API server shows a certificate to an extender that demands one and has these flags."""
    demanding = serving("--admission-client-ca=/ca.crt", *flags)
    return {"webhooks": ALL, "pods": (demanding,), "api_server_certificate": (FILE, content)}


def faults(*webhooks: Webhook, pods: tuple[DetailedPod, ...] = (SERVED,), **changes: Any) -> list[tuple[str, str]]:
    return snapshots.faults("admission", webhooks=webhooks, pods=(plugin_pod(), *pods), **changes)


NO_EFFECT = "pod default/gas-0 | --admission-scheduler-name=gas has no effect"
EXPIRED = mint_client(AUTHORITY, TODAY - YEAR / 2, life=YEAR / 4).chain
OF_THE_API_SERVER = mint_client(AUTHORITY, TODAY - YEAR / 2, name="kube-apiserver").chain
TURNED_AWAY = "none of the names in --admission-client-names, so every call fails | one of kube-scheduler, other | kube"


@pytest.mark.parametrize(
    CASE,
    [
        fine("nothing-to-check"),
        fine("nothing-to-check-and-not-seen", webhooks=NOT_SEEN),
        case("not-seen", "unknown", "they are unknown: it may not be seen", webhooks=NOT_SEEN, pods=(SERVED,)),
        case("none-is-registered", "warning", "calls none |  |  | kubectl apply --kustomize", pods=(SERVED,)),
        fine("serving-is-switched-off", pods=(extender("--admission-port=0"),)),
        case("no-webhook-sets-the-scheduler", "warning", NO_EFFECT, webhooks=NOT_COMPLETING, pods=NAMING),
        case(
            "the-webhook-asks-about-some-pods-only",
            "warning",
            webhook("complete.pods.gas").conditions[0],
            webhooks=ALL,
            pods=NAMING,
        ),
        fine("it-asks-about-all-pods", webhooks=completing(), pods=NAMING),
        fine("it-asks-as-the-checks-do", webhooks=completing(webhook("create.pods.gas").conditions[0]), pods=NAMING),
        case("no-webhook-and-none-served", "warning", NO_EFFECT, pods=(extender("--admission-scheduler-name=gas"),)),
        fine("no-scheduler-to-set", webhooks=NOT_COMPLETING, pods=(serving("--admission-scheduler-name="),)),
        fine("no-certificate-demanded", webhooks=ALL, pods=(SERVED, api_server())),
        case(
            "a-certificate-demanded-and-none-shown",
            "problem",
            "gas-configurator --api-server --apply-secret",
            webhooks=ALL,
            pods=(DEMANDING, api_server()),
        ),
        fine(
            "a-certificate-demanded-and-shown",
            webhooks=ALL,
            pods=(DEMANDING, api_server(f"--admission-control-config-file={FILE}")),
        ),
        fine("any-certificate-will-do", webhooks=ALL, pods=(SERVED,), api_server_certificate=(FILE, b"nonsense")),
        fine("a-valid-certificate", **shown(OF_THE_API_SERVER)),
        case("expired", "problem", "has expired", **shown(EXPIRED)),
        case("unreadable", "problem", "no PEM certificate", **shown(b"nonsense")),
        fine("an-allowed-name", **shown(OF_THE_API_SERVER, "--admission-client-names=other, kube-apiserver")),
        fine("all-names-allowed", **shown(OF_THE_API_SERVER, "--admission-client-names=")),
        case(
            "not-allowed",
            "problem",
            TURNED_AWAY,
            **shown(OF_THE_API_SERVER, "--admission-client-names=kube-scheduler,other"),
        ),
    ],
)
def test_admission(changes: dict[str, Any], level: str, words: str) -> None:
    assert_case("admission", changes, level, words)


def test_the_webhooks_of_the_manifests_are_well() -> None:
    found = findings("admission", webhooks=ALL, pods=(SERVED,))
    assert [(each.level.value, each.where.rpartition(" ")[2]) for each in found] == [("ok", name) for name in WEBHOOKS]


def strict(*rules: dict[str, Any], **registered: Any) -> dict[str, Any]:
    """Return a webhook for bindings of another name, with changes of its registration."""
    written = {"rules": list(rules)} if rules else {}
    return {"name": "bind.pods.gas", "registered": {"name": "bind-strict.pods.gas", **written, **registered}}


def rule(**changes: Any) -> dict[str, Any]:
    """Return a rule for bindings."""
    usual = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "scope": "Namespaced"}
    return {**usual, "resources": ["pods/binding", "bindings"], **changes}


def failing(*conditions: str) -> dict[str, Any]:
    """Return a webhook for bindings whose failure refuses those that meet the conditions."""
    return {"conditions": conditions, **strict(failurePolicy="Fail")}


def without(words: str) -> str:
    return f"its rules do not match {words}, so GPU pods that are bound by them get no cards | CREATE of pods/binding"


BOTH = "CREATE of pods/binding, CREATE of bindings"
SOME = {"matchLabels": {"team": "ml"}}
NO_RESTART = "a cluster that restarts does not come up"
USER = "request.userInfo.username"


@pytest.mark.parametrize("name", [name for name in WEBHOOKS if name != "bind.pods.gas"])
def test_every_resource_that_the_manifests_match_is_demanded(name: str) -> None:
    registered, others = WEBHOOKS[name]["rules"], [each for each in ALL if each.name != name]
    for number, each in enumerate(registered):
        for field in ("operations", "resources"):
            for left_out in each[field]:
                fewer = {**each, field: [value for value in each[field] if value != left_out]}
                changed = [*registered[:number], fewer, *registered[number + 1 :]]
                ((level, text),) = faults(*others, webhook(name, registered={"rules": changed}))
                assert level == "warning"
                assert (
                    left_out in text.partition("its rules do not match ")[2].partition(", so these are not checked")[0]
                )
    ((_, text),) = faults(*others, webhook(name, registered={"rules": []}))
    assert " | no rules | " in text


@pytest.mark.parametrize(
    ("policy", "level", "words"), [("Ignore", "warning", "nothing is checked"), ("Fail", "problem", "refuses")]
)
def test_webhooks_that_no_extender_serves_are_reported(policy: str, level: str, words: str) -> None:
    limited = ("request.userInfo.username in ['system:serviceaccount:gpu:gas-scheduler']",)
    away = webhook(
        "bind.pods.gas", registered={"failurePolicy": policy}, conditions=limited, connected="", failure="refused"
    )
    (first, second) = faults(away, pods=(extender(),))
    assert first[0] == level
    assert words in first[1]
    assert "kubectl delete mutatingwebhookconfiguration gas-admission" in first[1]
    assert second[0] == "unknown"


@pytest.mark.parametrize(
    CASE,
    [
        case(
            "rules-without-bindings",
            "warning",
            without("CREATE of bindings"),
            **strict(rule(resources=["pods/binding"])),
        ),
        case(
            "without-the-subresource",
            "warning",
            without("CREATE of pods/binding"),
            **strict(rule(resources=["bindings"])),
        ),
        case("another-operation", "warning", without(BOTH), **strict(rule(operations=["UPDATE"]))),
        case("another-group", "warning", without(BOTH), **strict(rule(apiGroups=["apps"]))),
        case("another-version", "warning", without(BOTH), **strict(rule(apiVersions=["v2"]))),
        case("another-scope", "warning", without(BOTH), **strict(rule(scope="Cluster"))),
        case("no-subresources", "warning", without("CREATE of pods/binding"), **strict(rule(resources=["*"]))),
        fine("all-resources", **strict(rule(resources=["*/*"]))),
        fine("all-resources-and-their-bindings", **strict(rule(resources=["*", "*/binding"]))),
        fine("all-of-pods", **strict(rule(resources=["pods/*", "bindings"]))),
        fine(
            "two-rules",
            **strict(
                rule(resources=["pods/binding"]),
                rule(resources=["bindings"], operations=["*"], apiGroups=["*"], scope="*"),
            ),
        ),
        fine("more-versions-and-operations", **strict(rule(apiVersions=["*"], operations=["CREATE", "UPDATE"]))),
        case(
            "others-may-change-cards-afterwards",
            "warning",
            "has chosen them | reinvocationPolicy: IfNeeded | reinvocationPolicy: Never | kubectl edit mutatingwebhook",
            **strict(reinvocationPolicy="Never"),
        ),
        case(
            "namespaces-left-out",
            "warning",
            'get no cards | no namespaceSelector | {"matchLabels": {"team": "ml"}} | ',
            **strict(namespaceSelector=SOME),
        ),
        case("objects-left-out", "warning", "its objectSelector leaves out bindings", **strict(objectSelector=SOME)),
        fine("an-empty-selector", **strict(namespaceSelector={})),
        fine("pods-may-be-left-out", registered={"namespaceSelector": SOME, "objectSelector": SOME}),
        case("failing-for-all", "problem", NO_RESTART, **failing()),
        case("failing-for-all-but-one", "problem", NO_RESTART, **failing(f"{USER} != 'x'")),
        case("for-the-shared-scheduler", "problem", NO_RESTART, **failing(f"{USER} == 'system:kube-scheduler'")),
        case("for-it-among-others", "problem", NO_RESTART, **failing(f"{USER} in ['a', 'system:kube-scheduler']")),
        fine("failing-for-a-scheduler-of-its-own", **failing(f"{USER} in ['gas-scheduler']")),
        fine("failing-for-exactly-one", **failing(f"{USER} == 'gas-scheduler'")),
        fine(
            "an-authority-that-joins-an-expired-one",
            bundle=mint_authority(TODAY - 2 * YEAR, life=YEAR).chain + AUTHORITY.chain,
        ),
        case(
            "bindings-to-replicas-that-do-not-lead",
            "warning",
            "only the replica that leads",
            name="bind.pods.gas",
            service=ServiceSeen(name="s", namespace="n", exists=True, ready=POINTS, has_not_ready=True),
        ),
        case("no-bundle", "problem", "has no caBundle", bundle=b""),
        case("unreadable-bundle", "problem", "no PEM certificate", bundle=b"nonsense"),
        case("expired", "problem", "has expired", bundle=mint_authority(TODAY - 2 * YEAR, life=YEAR).chain),
        case(
            "expires-soon",
            "warning",
            "expires in 9 days",
            bundle=mint_authority(TODAY - YEAR, life=YEAR + timedelta(days=9)).chain,
        ),
        case(
            "another-authority",
            "problem",
            "does not trust the certificate that 10.96.0.9:443 presents",
            not_verified="unable to get local issuer certificate",
        ),
        case("long", "warning", "waits for the whole time-out", registered={"timeoutSeconds": 30}),
        case("check-that-fails", "warning", "refuses every object", registered={"failurePolicy": "Fail"}),
        case("not-reached", "unknown", "timed out", connected="", failure="timed out"),
        case("no-service", "problem", "does not exist", service=ServiceSeen(name="s", namespace="n", exists=False)),
        case("empty", "problem", "no extender behind", service=ServiceSeen(name="s", namespace="n", exists=True)),
        case(
            "only-the-leader-checks",
            "warning",
            "every replica checks pods",
            service=ServiceSeen(name="s", namespace="n", exists=True, ready=POINTS),
        ),
        case("unseen-service", "unknown", "not allowed", service=Unseen("not allowed", "ask")),
    ],
)
def test_a_webhook(changes: dict[str, Any], level: str, words: str) -> None:
    assert_case("admission", {"webhooks": (webhook(**changes),), "pods": (SERVED,)}, level, words)


def test_a_webhook_that_reviews_the_extenders_own_bindings_is_reported() -> None:
    account = Account(program=EXTENDER, namespace="gpu", name="mine", allowed={})
    ((level, text),) = faults(webhook("bind.pods.gas"), accounts=(account,))
    assert level == "warning"
    assert "system:serviceaccount:gpu:mine" in text
    usual = replace(account, name="gpu-aware-scheduling-service-account")
    prefixed = replace(account, name="my-gpu-aware-scheduling-service-account")
    assert faults(webhook("bind.pods.gas"), accounts=(usual, prefixed)) == []
    exact = webhook("bind.pods.gas", conditions=(f"request.userInfo.username != '{account.user}'", "x.matches('(')"))
    assert faults(exact, accounts=(account,)) == []
    assert len(faults(exact, accounts=(usual,))) == 1


@pytest.mark.parametrize(
    ("completing", "is_avoidable"),
    [
        pytest.param((), True, id="none"),
        pytest.param((webhook("complete.pods.gas"),), False, id="as-shipped"),
        pytest.param((webhook("complete.pods.gas", conditions=()),), False, id="for-all-pods"),
        pytest.param((webhook("complete.pods.gas", conditions=["'x' in y"]),), True, id="not-for-marked-pods"),
        pytest.param(
            (webhook("complete.pods.gas", conditions=webhook("create.pods.gas").conditions),), True, id="as-the-checks"
        ),
        pytest.param(
            (webhook("complete.pods.gas", registered={"failurePolicy": "Fail"}),), True, id="with-another-policy"
        ),
    ],
)
def test_a_check_that_leaves_out_marked_pods_needs_a_webhook_that_marks_them(
    completing: tuple[Webhook, ...], *, is_avoidable: bool
) -> None:
    found = [text for _, text in faults(webhook("create.pods.gas"), *completing) if "can avoid this check" in text]
    assert len(found) == is_avoidable


def presenting(life: timedelta) -> Webhook:
    pair = mint_server(AUTHORITY, ["gas-admission.default.svc"], TODAY - YEAR / 2, life=life)
    return webhook(server_certificate=pair.certificate.public_bytes(Encoding.DER))


def test_a_certificate_of_the_webhooks_that_expires_is_reported_once() -> None:
    ((level, text),) = faults(*[presenting(YEAR / 2 + timedelta(days=9))] * 3)
    assert level == "warning"
    assert "for the admission webhooks, expires in 9 days" in text
    assert faults(presenting(YEAR)) == []
    # kube-scheduler's check of the same certificate reports it.
    soon = presenting(YEAR / 2 + timedelta(days=9))
    assert faults(soon, calls=(call(server_certificate=soon.server_certificate),)) == []


ONLY_IF_LOST = "if only its response is lost, the bind webhook gives them cards | ignorable: false | ignorable: true"
NO_WEBHOOK = "ignorable: true, and no webhook for bindings | sudoedit"


@pytest.mark.parametrize(
    CASE,
    [
        case("no-webhook", "warning", NO_WEBHOOK, webhooks=()),
        case("another-webhook", "warning", NO_WEBHOOK, webhooks=(webhook("create.pods.gas"),)),
        case("not-seen", "warning", "or at least the bind webhook | ignorable: true | sudoedit", webhooks=NOT_SEEN),
        case("the-bind-webhook", "warning", ONLY_IF_LOST, webhooks=(webhook("bind.pods.gas"),)),
    ],
)
def test_a_scheduler_that_continues_without_the_extender(changes: dict[str, Any], level: str, words: str) -> None:
    written = scheduler(configuration(entry(ignorable=True)))
    assert_case("scheduler-configuration", {"schedulers": (written,), **changes}, level, words)


@pytest.mark.parametrize(
    ("webhooks", "levels"),
    [((), ["warning"]), ((webhook("complete.pods.gas"),), ["ok"]), (Unseen("forbidden", ""), ["ok"])],
    ids=["none", "registered", "unknown"],
)
@pytest.mark.parametrize("words", ["--vocabularies=intel,koordinator", "--vocabularies=intel,kubeshare"])
def test_pods_that_no_webhook_completes_are_a_warning(
    words: str, webhooks: tuple[Webhook, ...] | Unseen, levels: list[str]
) -> None:
    pods = (extender_pod(words), plugin_pod(words))
    found = findings("vocabularies", pods=pods, webhooks=webhooks)
    assert [each.level.value for each in found] == levels
    if levels == ["warning"]:
        assert found[0].message.startswith("no webhook completes pods, so those ")
