"""The whole command: against the sandbox's API server and the real extender, with a control plane's files."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import shutil
import sys
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from configurator.flags import parse_flags as parse_configurator_flags
from configurator.program import run as configure
from gas.commands import run as run_command
from sandbox.api.kinds import EVENTS, NODES, PODS
from sandbox.api.server import ApiServer
from sandbox.certificates import Authority
from sandbox.programs import RunningExtender, running_extender
from tests.builders import container, pod_json
from tests.cluster.scripted_server import ScriptedServer, refuse
from tests.deploy.manifests import BASE, one
from tests.doctor.sandbox_cluster import REVIEWS, Beside, add_pod, doctor_server, fill, only_admin, write_kubeconfig
from tests.doctor.snapshots import entry

KUBEADM = Path(__file__).parents[1] / "configurator" / "kubeadm"
MIRROR = {"kubernetes.io/config.mirror": "hash"}


def run(arguments: Sequence[str]) -> int:
    return run_command(["doctor", *arguments], "gas")


def listing(**changes: Any) -> str:
    """Return a configuration of kube-scheduler that lists the extender, with changes of its entry."""
    return json.dumps({"kind": "KubeSchedulerConfiguration", "extenders": [entry(**changes)]})


class Doctor:
    """Call ``gas doctor`` on one cluster, whose control plane's files are in a directory of the test."""

    def __init__(self, directory: Path, server: ApiServer, capsys: pytest.CaptureFixture[str]) -> None:
        self.directory = directory
        self.server = server
        self._capsys = capsys
        self.kubeconfig = write_kubeconfig(directory / "kubeconfig", server.url)
        self.control_plane = directory / "etc" / "kubernetes"
        (self.control_plane / "manifests").mkdir(parents=True)
        (self.control_plane / "gas").mkdir()

    async def __call__(self, *flags: str) -> tuple[int, str]:
        """Exit code and what was printed."""
        here = (f"--kubeconfig={self.kubeconfig}", f"--control-plane={self.control_plane}")
        code = await asyncio.to_thread(run, [*here, *flags])
        return code, self.printed()

    def printed(self) -> str:
        """Since the last time."""
        printed = self._capsys.readouterr()
        return printed.out + printed.err

    async def faults_of(self, check: str, *flags: str) -> list[dict[str, Any]]:
        """Return what is not well by one check."""
        _, found = await self.findings(*flags)
        return [each for each in found if each["check"] == check]

    async def findings(self, *flags: str) -> tuple[int, list[dict[str, Any]]]:
        """Exit code, and what is not well."""
        code, text = await self("-o=json", *flags)
        report = json.loads(text)
        assert report["exitCode"] == code
        return code, [each for each in report["findings"] if each["level"] != "ok"]

    def write_scheduler(self, extender: RunningExtender, **changes: Any) -> None:
        """Write a static pod and its configuration with the extender; the certificates are in the same directory."""
        address = extender.address
        for source, name in (
            (address.authority, "ca.crt"),
            (address.certificate, "client.crt"),
            (address.key, "client.key"),
        ):
            target = self.control_plane / "gas" / name
            target.write_bytes(source.read_bytes())
            target.chmod(0o600)
        tls = {"caFile": "/gas/ca.crt", "certFile": "/gas/client.crt", "keyFile": "/gas/client.key"}
        self.write_configuration(listing(**{"urlPrefix": address.url, "tlsConfig": tls, **changes}))

    def write_configuration(self, text: str) -> None:
        """Write a static pod and its configuration."""
        (self.control_plane / "gas" / "scheduler.yaml").write_text(text)
        self.write_manifest("--config=/gas/scheduler.yaml")

    def write_manifest(self, *flags: str) -> None:
        running = {
            "name": "kube-scheduler",
            "image": "registry/kube-scheduler:v1.35.4",
            "command": ["kube-scheduler", *flags],
            "volumeMounts": [{"name": "gas", "mountPath": "/gas"}],
        }
        volume = {"name": "gas", "hostPath": {"path": "/etc/kubernetes/gas"}}
        pod = {"kind": "Pod", "metadata": {"name": "s"}, "spec": {"containers": [running], "volumes": [volume]}}
        (self.control_plane / "manifests" / "kube-scheduler.yaml").write_text(json.dumps(pod))


