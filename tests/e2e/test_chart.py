"""The Helm chart, installed by a real Helm into a real API server, and its pods on a real kubelet."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from cryptography import x509

from configurator.flags import parse_flags
from sandbox.hardware.fake_sysfs import FLEX_170, fake_gpus, write_tree
from tests.deploy.manifests import arguments
from tests.e2e.chart_cluster import NAMESPACE, PODS, ChartCluster
from tests.e2e.deployed import DEPLOY, plugin_with_cards, refused
from tests.e2e.helm import CHART, PAGE, documented_values, objects
from tests.e2e.images import BUSYBOX, write_program_image
from tests.e2e.kube_api import KubeApi, Object, RefusedError, refusal
from tests.e2e.kubectl import follow
from tests.e2e.node_cell import NodeCell, running_node
from tests.e2e.pods import cards_of, container, get_pod, pod
from tests.e2e.ports import free_port
from tests.e2e.programs import ProgramError, running
from tests.e2e.project_image import REPOSITORY, built_image
from tests.e2e.release import pinned_version
from tests.e2e.waiting import wait_for

DOCUMENTED = documented_values()
KUBERNETES = {"before-1.30": "1.29.14"}
"""The release that documented values are for, where it is not the one of these tests."""
SETTINGS = {
    "extender": "plugin.enabled=false",
    "plugin": "extender.enabled=false",
    "nvidia": "plugin.nvidia.runtimeClassName=",
    "annotations": "monitoring.annotations=true",
    "admission": "extender.replicas=1",
    "monitoring": "monitoring.podMonitors.labels=null,monitoring.rules.labels=null",
    "original-certificates": "plugin.enabled=false,certificates.clusterAuthority=true",
}
"""What makes the chart the same as an overlay, in addition to the documented values of this name."""
DECISIONS = CHART / "templates/_decisions.tpl"
VOCABULARIES = "--vocabularies="
SECRETS = ("gas-authority", "extender-secret", "gas-scheduler-client")


@pytest.fixture(scope="module")
def chart(binaries: Path) -> Iterator[ChartCluster]:
    """A cluster in which nothing is installed yet."""
    with running(ChartCluster, binaries) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def machine(chart: ChartCluster) -> Iterator[NodeCell]:
    """A real node with the images of the project and of kube-scheduler, by the names that the chart gives them."""
    with running_node(chart.binaries, chart.api) as node:
        node.containerd.import_image(built_image(chart.binaries).archive)
        node.containerd.tag_image("docker.io/library/gas:0.1.0", "registry.example/gas:0.1.0")
        node.containerd.tag_image(BUSYBOX.name, "docker.io/library/busybox:1.37")
        node.add_network()
        version = chart.api.get("/version")["gitVersion"]
        archive = node.directory / "kube-scheduler.tar"
        write_program_image(archive, f"registry.k8s.io/kube-scheduler:{version}", chart.binaries / "kube-scheduler")
        node.containerd.import_image(archive)
        yield node


@pytest.mark.parametrize("name", ["defaults", *DOCUMENTED])
def test_documented_values_are_well_and_the_api_server_takes_what_they_make(chart: ChartCluster, name: str) -> None:
    values, kubernetes = DOCUMENTED.get(name, ""), KUBERNETES.get(name, pinned_version())
    said = chart.helm.run("lint", "--strict", f"--kube-version={kubernetes}", str(CHART), values=values)
    assert "0 chart(s) failed" in said
    rendered = chart.helm.template(f"--namespace={NAMESPACE}", values=values, kubernetes=kubernetes)
    said = chart.kubectl.run("apply", "--dry-run=server", "-f", "-", text=rendered)
    assert said.count("created (server dry run)") == len(objects(rendered))
    assert "Warning" not in said


@pytest.mark.parametrize("overlay", sorted(file.parent.name for file in DEPLOY.glob("overlays/*/kustomization.yaml")))
def test_the_chart_makes_what_the_overlay_makes(chart: ChartCluster, overlay: str) -> None:
    """Object for object and field for field, but for Helm's labels, and accounts that the chart knows exactly."""
    settings, values = SETTINGS.get(overlay, ""), DOCUMENTED.get(overlay)
    made = _by_name(objects(chart.helm.template("--namespace=default", "--set", settings, values=values)))
    applied = _by_name(objects(chart.kubectl.run("kustomize", DEPLOY / "overlays" / overlay)))
    for found in (made, applied):
        if (policy := found.get("ValidatingAdmissionPolicy/gas-plugin-own-node-only")) is not None:
            (condition,) = policy["spec"]["matchConditions"]
            assert "system:serviceaccount:" in condition.pop("expression")
        if (webhooks := found.get("MutatingWebhookConfiguration/gas-admission")) is not None:
            (binding,) = [each for each in webhooks["webhooks"] if each["name"] == "bind.pods.gas"]
            (condition,) = binding["matchConditions"]
            assert "gpu-aware-scheduling-service-account" in condition.pop("expression")
    assert made == applied


