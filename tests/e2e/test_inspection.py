"""``kubectl gas`` through a real kubectl and API server: it says what the real scheduler then does."""

from __future__ import annotations

import json
import os
import random
import shutil
import stat
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.accounts import Rule, add_account
from tests.e2e.cluster import Cluster
from tests.e2e.kube_api import KubeApi, write_kubeconfig
from tests.e2e.pods import PODS, cards_by_pod, container, event_messages, node_of, pod
from tests.e2e.waiting import wait_for

INSPECTION_RULES: tuple[Rule, ...] = (
    {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list", "watch"]},
    {"apiGroups": [""], "resources": ["pods/proxy"], "verbs": ["get"]},
)
"""All permissions that the commands need."""

RESOURCES = {"gpu.intel.com/i915": "20", "gpu.intel.com/memory.max": "16G", "gpu.intel.com/millicores": "2000"}


class KubectlGas:
    """Run ``kubectl gas`` with a real kubectl, which finds the program on the PATH, as a user who may only read."""

    def __init__(self, kubectl: Path, directory: Path, api: KubeApi) -> None:
        self._kubectl = kubectl
        self._directory = directory
        plugin = directory / "kubectl-gas"
        plugin.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gas.inspection "$@"\n', encoding="utf-8")
        plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
        self._kubeconfig = write_kubeconfig(directory / "reader.kubeconfig", api)

    def __call__(self, *arguments: str) -> tuple[int, str]:
        environment = {
            **os.environ,
            "PATH": f"{self._directory}:{os.environ['PATH']}",
            "KUBECONFIG": str(self._kubeconfig),
        }
        command = [str(self._kubectl), "gas", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
        assert done.returncode in (0, 1), done.stderr
        return done.returncode, done.stdout

    def data(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "-o", "json")[1])


@pytest.fixture
def kubectl_gas(cluster: Cluster, binaries: Path, tmp_path: Path) -> KubectlGas:
    if not (binaries / "kubectl").exists() or shutil.which("sh") is None:
        pytest.fail(f"{binaries} does not hold kubectl; run tests/e2e/set-up.sh first")
    reader = add_account(cluster.api, "gas-reader", "gas-reader", INSPECTION_RULES)
    return KubectlGas(binaries / "kubectl", tmp_path, reader)


def test_fit_and_why_agree_with_the_scheduler(cluster: Cluster, kubectl_gas: KubectlGas, tmp_path: Path) -> None:
    api, choose = cluster.api, random.Random(15)
    cluster.restart_scheduler(ignorable=False)
    for name in ("n1", "n2", "n3"):
        cluster.add_node(name, labels={"gpu.intel.com/gpu-numbers": "0.1"}, resources=RESOURCES)
    cluster.extender("gas", "-v=4").start_and_wait_until_ready()
    refused = 0
    for number in range(20):
        asked = pod(f"p-{number}", container(i915=1, memory_max=f"{choose.randint(2, 7)}G", millicores=100))
        manifest = tmp_path / "pod.json"
        manifest.write_text(json.dumps({"apiVersion": "v1", "kind": "Pod", **asked}), encoding="utf-8")
        code, _ = kubectl_gas("fit", str(manifest))
        api.create(PODS, asked)
        name = asked["metadata"]["name"]
        if code == 0:
            wait_for(f"{name} is bound", partial(node_of, api, name))
        else:
            refused += 1
            said = wait_for("its event", partial(event_messages, api, name, "FailedScheduling"))
            explained = kubectl_gas.data("why", name)
            assert explained["reason"] in said[0] or "Insufficient" in said[0]  # by the sums of the nodes
            assert node_of(api, name) is None
    assert 0 < refused < 20
    rows = kubectl_gas.data("pods")
    assert {row["name"]: ",".join(row["cards"]) for row in rows if row["cards"]} == cards_by_pod(api)
    assert sum(row["pods"] for row in kubectl_gas.data("top")) == 20 - refused
    (suggested, *_) = explained["suggestions"]
    assert suggested["change"].startswith("ask for ")
