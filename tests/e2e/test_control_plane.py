"""The components that every other end-to-end test relies on work as documented."""

from __future__ import annotations

import http.server
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.kube_api import RefusedError
from tests.e2e.pods import PODS, container, get_pod, is_refused, node_of, pod
from tests.e2e.release import pinned_version
from tests.e2e.service import Endpoint, Service
from tests.e2e.waiting import wait_for


def test_the_servers_have_the_pinned_version_of_the_selected_release(cluster: Cluster) -> None:
    assert cluster.api.get("/version")["gitVersion"] == pinned_version()


def test_only_an_object_that_exists_may_be_created_again(cluster: Cluster) -> None:
    nodes, body = "/api/v1/nodes", {"metadata": {"name": "n1", "labels": {"made": "once"}}}
    cluster.api.ensure(nodes, body)
    cluster.api.ensure(nodes, {"metadata": {"name": "n1"}})
    assert cluster.api.get(f"{nodes}/n1")["metadata"]["labels"]["made"] == "once"
    with pytest.raises(RefusedError, match="Invalid value"):
        cluster.api.ensure(nodes, {"metadata": {"name": "N_1"}})
    with pytest.raises(RefusedError, match="forbidden"):
        cluster.original_account.ensure(nodes, body)


def test_kube_scheduler_binds_an_ordinary_pod_without_the_extender(cluster: Cluster) -> None:
    cluster.add_node("n1")
    cluster.api.create(PODS, pod("ordinary"))
    assert wait_for("the pod is bound", lambda: node_of(cluster.api, "ordinary")) == "n1"


def test_a_gpu_pod_waits_while_no_extender_answers_where_the_extender_is_not_ignorable(
    cluster: Cluster,
) -> None:
    cluster.add_node("n1", resources={"gpu.intel.com/i915": "2"})
    cluster.restart_scheduler(ignorable=False)
    cluster.api.create(PODS, pod("gpu", container(i915=1)))
    wait_for("a failed try", lambda: is_refused(cluster.api, "gpu"))
    assert node_of(cluster.api, "gpu") is None


def test_kube_scheduler_binds_a_gpu_pod_itself_when_an_ignorable_extender_fails(cluster: Cluster) -> None:
    # `ignorable: true` holds for bind as well as for filter, so such a pod runs without cards in any books.
    cluster.add_node("n1", resources={"gpu.intel.com/i915": "2"})
    cluster.api.create(PODS, pod("gpu", container(i915=1)))
    assert wait_for("the pod is bound", lambda: node_of(cluster.api, "gpu")) == "n1"
    assert "annotations" not in get_pod(cluster.api, "gpu")["metadata"]


def test_the_api_server_comes_back_with_what_it_held_and_the_scheduler_goes_on(cluster: Cluster) -> None:
    cluster.add_node("n1")
    cluster.control_plane.stop_api_server()
    with pytest.raises(ConnectionRefusedError):
        cluster.api.get("/api/v1/nodes/n1")
    cluster.control_plane.start_api_server()
    assert cluster.api.get("/api/v1/nodes/n1")["metadata"]["name"] == "n1"
    cluster.api.create(PODS, pod("later"))
    assert wait_for("the pod is bound", lambda: node_of(cluster.api, "later")) == "n1"


def test_a_stopped_scheduler_binds_nothing_until_it_is_started(cluster: Cluster) -> None:
    cluster.add_node("n1")
    cluster.scheduler.stop()
    cluster.api.create(PODS, pod("waiting"))
    assert not cluster.scheduler.program.is_running
    assert node_of(cluster.api, "waiting") is None
    cluster.scheduler.start()
    assert wait_for("the pod is bound", lambda: node_of(cluster.api, "waiting")) == "n1"


def test_the_original_account_may_do_what_its_role_says_and_nothing_else(cluster: Cluster) -> None:
    account = cluster.original_account
    cluster.add_node("n1")
    account.merge("/api/v1/nodes/n1", {"metadata": {"annotations": {"seen": "yes"}}})
    assert [node["metadata"]["name"] for node in account.items("/api/v1/nodes")] == ["n1"]
    with pytest.raises(RefusedError, match=r'cannot create resource "events"') as refused:
        account.create("/api/v1/namespaces/default/events", {"metadata": {"name": "x"}})
    assert refused.value.status == 403


def test_the_full_account_may_write_a_lease(cluster: Cluster) -> None:
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    cluster.full_account.create(leases, {"metadata": {"name": "gas-extender"}})
    assert cluster.full_account.get(f"{leases}/gas-extender")["kind"] == "Lease"


def test_a_connection_to_the_service_goes_to_the_replica_that_is_ready() -> None:
    service = Service()
    with ExitStack() as stack:
        first, second = (stack.enter_context(replica(name)) for name in ("first", "second"))
        service.start()
        stack.callback(service.stop)
        service.endpoints = tuple(Endpoint(r.server_port, r.server_port) for r in (first, second))
        with pytest.raises((urllib.error.URLError, OSError)):
            answer_of(service)
        second.is_ready = True
        assert answer_of(service) == "second"
        first.is_ready, second.is_ready = True, False
        assert answer_of(service) == "first"


def test_nothing_survives_a_killed_run(binaries: Path, tmp_path: Path) -> None:
    run = subprocess.Popen(
        [sys.executable, "-c", _START_AND_WAIT, tmp_path, binaries], stdout=subprocess.PIPE, text=True
    )
    try:
        assert run.stdout is not None
        pids = [int(pid) for pid in run.stdout.readline().split()]
        assert len(pids) == 3
        assert all(is_alive(pid) for pid in pids)
    finally:
        run.send_signal(signal.SIGKILL)
        run.communicate()
    wait_for("all programs are gone", lambda: not any(is_alive(pid) for pid in pids))


_START_AND_WAIT = """
import sys, time
from pathlib import Path
from tests.e2e.cluster import Cluster
cluster = Cluster(Path(sys.argv[1]), Path(sys.argv[2]))
cluster.start()
print(*(program.pid for program in cluster.programs), flush=True)
time.sleep(600)
"""


def is_alive(pid: int) -> bool:
    """Return whether a process runs. A zombie does not: it only waits until its exit status is read."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


class _Replica(http.server.ThreadingHTTPServer):
    is_ready = False
    name = ""


class _Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, _Replica)
        self.send_response(200 if self.path != "/readyz" or self.server.is_ready else 503)
        self.end_headers()
        self.wfile.write(self.server.name.encode())

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log nothing, because a test that passes prints nothing."""


@contextmanager
def replica(name: str) -> Iterator[_Replica]:
    with _Replica(("127.0.0.1", 0), _Answers) as server:
        server.name = name
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield server
        server.shutdown()


def answer_of(service: Service) -> str:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://127.0.0.1:{service.port}/", timeout=10) as answer:
        text: str = answer.read().decode()
        return text