def test_on_openshift_the_chart_makes_what_the_component_makes(chart: ChartCluster, tmp_path: Path) -> None:
    (tmp_path / "deploy").symlink_to(DEPLOY)
    (tmp_path / "kustomization.yaml").write_text(
        "resources: [deploy/overlays/plugin]\ncomponents: [deploy/components/openshift]\n"
    )
    applied = _by_name(objects(chart.kubectl.run("kustomize", tmp_path)))
    names = ["SecurityContextConstraints/gas-plugin", "Role/gas-plugin", "RoleBinding/gas-plugin"]
    kind = "--api-versions=security.openshift.io/v1/SecurityContextConstraints"
    made = _by_name(objects(chart.helm.template("--namespace=default", kind)))
    assert [made[name] for name in names] == [applied[name] for name in names]


def test_aliyuns_label_may_choose_the_nodes_with_nvidias_cards(chart: ChartCluster) -> None:
    selector = 'nodeSelector: {gpushare: "true", nvidia.com/gpu.present: null}'
    assert f"plugin.nvidia.{selector}`" in (REPOSITORY / "docs/from-aliyun.md").read_text()
    values = DOCUMENTED["aliyun-nvidia"].replace("nvidia: {enabled: true", f"nvidia: {{enabled: true, {selector}")
    made = _by_name(objects(chart.helm.template("--namespace=default", values=values)))
    spec = made["DaemonSet/gas-plugin-nvidia"]["spec"]["template"]["spec"]
    assert spec["nodeSelector"] == {"gpushare": "true", "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"}


@pytest.mark.parametrize("overlay", ["nvidia", "aliyun-nvidia", "koordinator-nvidia", "kubeshare-nvidia"])
def test_the_arguments_that_other_tests_read_are_those_that_kubectl_makes(chart: ChartCluster, overlay: str) -> None:
    for each in objects(chart.kubectl.run("kustomize", DEPLOY / "overlays" / overlay)):
        if each["kind"] in ("Deployment", "DaemonSet"):
            (found,) = each["spec"]["template"]["spec"]["containers"]
            assert found["args"] == arguments(overlay, each["metadata"]["name"])


def _by_name(found: list[Object]) -> dict[str, Object]:
    return {f"{each['kind']}/{each['metadata']['name']}": _comparable(each) for each in found}


def _comparable(written: Object) -> Object:
    labels = written["metadata"]["labels"]
    for name in ("instance", "version", "managed-by"):
        labels.pop(f"app.kubernetes.io/{name}", None)
    labels.pop("helm.sh/chart", None)
    if written["kind"] in ("Deployment", "DaemonSet"):
        _sort_volumes_and_arguments(written)
    if written["kind"].endswith("WebhookConfiguration"):
        written["webhooks"].sort(key=lambda each: each["name"])
    cleaned = _without_nothing(written)
    assert isinstance(cleaned, dict)
    return cleaned


def _without_nothing(value: object) -> object:
    """Without what says nothing: null, empty lists, and the line ends that kustomize adds to texts."""
    if isinstance(value, str):
        return " ".join(value.split())
    if isinstance(value, dict):
        return {key: _without_nothing(each) for key, each in value.items() if each is not None and each != []}
    return [_without_nothing(each) for each in value] if isinstance(value, list) else value