@pytest.fixture
def beside() -> Beside:
    return Beside()


@pytest.fixture
async def doctor(tmp_path: Path, beside: Beside, capsys: pytest.CaptureFixture[str]) -> AsyncIterator[Doctor]:
    async with doctor_server(beside) as server:
        fill(server)
        yield Doctor(tmp_path, server, capsys)


async def test_a_healthy_cluster_is_ok_and_each_fault_is_reported(
    doctor: Doctor, beside: Beside, tmp_path: Path
) -> None:
    """One extender for many looks, as starting it takes longer than all of them."""
    kubeconfig_of_extender = doctor.server.url
    doctor.server.settings.tokens = None
    async with running_extender(tmp_path, kubeconfig_of_extender, ()) as extender:
        doctor.write_scheduler(extender)

        code, text = await doctor()
        assert (code, text.splitlines()[-1].endswith(" ok.")) == (0, True), text
        code, text = await doctor("--all")
        assert code == 0
        assert "it has all permissions that gas-extender needs" in " ".join(text.split())
        assert f"2 of 2 nodes pass the filter of {extender.address.url}" in " ".join(text.split())
        asked = {each.removeprefix("gas-doctor ") for each in beside.asked if each.startswith("gas-doctor ")}
        assert {each for each in asked if not each.startswith("GET ")} == {f"POST {REVIEWS}"}  # a question as well
        assert len(asked) > 5

        doctor.write_scheduler(extender, ignorable=True)
        code, found = await doctor.findings()
        assert (code, [each["check"] for each in found]) == (1, ["scheduler-configuration"])

        elsewhere = Authority(doctor.control_plane / "gas", "elsewhere")
        doctor.write_scheduler(extender)
        shutil.copy(elsewhere.certificate, doctor.control_plane / "gas/ca.crt")
        code, found = await doctor.findings()
        assert code == 1
        assert [each["check"] for each in found if each["level"] == "problem"] == ["certificates"]
        assert "elsewhere" not in found[0]["found"]
        assert "does not trust" in found[0]["message"]

        doctor.write_scheduler(extender)
        elsewhere.client("system:kube-scheduler", file="client")
        code, found = await doctor.findings()
        assert code == 1
        assert "does not decide" in found[0]["message"]

        tls = {"caFile": "/gas/ca.crt", "certFile": "/gas/client.crt", "keyFile": "/gas/client.key"}
        doctor.write_scheduler(extender, tlsConfig={**tls, "serverName": "gas-service.default.svc"})
        code, found = await doctor.findings()
        assert code == 1
        assert "not for the address that kube-scheduler calls" in found[0]["message"]
        assert found[0]["found"] == "localhost, 127.0.0.1"

        doctor.write_scheduler(extender)
        beside.lacking.add("create pods/binding")
        code, found = await doctor.findings()
        assert code == 1
        assert [each["check"] for each in found] == ["permissions"]
        assert "create pods/binding" in found[0]["message"]
        beside.lacking.clear()

        add_pod(doctor.server, pod_json(container("m", i915=1), name="forged", node="gpu-1"))
        code, found = await doctor.findings()
        assert [each["where"] for each in found] == ["pod default/forged on node gpu-1"]
        assert (await doctor.findings("--node=gpu-2"))[0] == 0

    doctor.write_scheduler(extender)
    code, found = await doctor.findings("--node=gpu-2", "--timeout=2s")
    assert code == 1
    assert [each["check"] for each in found] == ["extender", "dry-pod"]
    assert "cannot be reached" in found[0]["message"]


async def test_without_the_control_planes_files_the_rest_is_unknown(doctor: Doctor) -> None:
    code, found = await doctor.findings()
    assert code == 2
    assert {each["level"] for each in found} == {"unknown"}
    assert {each["check"] for each in found} == {"scheduler-configuration", "dry-pod"}


async def test_a_user_with_few_permissions_sees_which_are_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with doctor_server(Beside(), authorize=only_admin) as server:
        fill(server)
        doctor = Doctor(tmp_path, server, capsys)
        code, found = await doctor.findings("--context=viewer")
        assert code == 2
        sentences = [each["message"] for each in found]
        assert any('does not let viewer list nodes: give its role the verb "list"' in each for each in sentences)
        assert any("does not let viewer list pods" in each for each in sentences)
        assert (await doctor("--context=unknown"))[0] == 2


