"""A real etcd, kube-apiserver and kube-scheduler with a made-up cluster, without machines and kubelets."""

import asyncio
import base64
import http.client
import json
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from benchmarks.clusters import Object, stored
from gas.cluster import paths
from gas.cluster.connection import connect
from gas.cluster.listing import Lister
from gas.cluster.watch import Watch
from gas.objects.handler import Handler
from gas.objects.stored import Pod
from sandbox.certificates import Authority
from tests.e2e.control_plane import ControlPlane
from tests.e2e.kube_api import write_kubeconfig
from tests.e2e.ports import free_port
from tests.e2e.programs import Program
from tests.e2e.scheduler import extender_entry

_MOST_IN_ONE = 128
"""etcd's own limit on the operations of one transaction."""


def _base64(text: bytes) -> str:
    return base64.b64encode(text).decode()


PodKind = TypeVar("PodKind", bound=Pod)

_SET_UP = Path(__file__).parent.parent / "tests" / "e2e" / "set-up.sh"

UNLIMITED = 10_000
"""Requests a second that kube-scheduler may send. Its own limit is 50, and nothing else would be measured."""


class ComponentsMissing(Exception):
    """The real components are missing; the sentence says how to get them."""


def binaries() -> Path:
    """Return the directory of the programs that `set-up.sh` has built. Raises ComponentsMissing."""
    found = subprocess.run([_SET_UP, "--where"], capture_output=True, text=True, check=False)
    directory = Path(found.stdout.strip())
    missing = [name for name in ("kube-apiserver", "kube-scheduler", "helm") if not (directory / name).exists()]
    missing += [name for name in ("etcd", "setpriv") if shutil.which(name) is None]
    if found.returncode or missing:
        what = ", ".join(missing) or found.stderr.strip()
        raise ComponentsMissing(f"not measured: {what} missing; tests/e2e/set-up.sh (or make e2e) gets it")
    return directory


class RealCluster(ControlPlane):
    """etcd and kube-apiserver. `stop` ends them by process id; they also end with the command."""

    def __init__(self, directory: Path, programs: Path) -> None:
        self.authority = Authority(directory)
        super().__init__(directory, programs, self.authority)
        self.binaries = programs
        self.kubeconfig = write_kubeconfig(directory / "admin.kubeconfig", self.admin)

    def fill(self, objects: Iterable[Object]) -> None:
        """Write objects straight into etcd: 100,000 pods in a minute, where the API server takes ten.

        kube-apiserver reads objects in JSON as well as in its own form, and its watch shows them.
        """
        rest = map(stored, objects)
        while batch := list(islice(rest, _MOST_IN_ONE)):
            puts = [{"requestPut": {"key": _base64(key.encode()), "value": _base64(value)}} for key, value in batch]
            self._ask_etcd("txn", {"success": puts})

    def delete_pods(self, prefix: str) -> None:
        """Delete the pods in the namespace ``default`` whose names have a prefix."""
        start = f"/registry/pods/default/{prefix}".encode()
        end = start[:-1] + bytes([start[-1] + 1])
        self._ask_etcd("deleterange", {"key": _base64(start), "rangeEnd": _base64(end)})


@contextmanager
def real_cluster(*objects: Iterable[Object]) -> Iterator[RealCluster]:
    """Run a cluster with these objects while the block runs. Raises ComponentsMissing."""
    programs = binaries()
    with TemporaryDirectory(prefix="gas-bench-") as directory:
        cluster = RealCluster(Path(directory), programs)
        try:
            cluster.start()
            for each in objects:
                cluster.fill(each)
            yield cluster
        finally:
            cluster.stop()


@asynccontextmanager
async def watched_pods(
    cluster: RealCluster,
    kind: type[PodKind],
    handler: Handler[PodKind],
    *,
    keep: Callable[[PodKind], bool] | None = None,
) -> AsyncIterator[None]:
    """Show a handler the pods, or those to keep, while the block runs."""
    api = await connect(str(cluster.kubeconfig))
    watching = asyncio.create_task(Watch(Lister(api, paths.PODS, kind, keep=keep), handler).run())
    try:
        yield
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        await api.close()


class Scheduler:
    """kube-scheduler without its limit of requests, with or without an extender on a port of loopback.

    verbs   those that the extender is asked for beside filter and bind
    weight  of the extender's scores
    """

    def __init__(
        self,
        cluster: RealCluster,
        *,
        extender_port: int | None,
        verbs: Sequence[str] = (),
        percentage: int = 0,
        weight: int = 1,
        flags: Sequence[str] = (),
    ) -> None:
        directory, authority = cluster.directory, cluster.authority
        self._authority = authority
        self._port = free_port()
        serving = authority.server("kube-scheduler-serving")
        kubeconfig = write_kubeconfig(directory / "kube-scheduler.kubeconfig", cluster.scheduler)
        configuration: dict[str, Any] = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(kubeconfig), "qps": UNLIMITED, "burst": UNLIMITED},
            "leaderElection": {"leaderElect": False},
            "percentageOfNodesToScore": percentage,
        }
        if extender_port is not None:
            client = authority.client("kube-scheduler")
            entry = extender_entry(extender_port, authority, client, ignorable=False)
            entry |= {f"{verb}Verb": f"scheduler/{verb}" for verb in verbs} | {"weight": weight}
            configuration["extenders"] = [entry]
        file = directory / "kube-scheduler.json"
        file.write_text(json.dumps(configuration))
        options = {
            "config": file,
            "bind-address": "127.0.0.1",
            "secure-port": self._port,
            "tls-cert-file": serving.certificate,
            "tls-private-key-file": serving.key,
            "authentication-skip-lookup": "true",
        }
        command = [
            str(cluster.binaries / "kube-scheduler"),
            *(f"--{name}={value}" for name, value in options.items()),
            *flags,
        ]
        self.program = Program("kube-scheduler", command, log=directory / "kube-scheduler.log")

    def start(self) -> None:
        """Start it and wait until it is ready, which is when it has read the cluster."""
        self.program.start()
        self.program.wait_until_healthy(self._port, self._is_ready)

    def stop(self) -> None:
        self.program.kill()

    def _is_ready(self) -> bool:
        context = ssl.create_default_context(cafile=self._authority.certificate)
        connection = http.client.HTTPSConnection("127.0.0.1", self._port, timeout=5, context=context)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
