"""The node that the device tests rely on is a real one, and leaves nothing behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.cell import missing_for_cells
from tests.e2e.cgroups import CgroupRoot
from tests.e2e.cluster import Cluster
from tests.e2e.images import BUSYBOX
from tests.e2e.kube_api import KubeApi, Object
from tests.e2e.node_cell import NodeCell
from tests.e2e.pods import PODS, get_pod
from tests.e2e.programs import ProgramError
from tests.e2e.waiting import wait_for


def test_a_pod_runs_in_real_containers(cluster: Cluster, node: NodeCell) -> None:
    cluster.api.create(PODS, shell_pod("hello", "echo hello; sleep 1000"))
    pod = running(cluster.api, "hello")
    assert pod["spec"]["nodeName"] == node.name
    assert wait_for("its output", lambda: node.log(pod, "main")) == "hello\n"
    assert node.environment(pod, "main")["PATH"] == "/bin"
    assert node.devices(pod, "main") == []
    assert node.execute(pod, "main", "ls", "/bin/busybox") == "/bin/busybox\n"


def test_what_is_executed_in_a_container_may_use_only_its_devices(cluster: Cluster, node: NodeCell) -> None:
    cluster.api.create(PODS, shell_pod("main", "sleep 1000"))
    pod = running(cluster.api, "main")
    assert node.execute(pod, "main", "sh", "-c", "head -c 1 /dev/zero | wc -c") == "1\n"
    node.execute(pod, "main", "busybox", "mknod", "/tmp/kmsg", "c", "1", "11")
    with pytest.raises(ProgramError, match="Operation not permitted"):
        node.execute(pod, "main", "head", "-c", "1", "/tmp/kmsg")


def test_containers_run_on_while_kubelet_restarts(cluster: Cluster, node: NodeCell) -> None:
    cluster.api.create(PODS, shell_pod("stays", "sleep 1000"))
    before = running(cluster.api, "stays")
    socket = node.kubelet.registration_socket()
    node.restart_kubelet()
    assert node.kubelet.registration_socket() != socket
    cluster.api.create(PODS, shell_pod("later", "sleep 1000"))
    running(cluster.api, "later")
    (was,), (now,) = before["status"]["containerStatuses"], get_pod(cluster.api, "stays")["status"]["containerStatuses"]
    assert (now["containerID"], now["restartCount"]) == (was["containerID"], 0)


def test_the_kubelet_directory_of_the_machine_is_never_written(node: NodeCell) -> None:
    assert (node.device_plugins / "kubelet.sock").is_socket()
    assert node.pod_resources.is_socket()
    assert not list(Path("/var/lib/kubelet").iterdir())


def test_nothing_of_a_node_survives_a_killed_run(cluster: Cluster, binaries: Path, tmp_path: Path) -> None:
    if (reason := missing_for_cells()) is not None:
        pytest.skip(reason)
    arguments = [str(tmp_path), str(binaries), str(cluster.api.port), str(cluster.api.authority), cluster.api.token]
    run = subprocess.Popen([sys.executable, "-c", _START_AND_WAIT, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        assert run.stdout is not None
        root, *pids = run.stdout.readline().split()
        cluster.api.create(PODS, shell_pod("orphan", "sleep 1000", node="killed-node"))
        running(cluster.api, "orphan")
        assert processes_below(root)
        assert all(Path(f"/proc/{pid}").exists() for pid in pids)
    finally:
        run.send_signal(signal.SIGKILL)
        run.communicate()
    wait_for("the end of its programs", lambda: not any(is_alive(pid) for pid in pids))
    wait_for("the end of its containers", lambda: not processes_below(root))
    next_run = CgroupRoot()
    next_run.make()
    next_run.remove()
    assert not list(Path("/sys/fs/cgroup").glob(f"*/{root}")), "the next run takes the empty cgroups away"


_START_AND_WAIT = """
import sys, time
from pathlib import Path
from tests.e2e.kube_api import KubeApi
from tests.e2e.node_cell import NodeCell
directory, binaries, port, authority, token = sys.argv[1:]
node = NodeCell(Path(directory), Path(binaries), KubeApi(int(port), Path(authority), token), name="killed-node")
node.start()
print(node.cgroups.name, *(program.inner_pid for program in node.programs), flush=True)
time.sleep(600)
"""


def processes_below(cgroup: str) -> list[str]:
    """Return the processes of the containers of one kubelet, in any hierarchy."""
    files = Path("/sys/fs/cgroup").glob(f"*/{cgroup}/**/cgroup.procs")
    return [pid for file in files for pid in file.read_text().split()]


def is_alive(pid: str) -> bool:
    """Return whether a process runs. A zombie does not: it only waits until its exit status is read."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def shell_pod(name: str, script: str, *, node: str | None = None) -> Object:
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
        **({"nodeName": node} if node else {}),
    }
    return {"metadata": {"name": name}, "spec": spec}


def running(api: KubeApi, name: str) -> Object:
    def look() -> Object | None:
        pod = get_pod(api, name)
        return pod if pod["status"]["phase"] == "Running" else None

    return wait_for(f"pod {name} running", look)