CONFIGZ = "/api/v1/nodes/{}/proxy/configz"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        pytest.param({"kubeletconfig": {"topologyManagerPolicy": "strict"}}, "; the policy is strict", id="read"),
        pytest.param(None, "404", id="no-kubelet"),
        pytest.param({}, "missing required field `kubeletconfig`", id="something-else"),
        pytest.param({"kubeletconfig": {"topologyManagerPolicy": 7}}, "Expected `str`, got `int`", id="not-text"),
    ],
)
async def test_a_policy_is_read_through_the_api_server_or_is_only_a_clause(
    doctor: Doctor, beside: Beside, settings: object, words: str
) -> None:
    if settings is not None:
        beside.objects[CONFIGZ.format("gpu-1")] = settings
    _, text = await doctor("--node=gpu-1", "--all", "-o=json")
    (found,) = [each for each in json.loads(text)["findings"] if each["check"] == "topology-manager"]
    assert found["level"] == "ok"
    assert "does not restrict cards" in found["message"]
    assert words in found["message"]


async def test_the_newest_event_of_a_node_says_why_pods_do_not_get_its_card(doctor: Doctor) -> None:
    records = [{"card": card, "driver": "nvidia", "healthy": bool(card)} for card in range(2)]
    api = doctor.server.api
    annotated = json.dumps({"metadata": {"annotations": {"gas-cards": json.dumps(records)}}})
    api.patch(NODES, None, "gpu-1", ("application/merge-patch+json", annotated.encode()))
    for at, reason, message in (
        (3, "GPUMemoryUnknown", "card0: unknown"),
        (2, "GPUCardUnhealthy", "card0: it reported Xid 79"),
        (1, "GPUCardUnhealthy", "card0: NVML: no library"),
    ):
        about = {"kind": "Node", "name": "gpu-1"}
        times = {"lastTimestamp": f"2027-01-15T08:00:0{at}Z"}
        written = {"metadata": {"name": f"e{at}"}, "type": "Warning", "reason": reason, "message": message}
        api.create(EVENTS, "default", written | times | {"involvedObject": about})
    (found,) = await doctor.faults_of("card-health")
    assert (found["where"], found["message"]) == ("node gpu-1", "pods do not get card0: it reported Xid 79")


async def test_the_newest_event_of_a_daemonset_says_why_its_own_pods_are_missing(
    doctor: Doctor, beside: Beside
) -> None:
    written = one(BASE / "plugin", "DaemonSet")
    listed = written | {"metadata": {**written["metadata"], "uid": "d"}}
    listed |= {"status": {"desiredNumberScheduled": 1, "numberReady": 0}}
    beside.objects["/apis/apps/v1/daemonsets"] = {"metadata": {"resourceVersion": "1"}, "items": [listed]}
    for at, message in ((2, "newest"), (1, "oldest")):
        about = {"involvedObject": {"kind": "DaemonSet", "name": "gas-plugin", "uid": "d"}}
        times = {"lastTimestamp": f"2027-01-15T08:00:0{at}Z"}
        event = {"metadata": {"name": f"d{3 - at}"}, "type": "Warning", "reason": "FailedCreate", "message": message}
        doctor.server.api.create(EVENTS, "default", event | about | times)
    found = await doctor.faults_of("daemonsets")
    assert ("its pods are not created", "newest") in [(each["message"], each.get("found")) for each in found]


async def test_an_unavailable_api_server_is_one_sentence(doctor: Doctor) -> None:
    await doctor.server.pause()
    code, text = await doctor("--timeout=1s")
    assert code == 2
    assert len(text.splitlines()) == 1
    assert f"cannot connect to the API server at {doctor.server.url}" in text
    code, text = await doctor("--timeout=1s", "-o=json")
    assert json.loads(text.splitlines()[0])["exitCode"] == 2