def _sort_volumes_and_arguments(workload: Object) -> None:
    """Their order means nothing, and the values of --vocabularies are joined if it is given several times."""
    spec = workload["spec"]["template"]["spec"]
    for named in (spec["volumes"], *(each["volumeMounts"] for each in spec["containers"])):
        named.sort(key=lambda each: each["name"])
    for each in spec["containers"]:
        given = each.get("args") or ()
        joined = {
            name
            for flag in given
            if flag.startswith(VOCABULARIES)
            for name in flag.removeprefix(VOCABULARIES).split(",")
        }
        each["args"] = sorted({*(flag for flag in given if not flag.startswith(VOCABULARIES)), *joined})


REFUSED = (
    ("extender.replica=2", "additional properties 'replica' not allowed"),
    (
        "certificates.source=job,certificates.secretName=x,certificates.authoritySecretName=x",
        "must be three different names, found x, gas-scheduler-client, x",
    ),
    ("extender.serviceAccount.name=x,plugin.serviceAccount.name=x", "would have the permissions of the extender"),
    ("extender.metricsPort=9001", "they must be two different ports"),
    ("admission.enabled=true,admission.port=9002", "admission.port is 9002"),
    ("admission.enabled=true,extender.enabled=false", "the extender serves the webhooks"),
    (
        "admission.enabled=true,admission.strictUsers={system:kube-scheduler}",
        "while the extender is away no pod of the cluster would be bound",
    ),
    (
        "admission.enabled=true,admission.clientCertificate=true,certificates.source=job",
        "only gas-configurator --api-server gives the API server a certificate",
    ),
    ("extender.enabled=false,plugin.enabled=false", "there is nothing to install"),
    (
        "plugin.flags.allow-ids={0x56c0},plugin.flags.deny-ids={0x56c1}",
        "plugin.flags.allow-ids and plugin.flags.deny-ids exclude each other",
    ),
    ("extender.enabled=false,scheduler.enabled=true", "scheduler needs the extender"),
    (
        "admission.schedulerName=x,admission.clientCertificate=true",
        "admission.clientCertificate, admission.schedulerName: no effect without admission.enabled=true",
    ),
    (
        "page.hosts={a.example},page.grafana=https://b.example",
        "page.grafana, page.hosts: no effect without page.enabled=true",
    ),
    ("scheduler.otherGPUPods=refuse", "no scheduler would place GPU pods"),
    (
        "certificates.extraNames={a.example}",
        "certificates.extraNames: no effect without certificates.source=job or cert-manager",
    ),
    *(
        (f"{part}.{name}=true,{needed}=false", f"{part}.{name}: no effect without {needed}=true")
        for name, part, needed in re.findall(
            r'\(pick \S+ "(\w+)"[^)]*\) "part" "([\w.]+)" "needs" "([\w.]+)=true"', DECISIONS.read_text()
        )
    ),
    ("scheduler.enabled=true,scheduler.name=default-scheduler", "would place the same pods"),
    ("certificates.clusterAuthority=true,certificates.source=job", "needs certificates.source=secret"),
)
"""Values that make no sense, and what Helm says of them. `tests/deploy/test_chart.py` has more for the schema."""


def test_values_that_make_no_sense_are_refused_with_a_sentence(chart: ChartCluster) -> None:
    before = chart.everything()
    for setting, sentence in REFUSED:
        with pytest.raises(ProgramError) as error:
            chart.install("install", "--set", setting)
        assert sentence in str(error.value), setting
    assert chart.everything() == before


def test_a_cluster_without_admission_policies_is_refused(chart: ChartCluster) -> None:
    with pytest.raises(ProgramError, match=r"set plugin\.admissionPolicy\.enabled=false"):
        chart.helm.template(kubernetes="1.29.14")
    with pytest.raises(
        ProgramError, match=r"the conditions of the webhooks need Kubernetes 1\.29: set admission\.enabled=false"
    ):
        chart.helm.template("--set=admission.enabled=true,plugin.admissionPolicy.enabled=false", kubernetes="1.28.15")
    with pytest.raises(ProgramError, match="the API server does not serve MutatingAdmissionPolicy"):
        chart.helm.run(
            "template", "gas", str(CHART), "--kube-version=1.34.4", "--set", "scheduler.enabled=true",
            "--set", "scheduler.otherGPUPods=send", "--dry-run=client",
        )  # fmt: skip


