"""The admission webhooks as deployed: at a real API server, without an extender, and with changing certificates."""

from __future__ import annotations

import base64
import ssl
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509

from tests.configurator.control_plane_files import ControlPlaneFiles
from tests.e2e.admission_cluster import ENDPOINT_SLICES, SECRETS, AdmissionCluster, secret_data
from tests.e2e.cert_manager import CertManager, add_cert_manager_kinds, renew
from tests.e2e.deployed import DEPLOY
from tests.e2e.helm import CHART
from tests.e2e.kube_api import KubeApi, Object, RefusedError, refusal
from tests.e2e.pods import PODS, container, pod
from tests.e2e.programs import running
from tests.e2e.repeated import Repeated
from tests.e2e.scheduler import KubeScheduler
from tests.e2e.waiting import wait_for
from tests.e2e.webhooks import BUSY

SYSTEM_PODS = "/api/v1/namespaces/kube-system/pods"


@pytest.fixture(scope="module")
def started(binaries: Path) -> Iterator[AdmissionCluster]:
    with running(AdmissionCluster, binaries) as cluster:
        yield cluster


@pytest.fixture
def cluster(started: AdmissionCluster) -> Iterator[AdmissionCluster]:
    """The cluster with nothing installed."""
    yield started
    started.leave()
    for path in (PODS, SYSTEM_PODS):
        started.api.delete(path, gracePeriodSeconds="0")


@pytest.fixture
def files(tmp_path: Path) -> ControlPlaneFiles:
    """The files of a control-plane node, for the configurator."""
    return ControlPlaneFiles(tmp_path / "node")


@contextmanager
def kustomized(cluster: AdmissionCluster, files: ControlPlaneFiles) -> Iterator[None]:
    """Install the overlay, then let the configurator sign the certificates, as docs/admission.md says."""
    cluster.kubectl.run("apply", "-k", DEPLOY / "overlays/admission")
    try:
        configure(cluster, files)
        yield
    finally:
        cluster.leave()
        cluster.kubectl.run("delete", "-k", DEPLOY / "overlays/admission")
        cluster.kubectl.run("delete", "secret", "extender-secret", "--ignore-not-found")


def configure(cluster: AdmissionCluster, files: ControlPlaneFiles) -> str:
    return files.run("--apply-secret", f"--kubeconfig={cluster.kubeconfig}", now=datetime.now(UTC))


@contextmanager
def charted(cluster: AdmissionCluster, *settings: str) -> Iterator[None]:
    """Install the chart with a scheduler of its own, then let the program of its Job sign the certificates."""
    values = ",".join(("admission.enabled=true", "scheduler.enabled=true", *settings))
    cluster.helm.run("install", "gas", str(CHART), "--namespace=default", "--set", values)
    try:
        cluster.run_certificates_job()
        yield
    finally:
        cluster.leave()
        cluster.helm.run("uninstall", "gas", "--namespace=default")


def with_both_drivers(name: str) -> Object:
    return pod(name, container("a", i915=1), container("b", xe=1))


def test_the_api_server_asks_the_extender_about_gpu_pods_and_no_others(
    cluster: AdmissionCluster, files: ControlPlaneFiles
) -> None:
    with kustomized(cluster, files):
        check_what_is_asked(cluster)


