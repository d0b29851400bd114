"""``gas doctor`` on a real cluster: no findings where all is well, and the right sentence about each fault."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandbox.hardware.fake_sysfs import FLEX_170, fake_gpus
from tests.deploy.manifests import BASE, one
from tests.e2e.accounts import DOCTOR_RULES, FULL_RULES, add_account
from tests.e2e.gpu_node import GpuNode
from tests.e2e.kube_api import KubeApi, Object, write_kubeconfig
from tests.e2e.kubectl import follow
from tests.e2e.pods import cards_of, container, get_pod, pod
from tests.e2e.scheduler import extender_entry
from tests.e2e.waiting import wait_for

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ROLE = f"{RBAC}/clusterroles/gas-extender"
CARDS = fake_gpus(FLEX_170, 2)


class Doctor:
    """Run the command as an administrator does, with kube-scheduler's own configuration."""

    def __init__(self, gpu_node: GpuNode, directory: Path, account: KubeApi) -> None:
        self._kubeconfig = write_kubeconfig(directory / "doctor.kubeconfig", account)
        self._configuration = directory / "scheduler-config.json"
        cluster = gpu_node.cluster
        client = cluster.authority.client("doctors-client")
        content = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "extenders": [extender_entry(cluster.service.port, cluster.authority, client, ignorable=False)],
        }
        self._configuration.write_text(json.dumps(content))

    def __call__(self) -> tuple[int, list[Object], list[Object]]:
        """Return the exit code, the findings that are not well, and those that are."""
        command = [sys.executable, "-m", "gas", "doctor", f"--kubeconfig={self._kubeconfig}", "-o=json"]
        command.append(f"--scheduler-config={self._configuration}")
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert answer.stdout, answer.stderr
        found = json.loads(answer.stdout)["findings"]
        well = [each for each in found if each["level"] == "ok"]
        return answer.returncode, [each for each in found if each not in well], well

    def wait_until_well(self) -> list[Object]:
        """Wait until all is well, because kubelet and plugin need a moment, and return the findings."""

        def look() -> list[Object] | None:
            code, found, well = self()
            last[:] = found
            return well if code == 0 else None

        last: list[Object] = []
        try:
            return wait_for("nothing that is not well", look, seconds=30, every=1)
        except TimeoutError:
            raise AssertionError(last) from None