def test_the_second_scheduler_is_of_the_clusters_release(chart: ChartCluster) -> None:
    values = "{scheduler: {enabled: true}, plugin: {admissionPolicy: {enabled: false}}}"
    found = objects(chart.helm.template(values=values, kubernetes="v1.36.0+k3s1"))
    (deployment,) = [
        each for each in found if (each["kind"], each["metadata"]["name"]) == ("Deployment", "gas-scheduler")
    ]
    (running,) = deployment["spec"]["template"]["spec"]["containers"]
    assert running["image"] == "registry.k8s.io/kube-scheduler:v1.36.0"


def test_two_releases_share_no_name(chart: ChartCluster) -> None:
    values = DOCUMENTED["monitoring"] + "\nscheduler: {enabled: true, otherGPUPods: refuse, replicas: 2}"
    values += "\nadmission: {enabled: true, schedulerName: gas-scheduler}"
    replicas = "extender.replicas=2"
    first = _by_name(objects(chart.helm.template("--set", replicas, values=values)))
    second = _by_name(objects(chart.helm.template("--set", f"{replicas},nameOverride=other", values=values)))
    assert len(first) == len(second) > 30
    assert not first.keys() & second.keys()
    alerts = yaml.safe_dump(second["PrometheusRule/other"]["spec"], width=10_000)
    assert "Deployment other-extender" in alerts
    assert alerts.count("the other-plugin pod") == 4
    assert "Deployment gpu-aware-scheduling" not in alerts
    assert "gas-plugin pod" not in alerts
    selectors = [
        each["spec"]["selector"]["matchLabels"]["app"]
        for each in (*first.values(), *second.values())
        if each["kind"] in ("Deployment", "DaemonSet")
    ]
    assert len(selectors) == len(set(selectors)) == 6


def test_a_secret_that_exists_already_is_not_overwritten(chart: ChartCluster) -> None:
    secrets = f"/api/v1/namespaces/{NAMESPACE}/secrets"
    chart.api.create(secrets, {"metadata": {"name": "extender-secret"}, "data": {"tls.crt": "bm9uZQ=="}})
    before = chart.everything()
    with pytest.raises(ProgramError, match='Secret "extender-secret" in namespace "gas-system" exists and cannot'):
        chart.install("install", values=DOCUMENTED["job"])
    assert chart.secret("extender-secret") == {"tls.crt": b"none"}
    assert chart.everything() == before
    chart.api.delete(f"{secrets}/extender-secret")


def test_the_commands_of_the_page(chart: ChartCluster, tmp_path: Path) -> None:
    """Read from the page and run in order, the taking over of applied manifests last."""
    install, go_on, take_over, uninstall = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    checkout, programs = tmp_path / "checkout", tmp_path / "bin"
    programs.mkdir()
    for program in ("helm", "kubectl"):
        (programs / program).symlink_to(chart.binaries / program)
    shutil.copytree(DEPLOY, checkout / "deploy")
    path, kubeconfig = f"{programs}:/usr/bin:/bin", str(chart.kubectl.kubeconfig)
    env = {"PATH": path, "KUBECONFIG": kubeconfig, "HOME": str(tmp_path)}
    before = chart.everything()

    assert "gas-configurator --url=" in follow(install, checkout, env)
    daemonset = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/gas-plugin"
    plugin = chart.api.get(daemonset)
    (running,) = plugin["spec"]["template"]["spec"]["containers"]
    assert (running["image"], running["args"]) == ("registry.example/gas:0.1.0", ["--shared-dev-num=10"])
    assert "Rollback was a success" in follow(go_on, checkout, env)
    with _rolled_out(chart.api, daemonset):
        assert 'release "gas" uninstalled' in follow(uninstall, checkout, env)
    assert chart.everything() == before

    secret = {"metadata": {"name": "extender-secret"}, "data": {"tls.crt": "bm9uZQ=="}}
    chart.api.create("/api/v1/namespaces/default/secrets", secret)
    chart.kubectl.run("apply", "-k", DEPLOY / "overlays/replicas")
    applied = chart.everything()
    deployment = "/apis/apps/v1/namespaces/default/deployments/gpu-aware-scheduling"
    uid = chart.api.get(deployment)["metadata"]["uid"]
    with pytest.raises(ProgramError, match="exists and cannot be imported into the current release"):
        chart.helm.run("install", "gas", str(CHART), "--namespace=default")
    with pytest.raises(AssertionError, match="exists and cannot be imported into the current release"):
        follow(install, checkout, env)  # a new user's namespace: no second extender beside the first one
    follow(take_over, checkout, env)
    taken = chart.api.get(deployment)
    assert (taken["metadata"]["uid"], taken["spec"]["replicas"]) == (uid, 1)
    chart.helm.run("uninstall", "gas", "--namespace=default")
    assert "Secret/default/extender-secret" in chart.everything() < applied
    chart.kubectl.run("delete", "--ignore-not-found", "-k", DEPLOY / "overlays/replicas")
    chart.api.delete("/api/v1/namespaces/default/secrets/extender-secret")
    assert chart.everything() == before