def check_what_is_asked(cluster: AdmissionCluster) -> None:
    api = cluster.api
    cluster.mounted.update()
    cluster.start_extender()
    cluster.lead_services(cluster.admission_port)
    said = refusal(lambda: api.create(PODS, with_both_drivers("two-drivers")))
    assert said.startswith('admission webhook "create.pods.gas" denied the request: ')
    assert "use only one of them" in said
    api.create(PODS, pod("one-driver", container(i915=1)))
    asked = cluster.reviews("validate")
    assert asked == 2
    api.create(PODS, pod("no-cards"))
    api.create(SYSTEM_PODS, with_both_drivers("of-the-system"))
    api.merge(f"{PODS}/one-driver", {"metadata": {"labels": {"seen": "yes"}}})
    assert cluster.reviews("validate") == asked
    api.merge(f"{PODS}/one-driver", {"metadata": {"annotations": {"seen": "yes"}}})
    assert cluster.reviews("validate") == asked + 1
    cluster.add_endpoints()
    found = cluster.doctor("admission")
    assert [each["level"] for each in found] == ["ok"] * len(cluster.webhooks()), found
    api.delete(ENDPOINT_SLICES)

    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": pod("x", container(i915=1))["spec"] | {"restartPolicy": "Always"},
    }
    workload = {"metadata": {"name": "w"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}
    sets = "/apis/apps/v1/namespaces/default/replicasets"
    made = api.create(sets, workload)
    assert cluster.reviews("validate") == asked + 2
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "w",
        "uid": made["metadata"]["uid"],
        "controller": True,
    }
    api.create(sets, workload | {"metadata": {"name": "owned", "ownerReferences": [owner]}})
    api.merge(f"{sets}/w", {"metadata": {"labels": {"seen": "yes"}}})
    assert cluster.reviews("validate") == asked + 2
    template["spec"]["restartPolicy"] = "OnFailure"
    job = {"spec": {"template": {"spec": template["spec"]}}}
    jobs = {"metadata": {"name": "j"}, "spec": {"schedule": "@yearly", "jobTemplate": job}}
    api.create("/apis/batch/v1/namespaces/default/cronjobs", jobs)
    assert cluster.reviews("validate") == asked + 3
    for path in (sets, "/apis/batch/v1/namespaces/default/cronjobs"):
        api.delete(path)


def test_the_configurator_may_run_before_and_after_the_webhooks_are_registered(
    cluster: AdmissionCluster, files: ControlPlaneFiles
) -> None:
    assert "the API server trusts" not in configure(cluster, files)
    with kustomized(cluster, files):
        assert all("caBundle" in each["clientConfig"] for each in cluster.webhooks())
        assert "the API server trusts" not in configure(cluster, files)
        # Applying the manifests again keeps what the configurator has written.
        cluster.kubectl.run("apply", "-k", DEPLOY / "overlays/admission")
        assert all("caBundle" in each["clientConfig"] for each in cluster.webhooks())


def test_an_upgrade_of_the_chart_keeps_the_authority(cluster: AdmissionCluster) -> None:
    with charted(cluster):
        before = {each["name"]: each["clientConfig"]["caBundle"] for each in cluster.webhooks()}
        assert "bind-strict.pods.gas" in before
        values = "admission.enabled=true,scheduler.enabled=true,admission.timeoutSeconds=3"
        cluster.helm.run("upgrade", "gas", str(CHART), "--namespace=default", "--set", values)
        assert {each["name"]: each["clientConfig"]["caBundle"] for each in cluster.webhooks()} == before
        assert {each["timeoutSeconds"] for each in cluster.webhooks()} == {3}


def test_a_cluster_starts_from_nothing_with_the_webhooks_registered(cluster: AdmissionCluster, binaries: Path) -> None:
    """No extender runs, and its Services lead to an address that does not respond."""
    api = cluster.api
    with charted(cluster):
        cluster.mounted.update()
        cluster.control_plane.restart()
        cluster.lead_services(None)
        scheduler = KubeScheduler(
            cluster.directory, binaries, cluster.authority, cluster.control_plane.scheduler, cluster.admission_port
        )
        started = time.monotonic()
        scheduler.start(ignorable=False)
        try:
            names = {}
            for number in range(3):
                api.create(SYSTEM_PODS, pod(f"system-{number}"))
            for kind, name in (("deployments", "gpu-aware-scheduling"), ("daemonsets", "gas-plugin")):
                template = api.get(f"/apis/apps/v1/namespaces/default/{kind}/{name}")["spec"]["template"]
                spec = template["spec"] | {"nodeSelector": {}, "affinity": {}}
                api.create(PODS, {"metadata": {"name": name, "labels": template["metadata"]["labels"]}, "spec": spec})
                names[name] = f"{PODS}/{name}"
            names |= {f"system-{number}": f"{SYSTEM_PODS}/system-{number}" for number in range(3)}
            created = time.monotonic() - started
            assert uncalled(api) == 0, "a creation that the webhooks do not select waited for one"
            for name, path in names.items():
                wait_for(f"{name} is bound", lambda path=path: api.get(path)["spec"].get("nodeName"), seconds=60)  # type: ignore[misc]
            print(f"created after {created:.1f} s, all bound after {time.monotonic() - started:.1f} s")
        finally:
            scheduler.stop()

        # A GPU pod is created without the check, after at most the time-out.
        assert {each["timeoutSeconds"] for each in cluster.webhooks()} == {2}
        api.create(PODS, with_both_drivers("unchecked"))
        assert uncalled(api) > 0
        # Its binding by a shared scheduler, or by a person, is made without cards.
        for name, user in (("shared", cluster.control_plane.scheduler), ("person", api)):
            api.create(PODS, pod(name, container(i915=1)))
            bind(user, name)
            assert "annotations" not in api.get(f"{PODS}/{name}")["metadata"]
        # The scheduler of GPU pods only is refused, and no such pod runs without cards.
        api.create(PODS, pod("strict", container(i915=1)))
        said = refusal(lambda: bind(cluster.user("gas-scheduler"), "strict"))
        assert 'failed calling webhook "bind-strict.pods.gas"' in said
        assert "nodeName" not in api.get(f"{PODS}/strict")["spec"]

        # When the extender is back, everything is as before.
        cluster.start_extender()
        cluster.lead_services(cluster.admission_port)
        assert "denied the request" in refusal(lambda: api.create(PODS, with_both_drivers("two-drivers")))
        bind(cluster.user("gas-scheduler"), "strict")
        assert api.get(f"{PODS}/strict")["metadata"]["annotations"]["gas-container-cards"] in ("card0", "card1")


