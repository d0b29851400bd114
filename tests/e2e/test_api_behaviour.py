"""What the sandbox's API server passes, the real one passes too: so the sandbox cannot drift from it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.e2e.cluster import Cluster

_REPOSITORY = Path(__file__).parents[2]


def test_the_real_kube_apiserver_passes_the_suite_of_the_sandbox(cluster: Cluster) -> None:
    # kube-scheduler would bind the pods whose life the suite watches.
    cluster.scheduler.stop()
    env = {
        **os.environ,
        "GAS_API_URL": cluster.api.url,
        "GAS_API_TOKEN": cluster.api.token,
        "GAS_API_CA": str(cluster.api.authority),
    }
    suite = subprocess.run(
        [sys.executable, "-m", "pytest", "tests/api_behaviour", "-p", "no:cacheprovider"],
        cwd=_REPOSITORY, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    print(suite.stdout)
    assert suite.returncode == 0