@pytest.fixture
def doctor(gpu_node: GpuNode, tmp_path: Path) -> Doctor:
    """Provide the doctor, run by a user with read permissions only.

    The extender runs in no pod here, so the doctor looks at the account that it has by default.
    """
    api = gpu_node.api
    api.ensure("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "gas-extender"}})
    subject = {"kind": "ServiceAccount", "namespace": "default", "name": "gas-extender"}
    binding = f"{RBAC}/clusterrolebindings/gas-extender"
    others = [each for each in api.get(binding)["subjects"] if each["name"] != "gas-extender"]
    api.merge(binding, {"subjects": [*others, subject]})
    return Doctor(gpu_node, tmp_path, add_account(gpu_node.api, "gas-doctor", "gas-doctor", DOCTOR_RULES))


@contextmanager
def changed_role(api: KubeApi, rules: tuple[Object, ...]) -> Iterator[None]:
    api.merge(ROLE, {"rules": list(rules)})
    try:
        yield
    finally:
        api.merge(ROLE, {"rules": list(FULL_RULES)})
        for kind in ("clusterroles", "clusterrolebindings"):  # what mending has made
            api.delete(f"{RBAC}/{kind}/gas-extender-needs")


def test_a_healthy_cluster_has_exit_code_0_and_each_fault_is_reported(
    gpu_node: GpuNode, doctor: Doctor, binaries: Path, tmp_path: Path
) -> None:
    api = gpu_node.api
    kubeconfig = write_kubeconfig(tmp_path / "admin.kubeconfig", api)

    def mend(found: list[Object]) -> None:
        """Run the suggested commands unchanged, with an administrator's kubeconfig."""
        env = {"PATH": f"{binaries}:{os.environ['PATH']}", "KUBECONFIG": str(kubeconfig)}
        follow("\n".join(found[0]["mend"]), tmp_path, env)

    gpu_node.start(CARDS, "--shared-dev-num=10")
    gpu_node.cluster.restart_scheduler(ignorable=False)
    gpu_node.create(pod("placed", container(i915=1, millicores=500)))
    wait_for("the pod has cards", lambda: cards_of(get_pod(api, "placed")))
    well = doctor.wait_until_well()
    assert {each["check"] for each in well} == {
        "scheduler-configuration",
        "extender",
        "certificates",
        "permissions",
        "node-labels",
        "node-resources",
        "device-plugins",
        "topology-manager",
        "feature-discovery",
        "clocks",
        "pods",
        "dry-pod",
    }
    (labels,) = [each["message"] for each in well if each["check"] == "node-labels"]
    assert "card0, card1; written by gas-plugin" in labels
    assert any("1 of 1 nodes pass the filter" in each["message"] for each in well)
    without_binding = tuple(rule for rule in FULL_RULES if "pods/binding" not in rule["resources"])
    with changed_role(api, without_binding):
        code, found, _ = wait_for("the role is read", lambda: told if (told := doctor())[0] else None)
        assert code == 1
        (message,) = [each["message"] for each in found]
        assert message == "gas-extender lacks permissions in the whole cluster: create pods/binding"
        mend(found)
        doctor.wait_until_well()

    gpu_node.stop_plugin()
    lost = wait_for("kubelet has noticed", lambda: [each for each in doctor()[1] if each["check"] == "node-resources"])
    assert [each["level"] for each in lost] == ["problem"]
    assert "lost the device plugin" in lost[0]["message"]


DAEMONSETS = "/apis/apps/v1/namespaces/default/daemonsets"
ENFORCE = "pod-security.kubernetes.io/enforce"


@pytest.fixture
def daemonset(gpu_node: GpuNode) -> Iterator[Object]:
    """Provide the plugin's DaemonSet, under the real controller, where only baseline pods may be created.

    Its pods use the network of the node, and no token.
    """
    api, manager = gpu_node.api, gpu_node.cluster.controller_manager
    api.merge("/api/v1/namespaces/default", {"metadata": {"labels": {ENFORCE: "baseline"}}})
    api.ensure("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "gas-plugin"}})
    written = one(BASE / "plugin", "DaemonSet")
    written["spec"]["template"]["spec"] |= {"hostNetwork": True, "automountServiceAccountToken": False}
    manager.start("daemonset-controller")
    try:
        yield api.create(DAEMONSETS, written)
    finally:
        api.delete(f"{DAEMONSETS}/gas-plugin")
        manager.program.kill()
        api.merge("/api/v1/namespaces/default", {"metadata": {"labels": {ENFORCE: None}}})
        gpu_node.clear()


def test_the_first_finding_is_what_keeps_the_plugins_pods_away_and_its_commands_help(
    gpu_node: GpuNode, doctor: Doctor, daemonset: Object, binaries: Path, tmp_path: Path
) -> None:
    api, kubelet = gpu_node.api, gpu_node.node.kubelet
    path = f"{DAEMONSETS}/{daemonset['metadata']['name']}"
    kubeconfig = write_kubeconfig(tmp_path / "admin.kubeconfig", api)
    gpu_node.start(CARDS)  # outside of a pod, so that nothing else is wrong
    gpu_node.cluster.restart_scheduler(ignorable=False)

    def first(words: str) -> Object:
        """Wait until this is the first finding that is not well."""

        def look() -> Object | None:
            found = doctor()[1]
            seen[:] = found
            return found[0] if found and words in found[0]["message"] + found[0]["found"] else None

        seen: list[Object] = []
        try:
            found = wait_for(words, look, seconds=60, every=0.5)
        except TimeoutError:
            raise AssertionError((words, seen)) from None
        assert (found["check"], found["where"]) == ("daemonsets", "daemonset default/gas-plugin")
        return found

    def follow_it(found: Object, **values: str) -> None:
        text = "\n".join(found["mend"])
        for name, value in values.items():
            text = text.replace(name, value)
        env = {"PATH": f"{binaries}:{os.environ['PATH']}", "KUBECONFIG": str(kubeconfig)}
        follow(text, tmp_path, env)

    def set_pod(**fields: object) -> None:
        api.merge(path, {"spec": {"template": {"spec": fields}}})

    moved = gpu_node.node.directory / "moved"
    kubelet.program.kill()
    kubelet.use_root(moved)
    (gpu_node.node.directory / "kubelet/pod-resources").rename(gpu_node.node.directory / "kubelet/old")
    kubelet.start()
    try:
        follow_it(first("the Pod Security Standard of its namespace forbids them"))
        follow_it(first("kubelet has another --root-dir"), ROOT=str(moved))
        first("does not start: ErrImage")
        set_pod(nodeSelector={"kubernetes.io/arch": "arm64"})
        first("its image is for arm64, and the node is amd64")
        set_pod(nodeSelector={"kubernetes.io/arch": "amd64"}, affinity=None)
        labels = {
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "eks.amazonaws.com/compute-type": "fargate",
        }
        gpu_node.cluster.add_node("fargate", labels=labels, resources={"cpu": "0"})
        wait_for(
            "the finding about Fargate",
            lambda: [each for each in doctor()[1] if "such nodes run no DaemonSets" in each["message"]],
            seconds=60,
        )
        api.merge(
            path, {"spec": {"template": {"spec": {"affinity": daemonset["spec"]["template"]["spec"]["affinity"]}}}}
        )
        wait_for("no pod for Fargate", lambda: api.get(path)["status"]["desiredNumberScheduled"] == 1)
    finally:
        api.delete("/api/v1/nodes/fargate")
        kubelet.program.kill()
        kubelet.use_root(gpu_node.node.directory / "kubelet")
        kubelet.start()
