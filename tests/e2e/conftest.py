"""Fixtures: one control plane for each process of pytest, which each test gets empty and leaves empty."""

from __future__ import annotations

import shutil
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.accounts import INSPECTION_RULES, add_account
from tests.e2e.cluster import Cluster
from tests.e2e.gpu_node import GpuNode
from tests.e2e.kubectl import KubectlGas
from tests.e2e.node_cell import NodeCell, running_node
from tests.e2e.programs import Program, running
from tests.e2e.release import program_directory
from tests.e2e.webhooks import unregister

_RUNNING = pytest.StashKey[Cluster]()
_NODE = pytest.StashKey[NodeCell]()


@pytest.fixture(scope="session")
def binaries() -> Path:
    """Return the directory with the programs that `set-up.sh` built."""
    directory = program_directory()
    if not (directory / "kube-apiserver").exists() or not (directory / "kube-scheduler").exists():
        pytest.fail(f"{directory} does not hold the Kubernetes programs; run tests/e2e/set-up.sh first")
    return directory


@pytest.fixture(scope="session")
def running_cluster(binaries: Path, pytestconfig: pytest.Config) -> Iterator[Cluster]:
    with running(Cluster, binaries) as cluster:
        pytestconfig.stash[_RUNNING] = cluster
        yield cluster


@pytest.fixture
def cluster(running_cluster: Cluster) -> Iterator[Cluster]:
    """Provide the running cluster without pods, nodes and extenders."""
    yield running_cluster
    running_cluster.clean()


@pytest.fixture
def node(cluster: Cluster, binaries: Path, pytestconfig: pytest.Config) -> Iterator[NodeCell]:
    """Provide a node with a real kubelet, without plugins and pods, which is removed after the test."""
    with _real_node(cluster, binaries, pytestconfig) as node:
        yield node


@pytest.fixture(scope="module")
def gpu_node(running_cluster: Cluster, binaries: Path, pytestconfig: pytest.Config) -> Iterator[GpuNode]:
    """Provide one real node for all tests of a file. They start plugin and extender and remove their pods."""
    try:
        with _real_node(running_cluster, binaries, pytestconfig) as node:
            yield GpuNode(running_cluster, node)
    finally:
        running_cluster.clean()


@pytest.fixture
def no_pods_after(gpu_node: GpuNode) -> Iterator[None]:
    """Remove the pods, the webhooks and the links between cards that a test leaves on the node."""
    yield
    unregister(gpu_node.api)
    gpu_node.clear()
    gpu_node.set_labels({"xe-links": None, "xe-links2": None})


@pytest.fixture
def kubectl_gas(cluster: Cluster, binaries: Path, tmp_path: Path) -> KubectlGas:
    if not (binaries / "kubectl").exists() or shutil.which("sh") is None:
        pytest.fail(f"{binaries} does not hold kubectl; run tests/e2e/set-up.sh first")
    reader = add_account(cluster.api, "gas-reader", "gas-reader", INSPECTION_RULES)
    return KubectlGas(binaries / "kubectl", tmp_path, reader)


@contextmanager
def _real_node(cluster: Cluster, binaries: Path, config: pytest.Config) -> Iterator[NodeCell]:
    with running_node(binaries, cluster.api) as node:
        config.stash[_NODE] = node
        try:
            yield node
        finally:
            del config.stash[_NODE]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the last lines of every program's log to the report of a failed test."""
    report = yield
    running = (item.config.stash.get(_RUNNING, None), item.config.stash.get(_NODE, None))
    programs: list[Program] = [program for owner in running if owner is not None for program in owner.programs]
    if report.failed:
        for program in programs:
            report.sections.append((f"log of {program.name}", program.log_tail(60)))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the commands of pages that tests replaced: pytest hides the output of passed tests."""
    passed = (report for report in terminalreporter.getreports("passed") if isinstance(report, pytest.TestReport))
    lines = [
        f"{report.nodeid}: {line}"
        for report in passed
        if report.when == "call"
        for line in report.capstdout.splitlines()
        if line.startswith("not run: ")
    ]
    if lines:
        terminalreporter.section("not run as the page says")
        terminalreporter.write("\n".join(lines) + "\n")