def add_scheduler_with_config_map(doctor: Doctor) -> None:
    """Create a kube-scheduler pod whose configuration is the key c.yaml of the ConfigMap gas-scheduler."""
    running = {
        "name": "s",
        "command": ["kube-scheduler", "--config=/etc/s/c.yaml"],
        "volumeMounts": [{"name": "c", "mountPath": "/etc/s"}],
    }
    built = pod_json(running, name="gpu-scheduler", node="cp")
    built["spec"]["volumes"] = [{"name": "c", "configMap": {"name": "gas-scheduler"}}]
    add_pod(doctor.server, built)


CONFIG_MAP = "/api/v1/namespaces/default/configmaps/gas-scheduler"


async def test_webhooks_and_the_certificate_of_the_api_server_are_read(doctor: Doctor, beside: Beside) -> None:
    group = "/apis/admissionregistration.k8s.io/v1"
    webhook = {
        "name": "create.pods.gas",
        "clientConfig": {"service": {"namespace": "default", "name": "gas-admission"}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
    }
    for kind, webhooks in (("validating", [webhook]), ("mutating", [])):
        items = [{"metadata": {"name": "gas-admission"}, "webhooks": webhooks}]
        beside.objects[f"{group}/{kind}webhookconfigurations"] = {"metadata": {}, "items": items}
    demanding = {
        "name": "gasext", "image": "gas", "command": ["gas-extender"],
        "args": ["--admission-port=9443", "--admission-client-ca=/gas/cert/ca.crt"],
    }  # fmt: skip
    pod = pod_json(demanding, name="demanding", node="gpu-1", phase="Running")
    doctor.server.api.create(PODS, "default", pod)
    certificate = doctor.control_plane / "pki/gas/api-server.crt"
    certificate.parent.mkdir(parents=True)
    certificate.write_text("nonsense")
    said = [f"{each['where']}: {each['message']}" for each in await doctor.faults_of("admission")]
    assert "has no caBundle" in said[0]
    assert said[1] == "service default/gas-admission: webhook create.pods.gas calls this Service, but it does not exist"
    assert said[2] == f"{certificate}: the file contains no PEM certificate, so kube-apiserver presents none"
    assert len(said) == 3


async def test_a_configuration_in_a_config_map_is_read(doctor: Doctor, beside: Beside) -> None:
    beside.objects[CONFIG_MAP] = {"data": {"c.yaml": listing(ignorable=True)}}
    add_scheduler_with_config_map(doctor)
    (ignorable,) = await doctor.faults_of("scheduler-configuration")
    assert ignorable["where"] == "ConfigMap default/gas-scheduler, key c.yaml"
    assert ignorable["mend"] == [
        "kubectl --namespace=default edit configmap gas-scheduler   # ignorable: false; then restart kube-scheduler",
        "kubectl apply --kustomize deploy/overlays/admission   # or your own overlay: docs/admission.md",
    ]


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        ({}, "ConfigMap default/gas-scheduler does not exist"),
        (
            {CONFIG_MAP: {"data": {"other.yaml": ""}}},
            "ConfigMap default/gas-scheduler, key c.yaml: the key does not exist",
        ),
    ],
    ids=["no-config-map", "no-key"],
)
async def test_a_missing_configuration_in_a_config_map_is_reported(
    doctor: Doctor, beside: Beside, objects: dict[str, object], message: str
) -> None:
    beside.objects.update(objects)
    add_scheduler_with_config_map(doctor)
    (missing,) = await doctor.faults_of("scheduler-configuration")
    assert (missing["level"], missing["message"]) == ("unknown", message)


async def test_a_service_without_ready_endpoints_is_reported(doctor: Doctor, beside: Beside) -> None:
    doctor.write_configuration(listing(urlPrefix="https://gas-service.nowhere.svc.cluster.local:9001"))
    code, found = await doctor.findings("--timeout=1s")
    assert code == 1
    assert "it does not exist" in found[0]["message"]
    beside.objects["/api/v1/namespaces/nowhere/services/gas-service"] = {
        "metadata": {"name": "gas-service"},
        "spec": {"clusterIP": "None", "ports": [{"port": 9001}]},
    }
    slices = "/apis/discovery.k8s.io/v1/namespaces/nowhere/endpointslices"
    beside.objects[slices] = {
        "metadata": {},
        "items": [
            {"endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": False}}], "ports": [{"port": 9001}]}
        ],
    }
    _, found = await doctor.findings("--timeout=1s")
    assert "no ready extender" in found[0]["message"]


