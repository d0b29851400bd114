"""Both extenders on a made-up API server, each in its own process: the set-up of most benchmarks."""

import http.client
import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.clusters import Size
from benchmarks.drivers import Driver, Pair, client_context
from benchmarks.extenders import BareExtender, our_extender
from sandbox.certificates import Authority
from sandbox.programs import write_kubeconfig
from tests.e2e.extender import Extender
from tests.e2e.ports import free_port
from tests.e2e.programs import Program


class Stage:
    """The running set-up, made by `stage`. ``ours`` and ``bare`` are the programs, to measure what they use."""

    def __init__(self, directory: Path, size: Size, *flags: str, use: bool = False) -> None:
        self._port = free_port()
        self._authority = Authority(directory)
        self._client = self._authority.client("kube-scheduler")
        command = [sys.executable, "-m", "benchmarks.feed", f"--port={self._port}"]
        command += [f"--nodes={size.nodes}", f"--pods={size.pods}", *(["--use"] if use else [])]
        self._feed = Program("feed", command, log=directory / "feed.log")
        self.kubeconfig = directory / "kubeconfig"
        write_kubeconfig(self.kubeconfig, f"http://127.0.0.1:{self._port}")
        self._bare = BareExtender(directory, self._authority, self.kubeconfig)
        self.ours: Extender = our_extender(directory, self._authority, self.kubeconfig, *flags)
        self.bare = self._bare.program

    def start(self, *, with_bare: bool = True) -> None:
        self._feed.start()
        self._feed.wait_until_healthy(self._port, lambda: True)
        if with_bare:
            self._bare.start()
        self.ours.start_and_wait_until_ready(seconds=120)

    def stop(self) -> None:
        for program in (self.ours.program, self.bare, self._feed):
            program.kill()

    def driver(self, port: int) -> Driver:
        return Driver(port, client_context(self._authority, self._client))

    def pair(self) -> Pair:
        return Pair(self.driver(self.ours.endpoint.port), self.driver(self._bare.port))

    def send(self, kind: str, events: Iterable[bytes]) -> None:
        """Send lines to the watches of nodes or pods."""
        self._post(f"/feed/{kind}", b"".join(events))

    def churn(self, lives: int, rate: float = 0) -> float:
        """Let so many pods come and go, and return the seconds that it took."""
        return float(json.loads(self._post(f"/feed/churn?lives={lives}&rate={rate}"))["seconds"])

    def _post(self, path: str, body: bytes = b"") -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=600)
        try:
            connection.request("POST", path, body)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        if answer.status != http.HTTPStatus.OK:
            raise RuntimeError(f"the made-up API server answered {answer.status} to {path}: {text[:300]!r}")
        return text


@contextmanager
def stage(size: Size, *flags: str, with_bare: bool = True, use: bool = False) -> Iterator[Stage]:
    """Run both extenders while the block runs, or only ours; they are ready when it begins. ``flags`` are for ours.

    use  whether the cluster is that of `benchmarks.varied`, whose plugins measure what pods use
    """
    with TemporaryDirectory(prefix="gas-bench-") as directory:
        running = Stage(Path(directory), size, *flags, use=use)
        try:
            running.start(with_bare=with_bare)
            yield running
        finally:
            running.stop()
