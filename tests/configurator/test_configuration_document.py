"""kube-scheduler's configuration: a new one, and one that is in use."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest

from configurator.configuration_document import ConfigurationDocument
from configurator.errors import FileTrouble
from configurator.plan import BUILT_IN_TEMPLATE
from configurator.scheduler_configuration import CARD_RESOURCES
from configurator.yaml_document import YamlDocument
from gas.extender.parts import PARTS
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.selection import parse_vocabularies
from tests.configurator.control_plane_files import IN_USE, ORIGINAL_WITH_ANOTHER, added

URL = "https://gas-service.default.svc.cluster.local:9001"
BUILT_IN = BUILT_IN_TEMPLATE.read_text()
OWN = {
    "urlPrefix": URL,
    "filterVerb": "scheduler/filter",
    "bindVerb": "scheduler/bind",
    "weight": 1,
    "enableHTTPS": True,
    "managedResources": [
        {"name": "gpu.intel.com/i915", "ignoredByScheduler": False},
        {"name": "gpu.intel.com/xe", "ignoredByScheduler": False},
    ],
    "ignorable": False,
    "nodeCacheCapable": True,
    "tlsConfig": {
        "insecure": False,
        "certFile": "/host/certs/client.crt",
        "keyFile": "/host/certs/client.key",
        "caFile": "/host/certs/ca.crt",
    },
}
VERBS = {f"{verb}Verb": f"scheduler/{verb}" for part in PARTS for verb in part.verbs}
"""What the extender's parts serve."""
COMPLETED = {key: verb for key, verb in VERBS.items() if key != "prioritizeVerb"}
"""An entry that exists is completed, but scores are not switched on in it."""


def configuration(text: str) -> ConfigurationDocument:
    return ConfigurationDocument(YamlDocument("config.yaml", text.encode()))


def text_of(found: ConfigurationDocument) -> str:
    return found.document.content.decode()


def new(
    text: str, url: str | None = None, managed: Sequence[str] = CARD_RESOURCES, **carried: Any
) -> ConfigurationDocument:
    found = configuration(text)
    found.add_extender(None, url=url, carried={(key,): carried[key] for key in carried}, managed=managed)
    return found


def merged(
    existing: str,
    template: str = BUILT_IN,
    url: str | None = None,
    carried: Mapping[tuple[str, ...], object] | None = None,
    managed: Sequence[str] = CARD_RESOURCES,
    *,
    ignored: Collection[str] = (),
) -> ConfigurationDocument:
    found = configuration(existing)
    found.add_extender(configuration(template), url=url, carried=carried or {}, managed=managed, ignored=ignored)
    return found


def test_resources_of_more_vocabularies_are_added_and_none_is_removed() -> None:
    managed = Vocabularies(parse_vocabularies("intel,aliyun,vendor")).managed_resources
    fresh = new(BUILT_IN, managed=managed)
    assert [each["name"] for each in fresh.extenders[0]["managedResources"]] == list(managed)
    assert text_of(merged(text_of(fresh))) == text_of(fresh)
    assert merged(BUILT_IN, managed=managed).extenders == fresh.extenders


# contract H4.3
def test_resources_that_no_node_offers_are_ignored_by_the_scheduler() -> None:
    hami = Vocabularies(parse_vocabularies("intel,hami"))
    found = merged(BUILT_IN, managed=hami.managed_resources, ignored=hami.ignored_resources).extenders[0]
    ignored = {each["name"]: each["ignoredByScheduler"] for each in found["managedResources"]}
    assert ignored == {name: name in hami.ignored_resources for name in hami.managed_resources}
    assert (ignored["nvidia.com/gpumem"], ignored["nvidia.com/gpu"]) == (True, False)


def test_a_resource_that_another_extender_manages_is_refused() -> None:
    managed = Vocabularies(parse_vocabularies("aliyun")).managed_resources
    other = ORIGINAL_WITH_ANOTHER.replace("telemetry/scheduling", "aliyun.com/gpu-mem")
    with pytest.raises(FileTrouble, match="would have several extenders that manage aliyun"):
        new(other, managed=managed)