@pytest.mark.parametrize(
    ("manifest", "configuration", "words"),
    [
        pytest.param("kind: [", "", "not the manifest of a pod", id="a-manifest-that-is-not-yaml"),
        pytest.param("[]", "", "not the manifest of a pod", id="a-list"),
        pytest.param(
            json.dumps({"spec": {"containers": [{"name": "etcd", "command": ["etcd"]}]}}),
            "",
            "no container that runs kube-scheduler",
            id="etcd",
        ),
        pytest.param("/elsewhere/scheduler.yaml", "", "mounts no hostPath there", id="not-mounted"),
        pytest.param("/gas/scheduler.yaml", "kind: [", "not valid YAML", id="no-yaml"),
        pytest.param("/gas/scheduler.yaml", "kind: Policy", "expected kind KubeSchedulerConfig", id="another-kind"),
        pytest.param("/gas/scheduler.yaml", "a: 1\n---\nb: 2\n", "found 2", id="two-documents"),
        pytest.param("/gas/scheduler.yaml", "extenders: 7\nkind: x\n", "Expected", id="wrong-types"),
        pytest.param("/gas/scheduler.yaml", "", "found 0", id="empty"),
    ],
)
async def test_a_damaged_manifest_or_configuration_is_reported_with_all_other_findings(
    doctor: Doctor, manifest: str, configuration: str, words: str
) -> None:
    doctor.write_configuration(configuration)
    if manifest.startswith("/"):
        doctor.write_manifest(f"--config={manifest}")
    else:
        (doctor.control_plane / "manifests" / "kube-scheduler.yaml").write_text(manifest)
    code, found = await doctor.findings()
    assert code == 2
    (finding,) = [each for each in found if each["check"] == "scheduler-configuration"]
    assert words in finding["message"]
    assert len(found) > 1


async def test_static_pods_with_the_same_command_count_as_the_one_here(doctor: Doctor) -> None:
    doctor.write_configuration(listing(urlPrefix="https://127.0.0.1:1"))
    for node, flags in (
        (platform.node().lower(), ["--config=/old.yaml"]),  # the pod of the manifest here, whatever its command
        ("cp-2", ["--config=/gas/scheduler.yaml"]),
        ("cp-3", ["--config=/other.yaml"]),
        ("cp-4", []),
    ):
        running = {"name": "s", "command": ["kube-scheduler", *flags]}
        add_pod(doctor.server, pod_json(running, name=f"kube-scheduler-{node}", node=node, annotations=MIRROR))
    _, text = await doctor("-o=json", "--timeout=1s")
    found = [each for each in json.loads(text)["findings"] if each["check"] == "scheduler-configuration"]
    reported = {each["where"].removeprefix("pod default/kube-scheduler-"): each["level"] for each in found}
    assert reported == {"/etc/kubernetes/gas/scheduler.yaml": "ok", "cp-2": "ok", "cp-3": "unknown", "cp-4": "problem"}


@pytest.mark.parametrize(
    ("flags", "static", "plain", "expected"),
    [
        pytest.param([], ["cp-a"], [], [], id="the-only-one-is-the-manifests-own"),
        pytest.param([], ["cp-a", "cp-b"], [], ["cp-a", "cp-b"], id="one-of-two-could-be-anothers"),
        pytest.param([], [], ["deployed"], ["deployed"], id="a-pod-that-is-not-static-is-another"),
        pytest.param(["-v=2"], ["cp-a"], [], ["cp-a"], id="another-command-is-another"),
    ],
)
async def test_a_manifest_and_its_mirror_pod_are_one_scheduler_under_another_node_name(
    doctor: Doctor, flags: list[str], static: list[str], plain: list[str], expected: list[str]
) -> None:
    doctor.write_manifest()
    for name in (*static, *plain):
        running = {"name": "s", "command": ["kube-scheduler", *flags]}
        annotations = MIRROR if name in static else {}
        add_pod(doctor.server, pod_json(running, name=name, node="not-this-machine", annotations=annotations))
    _, found = await doctor.findings()
    bare = [each["where"] for each in found if each["found"] == "it runs without --config"]
    manifest = str(doctor.control_plane / "manifests" / "kube-scheduler.yaml")
    assert bare == [manifest, *(f"pod default/{name}" for name in expected)]