def uncalled(api: KubeApi) -> float:
    """Return how often kube-apiserver created something without the response of a webhook; bindings do not count."""
    counted = "apiserver_admission_webhook_fail_open_count{"
    samples = api.metrics().items()
    return sum(value for name, value in samples if name.startswith(counted) and 'name="bind' not in name)


def bind(user: KubeApi, name: str) -> None:
    target = {"apiVersion": "v1", "kind": "Node", "name": "n1"}
    user.create(f"{PODS}/{name}/binding", {"metadata": {"name": name}, "target": target})


class Load(Repeated):
    """Create GPU pods from many threads at once, in bursts, without keeping them. Keeps what the API server refused."""

    def __init__(self, api: KubeApi, *, threads: int) -> None:
        super().__init__("load", every=0)
        self.created = 0
        self.refused: list[str] = []
        self._api = api
        self._threads = threads
        self._bursts = 0

    def wait_for_more(self, pods: int) -> None:
        wanted = self.created + pods
        wait_for(f"{wanted} pods", lambda: self.created >= wanted or self.refused, seconds=180)

    def step(self) -> None:
        names = [f"load-{self._bursts}-{number}" for number in range(self._threads)]
        self._bursts += 1
        with ThreadPoolExecutor(self._threads) as pool:
            list(pool.map(self._create, names))

    def _create(self, name: str) -> None:
        try:
            self._api.create(f"{PODS}?dryRun=All", pod(name, container(i915=1)))
            self.created += 1
        except RefusedError as refused:
            self.refused.append(refused.message)


def test_no_pod_is_refused_while_certificates_and_their_authority_are_replaced(cluster: AdmissionCluster) -> None:
    """With failure policy Fail, so that each failed call shows. The extender is not restarted."""
    api = cluster.api
    with charted(cluster, f"admission.timeoutSeconds={BUSY}"):
        cluster.mounted.update()
        extender = cluster.start_extender()
        cluster.lead_services(cluster.admission_port)
        cluster.set_policy("create.pods.gas", "Fail")
        pid = extender.program.pid
        served: set[int] = set()
        refused: list[str] = []
        with Load(api, threads=4) as load:
            for number, what in enumerate(("extender-secret", "gas-authority")):
                api.merge(f"{SECRETS}/{what}", {"data": None})
                assert "a new " in cluster.run_certificates_job()
                cluster.wait_until_webhooks_are_read()
                load.wait_for_more(20)  # the API server has the new bundle, the extender still its earlier certificate
                assert cluster.mounted.update()
                served.add(wait_for_certificate(cluster))
                refused += refused_with_new_connections(cluster, 8 * (number + 1))
        assert load.refused + refused == []
        assert extender.program.pid == pid
        assert extender.program.is_running
        assert len(served) == 2
        print(f"{load.created} pods over {cluster.forwarders['gas-admission'].connections} connections")
        # The same load is refused when the bundle lacks the authority, so the test would notice.
        spoil_bundle(cluster)
        with Load(api, threads=4) as spoiled:
            wait_for("a refused pod", lambda: spoiled.refused)
        assert "failed to verify certificate" in spoiled.refused[0]


