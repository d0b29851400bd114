"""The real API server passes the suite that the sandbox's passes, so the sandbox cannot drift from it."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryFile

from tests.e2e.accounts import add_account
from tests.e2e.cluster import Cluster
from tests.e2e.control_plane import ControlPlane

_REPOSITORY = Path(__file__).parents[2]

_ASK_AND_WAIT = "import socket, sys; sys.exit(socket.create_connection(('127.0.0.1', {port}), 120).recv(4) != b'done')"


THROTTLING = "tests/api_behaviour/test_throttling.py"


def test_the_real_kube_apiserver_passes_the_suite_of_the_sandbox(cluster: Cluster) -> None:
    # kube-scheduler would bind the pods whose life the suite watches.
    cluster.scheduler.stop()
    _pass(cluster, "tests/api_behaviour", f"--ignore={THROTTLING}")


def test_the_real_kube_apiserver_throttles_as_the_sandbox_does(cluster: Cluster) -> None:
    cluster.control_plane.restart_api_server("--max-requests-inflight=1")
    try:
        _pass(cluster, THROTTLING, GAS_API_CROWDED="yes")
    finally:
        cluster.control_plane.restart_api_server()


def _pass(cluster: Cluster, *arguments: str, **variables: str) -> None:
    """Run tests of the suite against the real API server. All must pass, and none be skipped."""
    powerless = add_account(cluster.api, "powerless", "powerless", ())
    with socket.create_server(("127.0.0.1", 0)) as wishes, TemporaryFile("w+") as output:
        ask = _ASK_AND_WAIT.format(port=wishes.getsockname()[1])
        env = {
            **os.environ,
            "GAS_API_URL": cluster.api.url,
            "GAS_API_TOKEN": cluster.api.token,
            "GAS_API_CA": str(cluster.api.authority),
            "GAS_API_POWERLESS_TOKEN": powerless.token,
            "GAS_API_COMPACT": shlex.join([sys.executable, "-c", ask]),
            **variables,
        }
        suite = subprocess.Popen(
            [sys.executable, "-m", "pytest", *arguments, "-p", "no:cacheprovider"],
            cwd=_REPOSITORY, env=env, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            _forget_history_when_asked(suite, wishes, cluster.control_plane)
        finally:
            suite.kill()
            suite.wait()
        output.seek(0)
        print(result := output.read())
    assert suite.returncode == 0
    assert "skipped" not in result


def _forget_history_when_asked(suite: subprocess.Popen[bytes], wishes: socket.socket, plane: ControlPlane) -> None:
    """Serve requests to discard etcd's history until the suite ends, on the thread that started etcd."""
    wishes.settimeout(0.2)
    while suite.poll() is None:
        try:
            wish, _ = wishes.accept()
        except TimeoutError:
            continue
        with wish:
            plane.compact()
            # Its cache would answer from before the compaction.
            plane.stop_api_server()
            plane.start_api_server()
            wish.sendall(b"done")
