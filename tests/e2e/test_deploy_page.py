"""The commands of docs/deploy.md, read from the page and run in order."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.e2e.deployed import DeployedCluster
from tests.e2e.kube_api import RefusedError
from tests.e2e.kubectl import follow
from tests.e2e.programs import running
from tests.e2e.project_image import REPOSITORY, built_image

PAGE = (REPOSITORY / "docs/deploy.md").read_text()

BUILDAH = """\
#!{python}
import sys
assert sys.argv[1:] in (
    ["build", "--format", "docker", "--tag", "registry.example/gas:0.1.0", "."],
    ["push", "registry.example/gas:0.1.0"],
), sys.argv
print("not run: buildah", *sys.argv[1:], "-- there is no registry; the image is of tests/e2e/project_image.py")
"""


def test_the_page_installs_and_takes_away(binaries: Path, tmp_path: Path) -> None:
    built_image(binaries)
    checkout, programs = tmp_path / "checkout", tmp_path / "bin"
    for directory in (checkout, programs):
        directory.mkdir()
    shutil.copytree(REPOSITORY / "deploy", checkout / "deploy")
    (programs / "kubectl").symlink_to(binaries / "kubectl")
    (programs / "buildah").write_text(BUILDAH.format(python=sys.executable))
    (programs / "buildah").chmod(0o755)
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 4
    *install, take_away = blocks
    with running(DeployedCluster, binaries) as cluster:
        serving = cluster.authority.server("gas-service")
        shutil.copy(serving.certificate, checkout / "tls.crt")
        shutil.copy(serving.key, checkout / "tls.key")
        shutil.copy(cluster.authority.certificate, checkout / "ca.crt")
        path, kubeconfig = f"{programs}:/usr/bin:/bin", str(cluster.kubectl.kubeconfig)
        env = {"PATH": path, "KUBECONFIG": kubeconfig, "HOME": str(tmp_path)}
        said = [follow(block, checkout, env) for block in install]
        print(*said, sep="\n")
        assert "daemonset.apps/gas-plugin" in said[-1]
        deployment = cluster.pod_of("deployments", "gpu-aware-scheduling")
        assert deployment["spec"]["containers"][0]["image"] == "registry.example/gas:0.1.0"
        plugin = cluster.pod_of("daemonsets", "gas-plugin")
        assert plugin["spec"]["containers"][0]["args"] == ["--shared-dev-num=10"]
        follow(take_away, checkout, env)
        with pytest.raises(RefusedError):
            cluster.pod_of("deployments", "gpu-aware-scheduling")