@contextmanager
def _rolled_out(api: KubeApi, path: str) -> Iterator[None]:
    """Report for a DaemonSet, without its controller, that each change was seen and no node is left."""
    over = threading.Event()

    def say() -> None:
        while not over.wait(0.2):
            with contextlib.suppress(RefusedError):  # it is gone
                generation = api.get(path)["metadata"]["generation"]
                api.merge(f"{path}/status", {"status": {"observedGeneration": generation}})

    thread = threading.Thread(target=say)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _look_at_commands(notes: str) -> None:
    """Each command of the configurator that the notes tell has flags that it knows."""
    commands = [line.strip() for line in notes.splitlines() if line.startswith("  gas-configurator")]
    assert commands
    for command in commands:
        parse_flags(shlex.split(command)[1:])


@pytest.mark.parametrize("name", ["job", "cert-manager"])
def test_the_notes_bring_made_certificates_to_a_static_pod(chart: ChartCluster, name: str) -> None:
    _look_at_commands(chart.install("install", "--dry-run=server", values=DOCUMENTED[name]))


def three_commands() -> list[str]:
    """Return the commands that take a new user from a clone to a pod on its card."""
    page = (REPOSITORY / "docs/install.md").read_text().partition("## Three commands\n")[2]
    (block,) = re.findall(r"^```sh\n(.*?)^```$", page.partition("\n## ")[0], re.DOTALL | re.MULTILINE)
    return [each.strip() for each in re.split(r"^(?=make |helm |kubectl )", block, flags=re.MULTILINE) if each]


class Running:
    """The release with a second scheduler, its pods running on the node."""

    def __init__(self, chart: ChartCluster, machine: NodeCell) -> None:
        self.chart = chart
        self.machine = machine
        self.ports = [free_port() for _ in range(3)]
        port, metrics, scheduler = self.ports
        self.values = yaml.safe_dump(
            {
                "extender": {"port": port, "metricsPort": metrics, "service": {"port": port}},
                "scheduler": {"enabled": True, "port": scheduler},
            }
        )
        self.seconds: dict[str, float] = {}
        programs = chart.helm.directory / "bin"
        programs.mkdir()
        for program in ("helm", "kubectl"):
            (programs / program).symlink_to(chart.binaries / program)
        buildah = programs / "buildah"
        buildah.write_text('#!/bin/sh\necho "not run, because there is no registry: buildah $*"\n')
        buildah.chmod(0o755)
        self.env = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "KUBECONFIG": str(chart.kubectl.kubeconfig),
            "HOME": str(chart.helm.directory),
        }

    def start(self) -> None:
        """Extender and scheduler first, so that they have to wait for their certificates."""
        chart, machine = self.chart, self.machine
        self.before = chart.everything()
        values = chart.helm.directory / "ports.yaml"
        values.write_text(self.values)
        image, install, _ = three_commands()
        assert "buildah push registry.example/gas:0.1.0" in follow(image, REPOSITORY, self.env)
        notes = follow(f"{install} --values={values}", REPOSITORY, self.env)
        assert "schedulerName: gas-scheduler" in notes
        (admit,) = re.findall(r"  kubectl (label namespace .*)", notes)
        chart.kubectl.run(*admit.split())
        started = time.monotonic()
        for name, hosts in (
            ("gpu-aware-scheduling", ()),
            ("gas-scheduler", ("gas-service.gas-system.svc.cluster.local",)),
        ):
            template = chart.workload("deployments", name)["spec"]["template"]
            chart.run(chart.runnable(template, name, hosts=hosts), machine)
        wait_for("kubelet looks for the certificates", lambda: self._misses("gpu-aware-scheduling"))
        assert [chart.secret(name) for name in SECRETS] == [{}, {}, {}]
        self.said = self.run_job("certificates")
        for name in ("gpu-aware-scheduling", "gas-scheduler"):
            self.seconds[name] = chart.wait_until_ready(name, machine, since=started)

    def run_job(self, name: str) -> str:
        (job,) = self.chart.jobs()
        self.chart.run(self.chart.runnable(job["spec"]["template"], name), self.machine)
        return self.chart.wait_until_succeeded(name, self.machine)

    def _misses(self, name: str) -> bool:
        events = self.chart.api.items(f"/api/v1/namespaces/{NAMESPACE}/events")
        return any(
            event["involvedObject"]["name"] == name and "references non-existent secret key" in event["message"]
            for event in events
        )


