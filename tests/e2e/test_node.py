"""The node that the tests of devices stand on is a real one, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.cluster import Cluster
from tests.e2e.images import BUSYBOX
from tests.e2e.kube_api import KubeApi, Object
from tests.e2e.node_cell import NodeCell
from tests.e2e.pods import PODS, get_pod
from tests.e2e.waiting import wait_for


def test_a_pod_runs_in_real_containers(cluster: Cluster, node: NodeCell) -> None:
    cluster.api.create(PODS, shell_pod("hello", "echo hello; sleep 1000"))
    pod = running(cluster.api, "hello")
    assert pod["spec"]["nodeName"] == node.name
    assert wait_for("its output", lambda: node.log(pod, "main")) == "hello\n"
    assert node.environment(pod, "main")["PATH"] == "/bin"
    assert node.devices(pod, "main") == []
    assert node.execute(pod, "main", "echo", "from inside") == "from inside\n"


def test_containers_run_on_while_kubelet_restarts(cluster: Cluster, node: NodeCell) -> None:
    cluster.api.create(PODS, shell_pod("stays", "sleep 1000"))
    before = running(cluster.api, "stays")
    socket = node.kubelet.registration_inode()
    node.restart_kubelet()
    assert node.kubelet.registration_inode() != socket
    cluster.api.create(PODS, shell_pod("later", "sleep 1000"))
    running(cluster.api, "later")
    after = get_pod(cluster.api, "stays")
    assert after["status"]["containerStatuses"][0]["containerID"] == before["status"]["containerStatuses"][0]["containerID"]
    assert after["status"]["containerStatuses"][0]["restartCount"] == 0


def test_the_kubelet_directory_of_the_machine_is_never_written(node: NodeCell) -> None:
    assert (node.device_plugins / "kubelet.sock").is_socket()
    assert node.pod_resources.is_socket()
    assert not list(Path("/var/lib/kubelet").iterdir())


def shell_pod(name: str, script: str) -> Object:
    container = {
        "name": "main",
        "image": BUSYBOX.name,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", script],
    }
    spec = {
        "hostNetwork": True,
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
    }
    return {"metadata": {"name": name}, "spec": spec}


def running(api: KubeApi, name: str) -> Object:
    def look() -> Object | None:
        pod = get_pod(api, name)
        return pod if pod["status"]["phase"] == "Running" else None

    return wait_for(f"pod {name} running", look)