@pytest.mark.parametrize("flag", ["manifest", "scheduler-config"])
async def test_a_pipe_without_a_writer_is_reported_after_the_timeout(doctor: Doctor, flag: str) -> None:
    pipe = doctor.directory / "pipe"
    os.mkfifo(pipe)
    code, found = await doctor.findings(f"--{flag}={pipe}", "--timeout=200ms")
    assert code == 2
    (finding,) = [each for each in found if each["check"] == "scheduler-configuration"]
    assert finding["message"] == f"{pipe} is a pipe whose writer did not finish in 0.2 s"


async def test_a_directory_that_cannot_be_read_is_reported(doctor: Doctor) -> None:
    """As for one that is not allowed to, which root, who may run this, always is."""
    manifests = doctor.control_plane / "manifests"
    manifests.rmdir()
    manifests.symlink_to(manifests)
    _, found = await doctor.findings()
    assert found[0]["message"].startswith(f"{manifests}/kube-scheduler.yaml cannot be read: ")


async def test_the_account_of_an_extender_outside_the_cluster_is_checked(doctor: Doctor, beside: Beside) -> None:
    doctor.server.api.delete(PODS, "default", "gas-0", {"gracePeriodSeconds": 0})
    beside.objects["/api/v1/namespaces/default/serviceaccounts/gas-extender"] = {"metadata": {"name": "gas-extender"}}
    beside.lacking.add("create pods/binding")
    (missing,) = await doctor.faults_of("permissions")
    assert missing["where"] == "serviceaccount default/gas-extender"


async def test_a_missing_context_is_named(doctor: Doctor) -> None:
    code, text = await doctor("--context=nope")
    assert code == 2
    assert text.startswith(
        f"gas doctor: kubeconfig {doctor.kubeconfig} with --context=nope: expected a kubeconfig with"
    )


async def test_the_account_and_the_server_are_those_of_the_command_line(doctor: Doctor) -> None:
    async with ScriptedServer(route=lambda _seen: refuse(403)) as server:
        await doctor(f"--server={server.url}", "--token=t", "--as=jane", "--as-group=dev", "--request-timeout=1s")
    expected = {"authorization": "Bearer t", "impersonate-user": "jane", "impersonate-group": "dev"}
    assert expected.items() <= server.seen[0].headers.items()