@pytest.fixture(scope="module")
def release(chart: ChartCluster, machine: NodeCell) -> Running:
    installed = Running(chart, machine)
    installed.start()
    return installed


def test_the_second_scheduler_places_a_pod_that_names_it(release: Running) -> None:
    print("seconds until ready, waiting for certificates included:", release.seconds)
    api = release.chart.api
    resources = {"cpu": "4", "memory": "8Gi", "pods": "110", "gpu.intel.com/i915": "2"}
    ready = [{"type": "Ready", "status": "True"}]
    node = api.create("/api/v1/nodes", {"metadata": {"name": "n1", "labels": {"gpu.intel.com/gpu-numbers": "0.1"}}})
    node["status"] = {"capacity": resources, "allocatable": resources, "conditions": ready}
    api.merge("/api/v1/nodes/n1/status", node)
    both = ("first", "second")
    for name in both:
        wanted = pod(name, container(i915=1))
        wanted["spec"]["schedulerName"] = "gas-scheduler"
        api.create(PODS, wanted)
    wait_for("both are bound", lambda: all(release.chart.pod(name)["spec"].get("nodeName") for name in both))
    placed = [release.chart.pod(name) for name in both]
    assert {each["spec"]["nodeName"] for each in placed} == {"n1"}
    assert {cards_of(each) for each in placed} == {"card0", "card1"}


def test_the_certificates_are_for_the_service_and_for_the_scheduler_alone(release: Running) -> None:
    authority, serving, client = (release.chart.secret(name) for name in SECRETS)
    names = x509.load_pem_x509_certificate(serving["tls.crt"]).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert "gas-service.gas-system.svc.cluster.local" in names.value.get_values_for_type(x509.DNSName)
    assert serving["ca.crt"] == client["ca.crt"] == authority["tls.crt"]
    assert release.said.count("a new") == 3


def test_certificates_survive_another_run_an_upgrade_and_a_rollback(release: Running) -> None:
    chart = release.chart
    made = [chart.secret(name) for name in SECRETS]
    assert release.run_job("certificates-again").strip().startswith("nothing to renew")
    notes = chart.install(
        "upgrade", "--set", "extender.flags.v=2,certificates.extraNames={more.example}", values=release.values
    )
    assert "kubectl label namespace" not in notes  # `Running.start` has followed it
    assert [chart.secret(name) for name in SECRETS] == made
    # Another name to be served by is another certificate, of the same authority, and another Job.
    assert "extender-secret: a new certificate" in release.run_job("certificates-more")
    authority, serving, client = (chart.secret(name) for name in SECRETS)
    assert (authority, client) == (made[0], made[2])
    assert serving != made[1]
    chart.helm.run("rollback", "gas", "1", f"--namespace={NAMESPACE}")
    assert [chart.secret(name) for name in SECRETS] == [authority, serving, client]


def test_gpu_pods_that_name_another_scheduler_are_refused_or_sent(release: Running) -> None:
    chart, wanted = release.chart, pod("elsewhere", container(i915=1))
    dry = f"{PODS}?dryRun=All"
    chart.install("upgrade", "--set", "scheduler.otherGPUPods=refuse", values=release.values)

    assert "set schedulerName: gas-scheduler in the pod's spec" in wait_for(
        "the policy", lambda: refusal(lambda: chart.api.create(dry, wanted))
    )
    named = pod("named", init=[container("first", xe=1)])
    with pytest.raises(RefusedError, match="in this cluster the scheduler gas-scheduler places pods"):
        chart.api.create(dry, named)
    named["spec"]["schedulerName"] = "gas-scheduler"
    chart.api.create(dry, named)
    chart.api.create(dry, pod("without-gpus"))

    chart.install("upgrade", "--set", "scheduler.otherGPUPods=send", values=release.values)
    elsewhere = pod("other", container(i915=1))
    elsewhere["spec"]["schedulerName"] = "somebodys"
    wait_for("no pod is refused any more", lambda: not refusal(lambda: chart.api.create(dry, elsewhere)))
    assert chart.api.create(dry, elsewhere)["spec"]["schedulerName"] == "somebodys"
    wait_for("pods are sent", lambda: chart.api.create(dry, wanted)["spec"]["schedulerName"] == "gas-scheduler")
    assert chart.api.create(dry, pod("without-gpus"))["spec"]["schedulerName"] == "default-scheduler"


