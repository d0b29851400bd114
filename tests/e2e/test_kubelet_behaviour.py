"""The real kubelet passes the suite that the sandbox's passes, so the sandbox cannot drift from it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

from tests.e2e.cluster import Cluster
from tests.e2e.kube_api import Object
from tests.e2e.node_cell import NodeCell
from tests.e2e.release import selected_release

_REPOSITORY = Path(__file__).parents[2]


def test_the_real_kubelet_passes_the_suite_of_the_sandbox(cluster: Cluster, node: NodeCell) -> None:
    # Every pod of the suite names its node itself.
    cluster.scheduler.stop()
    control = node.directory / "control.sock"
    env = {
        **os.environ,
        "GAS_KUBELET_API_URL": cluster.api.url,
        "GAS_KUBELET_API_CA": str(cluster.api.authority),
        "GAS_KUBELET_API_TOKEN": cluster.api.token,
        "GAS_KUBELET_RELEASE": str(selected_release().minor),
        "GAS_KUBELET_NODE": node.name,
        "GAS_KUBELET_DIRECTORY": str(node.device_plugins.parent),
        "GAS_KUBELET_CONTROL": str(control),
    }
    command = [sys.executable, "-m", "pytest", "tests/kubelet_behaviour", "-p", "no:cacheprovider", "--durations=5"]
    log = node.directory / "suite.log"
    with socket.socket(socket.AF_UNIX) as listening, log.open("w") as output:
        listening.bind(str(control))
        listening.listen()
        listening.settimeout(0.2)
        suite = subprocess.Popen(command, cwd=_REPOSITORY, env=env, stdout=output, stderr=subprocess.STDOUT)
        try:
            # On this thread, since the kernel ends what a thread has started together with it.
            while suite.poll() is None:
                _serve_one(listening, node)
        finally:
            suite.kill()
            suite.wait()
    print(log.read_text())
    assert suite.returncode == 0


def _serve_one(listening: socket.socket, node: NodeCell) -> None:
    """Serve one request of the suite to the node, if there is one."""
    try:
        connection, _ = listening.accept()
    except TimeoutError:
        return
    with connection, connection.makefile("rb") as wish:
        connection.sendall(json.dumps(_done(json.load(wish), node)).encode())


def _done(wish: Object, node: NodeCell) -> Object:
    if wish["do"] == "restart":
        node.restart_kubelet()
        return {}
    pod, container = wish["pod"], wish["container"]
    return {
        "env": node.environment(pod, container),
        "devices": node.devices(pod, container),
        "mounts": node.mounts(pod, container),
    }