async def test_several_kubeconfigs_are_merged(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", f"{doctor.directory / 'nothing-there'}{os.pathsep}{doctor.kubeconfig}")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    for flags in ((), ("--context=viewer",)):
        assert await asyncio.to_thread(run, [f"--control-plane={doctor.control_plane}", *flags]) == 2
        assert doctor.printed().startswith(doctor.server.url)


async def test_a_closed_standard_output_is_not_a_failure(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    for flags, code in ((["--help"], 0), ([f"--kubeconfig={doctor.kubeconfig}"], 2)):
        assert await asyncio.to_thread(run, [*flags, f"--control-plane={doctor.control_plane}"]) == code


async def test_certificates_that_expire_or_do_not_fit_are_reported(doctor: Doctor) -> None:
    """The files are looked at although no extender answers."""
    gas = doctor.control_plane / "gas"
    authority = Authority(gas)
    tls = {name: f"/gas/{file}" for name, file in (("caFile", "ca.crt"), ("certFile", "c.crt"), ("keyFile", "c.key"))}
    doctor.write_configuration(listing(urlPrefix="https://127.0.0.1:1", tlsConfig=tls))

    async def messages() -> list[str]:
        return [each["message"] for each in await doctor.faults_of("certificates", "--timeout=1s")]

    assert any("cannot be read: No such file" in each for each in await messages())
    authority.client(file="c", life=timedelta(days=-1))
    assert await messages() == ["kube-scheduler's client certificate has expired"]
    now = datetime.now(UTC)
    authority.client(file="c", now=now - timedelta(days=300), life=timedelta(days=310))
    assert [each.partition(" in ")[0] for each in await messages()] == ["kube-scheduler's client certificate expires"]
    authority.client(file="c", life=timedelta(days=10))
    assert await messages() == []  # a short life, of which most is left
    authority.server("c")
    assert await messages() == ["the certificate is not for client authentication, so the extender refuses it"]
    authority.client(file="c")
    (gas / "c.key").chmod(0o644)
    (readable,) = await doctor.faults_of("certificates", "--timeout=1s")
    assert readable["message"].startswith("users other than its owner can read kube-scheduler's key")
    assert readable["mend"] == ["sudo chmod 0600 /etc/kubernetes/gas/c.key"]
    authority.client(file="other")
    (gas / "c.key").write_bytes((gas / "other.key").read_bytes())
    assert await messages() == ["this is not the private key of /etc/kubernetes/gas/c.crt"]
    (gas / "c.crt").write_bytes((gas / "ca.crt").read_bytes())
    assert any("not the private key" in each for each in await messages())
    (gas / "c.crt").write_text("nonsense")
    assert await messages() == ["the file contains no PEM certificate"]


async def test_the_configurators_files_are_ok(doctor: Doctor) -> None:
    """From a manifest as kubeadm wrote it. An extender with the flags of deploy/ runs, but not at that address."""
    doctor.server.api.delete(PODS, "default", "gas-0", {"gracePeriodSeconds": 0})
    (deployed,) = one(BASE / "extender", "Deployment")["spec"]["template"]["spec"]["containers"]
    running = {"name": "e", "command": [*deployed["command"], *deployed["args"]]}
    add_pod(doctor.server, pod_json(running, name="gas-1", node="cp"))
    manifest = doctor.control_plane / "manifests" / "kube-scheduler.yaml"
    manifest.write_bytes((KUBEADM / "1.30" / "kube-scheduler.yaml").read_bytes())
    directory = doctor.directory
    files = {"m": manifest, "d": doctor.control_plane, "cert-dir": directory / "certs", "b": directory / "backups"}
    files["pki-dir"] = directory / "pki"
    asked = [*(f"--{name}={path}" for name, path in files.items()), "--url=https://127.0.0.1:1"]
    configure(parse_configurator_flags(asked), user=0, now=datetime.now(UTC), say=lambda _: None, coloured=False)
    # The manifest has the test's own paths in it, so the machine's root is as it is.
    here = (f"--kubeconfig={doctor.kubeconfig}", f"--manifest={manifest}", "-o=json", "--timeout=1s")
    assert await asyncio.to_thread(run, here) == 1
    found = json.loads(doctor.printed())["findings"]
    reported = {
        (each["check"], each["level"]) for each in found if each["check"] in ("scheduler-configuration", "certificates")
    }
    assert reported == {("scheduler-configuration", "ok"), ("certificates", "ok")}
    assert any("Connection refused" in each["message"] for each in found if each["check"] == "extender")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        pytest.param(["--nonsense"], "No such option '--nonsense'", id="unknown-flag"),
        pytest.param(["-o=yaml"], "'yaml' is not one of 'text', 'json'", id="unknown-format"),
        pytest.param(["--timeout=-1s"], "expected a time", id="no-time"),
        pytest.param(["--as-group=dev"], "option --as-group: expected --as", id="a-group-alone"),
        pytest.param(["--manifest=a", "--scheduler-config=b"], "expected one of them", id="two-sources"),
        pytest.param(["--node=A B"], "expected a Kubernetes name", id="no-name"),
        pytest.param(
            ["--kubeconfig=/nonexistent/file"],
            "the file does not exist; name one with --kubeconfig or $KUBECONFIG",
            id="no-kubeconfig",
        ),
        pytest.param(
            ["--kubeconfig=/nonexistent/file", "--context=a"], "name one with --kubeconfig", id="no-kubeconfig-for-it"
        ),
        pytest.param(["--kubeconfig=/dev/zero"], "expected a file, found a device", id="an-endless-kubeconfig"),
        pytest.param(["--kubeconfig=/tmp"], "expected a file, found a directory", id="a-directory"),
        pytest.param(["--kubeconfig=~no-such-user/c"], "Could not determine home directory", id="nobodys-home"),
    ],
)
def test_invalid_usage_is_a_sentence(flags: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(flags) == 2
    text = capsys.readouterr().err
    assert words in text
    assert len(text.splitlines()) == 1