def test_the_plugin_may_change_its_own_node_only_in_this_namespace_too(release: Running) -> None:
    api = release.chart.api
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/gas-plugin/token"
    stolen = api.as_user(api.create(path, {"spec": {}})["status"]["token"])
    with pytest.raises(RefusedError, match="does not name the node that the plugin runs on"):
        stolen.merge("/api/v1/nodes/n1/status", {"metadata": {"labels": {"gpu.intel.com/cards": "card0"}}})


def test_three_commands_lead_to_a_pod_on_its_card(release: Running) -> None:
    """The first two have made the image and installed the release. There is no controller that makes the plugin's."""
    chart, machine = release.chart, release.machine
    cards = machine.directory / "tree"
    write_tree(cards, fake_gpus(FLEX_170, 1), character_devices=True)
    started = time.monotonic()
    plugin = chart.runnable(chart.workload("daemonsets", "gas-plugin")["spec"]["template"], "plugin")
    chart.run(plugin_with_cards(plugin, free_port(), machine, cards), machine)
    chart.wait_until_ready("plugin", machine, since=started)
    ready = time.monotonic() - started
    *_, create = three_commands()
    follow(create, REPOSITORY, release.env)
    placed = wait_for(
        "the pod has run",
        lambda: found if (found := get_pod(chart.api, "with-a-card"))["status"]["phase"] == "Succeeded" else None,
        seconds=60,
        every=0.05,
    )
    print(f"the plugin is ready after {ready:.1f} s, the pod has run after {time.monotonic() - started:.1f} s")
    assert placed["spec"]["nodeName"] == machine.name
    assert cards_of(placed) == "card0"
    assert machine.log(placed, "main").split() == ["by-path", "card0", "renderD128"]
    for path in ("/api/v1/namespaces/default/pods/with-a-card", f"{PODS}/plugin"):
        chart.api.delete(path, gracePeriodSeconds="0")


def test_clean_up_takes_off_the_node_what_the_plugin_has_written(release: Running) -> None:
    chart, machine = release.chart, release.machine
    path = f"/api/v1/nodes/{machine.name}"
    chart.api.merge(f"{path}/status", {"metadata": {"labels": {"gpu.intel.com/gpu-numbers": "0.1", "other": "stays"}}})
    notes = chart.install("upgrade", "--set", "plugin.cleanUp=true", values=release.values)
    assert "helm uninstall --namespace=gas-system gas" in notes
    cleaning = chart.runnable(chart.workload("daemonsets", "gas-plugin")["spec"]["template"], "cleaning")
    chart.run(cleaning, machine)
    chart.wait_until_ready("cleaning", machine, since=time.monotonic())
    labels = chart.api.get(path)["metadata"]["labels"]
    assert "gpu.intel.com/gpu-numbers" not in labels
    assert labels["other"] == "stays"


def test_no_request_was_refused_and_nothing_is_left(release: Running) -> None:
    chart = release.chart
    for account in ("gpu-aware-scheduling-service-account", "gas-scheduler", "gas-certificates"):
        events = chart.control_plane.audited(f"system:serviceaccount:{NAMESPACE}:{account}")
        assert events
        assert refused(events) == []
        print(f"{account}: {len(events)} requests in the audit log, none refused")
    chart.api.delete_all(PODS, gracePeriodSeconds="0")
    chart.api.delete("/api/v1/nodes/n1")
    chart.helm.run("uninstall", "gas", f"--namespace={NAMESPACE}")
    left = chart.everything() - release.before
    assert {each for each in left if not each.startswith("Pod/")} == set()
