"""One control plane for the whole run; each test gets it empty and leaves it empty."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster

_SET_UP = Path(__file__).with_name("set-up.sh")
_RUNNING = pytest.StashKey[Cluster]()


@pytest.fixture(scope="session")
def binaries() -> Path:
    """Where the Kubernetes programs are that `set-up.sh` built."""
    answer = subprocess.run([_SET_UP, "--where"], stdout=subprocess.PIPE, text=True, check=True)
    directory = Path(answer.stdout.strip())
    if not (directory / "kube-apiserver").exists() or not (directory / "kube-scheduler").exists():
        pytest.fail(f"{directory} does not hold the Kubernetes programs; run tests/e2e/set-up.sh first")
    return directory


@pytest.fixture(scope="session")
def running_cluster(binaries: Path, pytestconfig: pytest.Config) -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="gas-e2e-") as directory:
        cluster = Cluster(Path(directory), binaries)
        try:
            cluster.start()
            pytestconfig.stash[_RUNNING] = cluster
            yield cluster
        finally:
            cluster.stop()


@pytest.fixture
def cluster(running_cluster: Cluster) -> Iterator[Cluster]:
    """The running cluster: no pods, no nodes, no extender."""
    yield running_cluster
    running_cluster.clean()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that fails shows what every program wrote last."""
    report = yield
    cluster = item.config.stash.get(_RUNNING, None)
    if report.failed and cluster is not None:
        for program in cluster.programs:
            report.sections.append((f"log of {program.name}", program.log_tail(60)))
    return report