# contract E13.1, E13.2
def test_built_in_configuration_is_that_of_the_contract() -> None:
    assert text_of(new(BUILT_IN)) == BUILT_IN
    assert new(BUILT_IN).extenders == [OWN | VERBS]


# contract E15.3
@pytest.mark.parametrize("template", [BUILT_IN, ORIGINAL_WITH_ANOTHER], ids=["built-in", "the original's"])
def test_version_is_what_every_release_reads(template: str) -> None:
    assert new(template).document.get("apiVersion") == "kubescheduler.config.k8s.io/v1"


def test_file_of_the_original_gets_what_it_lacks_and_keeps_the_rest() -> None:
    found = new(ORIGINAL_WITH_ANOTHER)
    assert found.extenders[1] == OWN | {"ignorable": True}
    assert found.extenders[0] == configuration(ORIGINAL_WITH_ANOTHER).extenders[0]
    assert found.same_certificate_elsewhere() == ["https://other-service.default.svc.cluster.local:9001"]


def test_flags_that_kube_scheduler_ignores_now_are_in_the_file() -> None:
    for template in (BUILT_IN, BUILT_IN + "enableProfiling: true\n"):
        assert text_of(new(template, enableProfiling=False)) == BUILT_IN + "enableProfiling: false\n"


def test_flags_are_added_only_where_a_configuration_has_no_value() -> None:
    text = IN_USE + "clientConnection:\n  kubeconfig: ''\n  qps: 20\nenableProfiling: true\n"
    found = merged(
        text,
        carried={
            ("clientConnection", "kubeconfig"): "/etc/kubernetes/scheduler.conf",
            ("clientConnection", "qps"): 50.5,
            ("clientConnection", "burst"): 100,
            ("enableProfiling",): False,
            ("leaderElection", "resourceName"): "123",
        },
    )
    assert found.document.get("clientConnection") == {
        "kubeconfig": "/etc/kubernetes/scheduler.conf",
        "qps": 20,
        "burst": 100,
    }
    assert found.document.get("enableProfiling") is True
    assert found.document.get("leaderElection", "resourceName") == "123"


@pytest.mark.parametrize("tls", ["nonsense", "[1]", "{certFile: [1]}", "{certFile: }"])
def test_invalid_settings_of_another_extender_are_left_alone(tls: str) -> None:
    text = IN_USE.replace("  nodeCacheCapable", f"  tlsConfig: {tls}\n  nodeCacheCapable")
    assert merged(text).same_certificate_elsewhere() == []


def test_address_may_be_named() -> None:
    found = new(BUILT_IN, url="https://127.0.0.1:9001")
    assert text_of(found) == BUILT_IN.replace(URL, "https://127.0.0.1:9001")
    assert found.extender_host() == "127.0.0.1"
    assert new(BUILT_IN, url="https://[fd00::1]:9001").extender_host() == "fd00::1"


def test_extender_is_added_beside_others_and_everything_else_stays() -> None:
    found = merged(IN_USE)
    assert found.extenders == [*configuration(IN_USE).extenders, OWN | VERBS]
    lines = added(IN_USE, text_of(found))
    assert lines[0] == f'- urlPrefix: "{URL}"\n'
    assert text_of(merged(text_of(found))) == text_of(found)


def test_extenders_are_added_to_a_configuration_without_any() -> None:
    text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    assert merged(text).extenders == [OWN | VERBS]
    assert merged(text + "extenders: []\n").extenders == [OWN | VERBS]
    assert merged(text + "extenders:\n").extenders == [OWN | VERBS]