def test_no_pod_is_refused_while_cert_manager_renews_certificates_and_their_authority(
    cluster: AdmissionCluster, binaries: Path
) -> None:
    """cert-manager replaces the bundle as soon as a certificate is renewed, and kubelet mounts it some time later."""
    api = cluster.api
    add_cert_manager_kinds(api, binaries)
    with CertManager(cluster.directory, binaries, api) as manager, cert_managed(cluster):

        def are_signed() -> bool:
            manager.check()
            return cluster.mounted.update()

        wait_for("certificates", are_signed, seconds=120)
        wait_for("bundles", lambda: bundles(cluster) == {secret_data(api, "extender-secret")["ca.crt"]}, seconds=120)
        # What cert-manager does not know it leaves as it is.
        assert all("matchConditions" in each for each in cluster.webhooks())
        cluster.start_extender()
        cluster.lead_services(cluster.admission_port)
        cluster.set_policy("create.pods.gas", "Fail")
        assert "denied the request" in refusal(lambda: api.create(PODS, with_both_drivers("two-drivers")))
        refused: list[str] = []
        with Load(api, threads=10) as load:
            for name in ("gas-authority", "extender-secret"):
                renew_and_wait(cluster, name)
            # The API server has the new bundle, the extender still its earlier certificate.
            refused += refused_with_new_connections(cluster, 15)
            assert cluster.mounted.update()
            wait_for_certificate(cluster)
            refused += refused_with_new_connections(cluster, 30)
        assert load.refused + refused == []


def renew_and_wait(cluster: AdmissionCluster, name: str) -> None:
    """Let cert-manager renew a certificate, and wait until the webhooks have its authority."""
    api = cluster.api
    before = secret_data(api, name)["tls.crt"]
    renew(api, "default", name)
    wait_for(f"{name} is new", lambda: secret_data(api, name)["tls.crt"] != before, seconds=120)
    wait_for("bundles", lambda: bundles(cluster) == {secret_data(api, "extender-secret")["ca.crt"]}, seconds=120)
    cluster.wait_until_webhooks_are_read()


def refused_with_new_connections(cluster: AdmissionCluster, threads: int) -> list[str]:
    """Create pods in bursts, each with more threads, until the API server has needed further connections."""
    forwarder = cluster.forwarders["gas-admission"]
    before = forwarder.connections
    refused: list[str] = []
    for more in range(0, 80, 8):
        with Load(cluster.api, threads=threads + more) as burst:
            burst.wait_for_more(3 * threads)
        refused += burst.refused
        if forwarder.connections > before:
            return refused
    pytest.fail(f"the API server needed no connection beside its {before} ones")


@contextmanager
def cert_managed(cluster: AdmissionCluster) -> Iterator[None]:
    """Install the chart so that cert-manager signs, and remove what cert-manager leaves."""
    values = f"admission.enabled=true,admission.timeoutSeconds={BUSY},certificates.source=cert-manager"
    cluster.helm.run("install", "gas", str(CHART), "--namespace=default", "--set", values)
    try:
        yield
    finally:
        cluster.leave()
        cluster.helm.run("uninstall", "gas", "--namespace=default")
        for name in ("extender-secret", "gas-authority", "gas-scheduler-client"):
            cluster.kubectl.run("delete", "secret", name, "--ignore-not-found")


def bundles(cluster: AdmissionCluster) -> set[str]:
    """Return all authorities that the API server trusts for the webhooks, encoded."""
    return {each["clientConfig"].get("caBundle", "") for each in cluster.webhooks()}


def wait_for_certificate(cluster: AdmissionCluster) -> int:
    """Wait until the extender presents the mounted certificate, and return its serial number."""
    wanted = x509.load_pem_x509_certificate(cluster.mounted.pair.certificate.read_bytes()).serial_number

    def is_presented() -> bool:
        text = ssl.get_server_certificate(("127.0.0.1", cluster.admission_port))
        return x509.load_pem_x509_certificate(text.encode()).serial_number == wanted

    wait_for("the new certificate", is_presented, seconds=60)
    return wanted


def spoil_bundle(cluster: AdmissionCluster) -> None:
    encoded = base64.b64encode(cluster.authority.certificate.read_bytes()).decode()
    cluster.patch_webhook({"name": "create.pods.gas", "clientConfig": {"caBundle": encoded}})