# contract A1.29
@pytest.mark.parametrize("version", ["v1beta2", "v1beta3"])
def test_a_configuration_of_an_earlier_version_is_converted_if_it_means_the_same(version: str) -> None:
    """Aliyun documents one of v1beta2."""
    text = (
        f"apiVersion: kubescheduler.config.k8s.io/{version}\nkind: KubeSchedulerConfiguration\n"
        "clientConnection:\n  kubeconfig: /etc/kubernetes/scheduler.conf\nextenders: []\n"
    )
    found = merged(text)
    assert found.extenders == [OWN | VERBS]
    assert found.document.get("apiVersion") == "kubescheduler.config.k8s.io/v1"
    assert found.document.get("clientConnection", "kubeconfig") == "/etc/kubernetes/scheduler.conf"


def test_settings_of_an_existing_entry_are_kept() -> None:
    text = ORIGINAL_WITH_ANOTHER.replace("XVERSIONX", "v1").replace("weight: 1", "weight: 5")
    text = text.replace(URL, "https://127.0.0.1:9001")
    found = merged(text)
    assert found.extenders[1] == {
        **OWN,
        **COMPLETED,
        "ignorable": True,
        "weight": 5,
        "urlPrefix": "https://127.0.0.1:9001",
    }
    assert len(added(text, text_of(found))) == 3 + len(COMPLETED)  # the second resource, who is believed, and verbs
    assert merged(text, url=URL).extenders[1]["urlPrefix"] == URL


def test_other_extenders_of_the_file_are_added_once() -> None:
    once = merged(IN_USE, ORIGINAL_WITH_ANOTHER)
    assert [entry["urlPrefix"] for entry in once.extenders] == [
        "http://127.0.0.1:8888/",
        URL,
        "https://other-service.default.svc.cluster.local:9001",
    ]
    assert text_of(merged(text_of(once), ORIGINAL_WITH_ANOTHER)) == text_of(once)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param('{"kind": "Policy", "apiVersion": "v1"}', "is a 'Policy' of 'v1'; expected a Kube", id="a policy"),
        pytest.param(
            "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n", "expected a Kube", id="kubelet's"
        ),
        pytest.param(
            IN_USE.replace("k8s.io/v1", "k8s.io/v9"),
            "of 'kubescheduler.config.k8s.io/v9'; expected",
            id="unknown version",
        ),
        pytest.param(
            IN_USE.replace("k8s.io/v1", "k8s.io/v1beta3"),
            "of 'kubescheduler.config.k8s.io/v1beta3' and has profiles, which may mean something else in"
            " 'kubescheduler.config.k8s.io/v1'; convert the file",
            id="a version from before 1.25 that means something else",
        ),
        pytest.param(IN_USE.replace("extenders:", "extenders: 5 #"), "not valid YAML", id="half edited"),
        pytest.param(IN_USE + "  x: [", "is not valid YAML", id="half-written"),
        pytest.param(IN_USE.replace("urlPrefix", "url"), "without urlPrefix", id="an entry without address"),
        pytest.param(IN_USE.replace("filterVerb", "bindVerb"), "several extenders that bind", id="another that binds"),
        pytest.param(
            IN_USE.replace("example.com/disk", "gpu.intel.com/i915").replace("filterVerb", "bindVerb"),
            "manages the same GPUs",
            id="another that manages GPUs",
        ),
        pytest.param(
            ORIGINAL_WITH_ANOTHER.replace("XVERSIONX", "v1").replace("telemetry/scheduling", "gpu.intel.com/xe"),
            "has 2 extenders that manage",
            id="two that manage GPUs",
        ),
    ],
)
def test_what_kube_scheduler_would_refuse_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(Exception, match=r"config\.yaml") as refused:
        merged(text)
    assert sentence in str(refused.value)


def test_file_without_our_extender_is_refused_as_a_template() -> None:
    with pytest.raises(FileTrouble, match=r"has no extender that manages gpu\.intel\.com/i915"):
        new(IN_USE)


@pytest.mark.parametrize("url", ["http://127.0.0.1:9001", "https://", "https://[::1", "gas-service:9001"])
def test_address_that_cannot_be_called_with_tls_is_refused(url: str) -> None:
    with pytest.raises(FileTrouble, match="expected https://HOST:PORT"):
        configuration(BUILT_IN.replace(URL, url)).extender_host()
