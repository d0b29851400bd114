"""Distributions that write kube-scheduler's manifest themselves, or have none."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from configurator.distributions import K3S, RKE2_MANIFEST, no_manifest
from configurator.errors import ConfiguratorError
from tests.configurator.control_plane_files import ControlPlaneFiles, configuration

KUBECONFIG = "/var/lib/rancher/rke2/server/cred/scheduler.kubeconfig"
PAGE = Path(__file__).parents[2] / "docs/clusters.md"
URL = "--url=https://10.43.7.7:9001"


def write(file: Path, *arguments: str, mounts: tuple[tuple[str, str], ...] = ()) -> None:
    """Write a manifest in the form of RKE2's, which mounts each file that an argument names."""
    named = [KUBECONFIG, *(each.partition("=")[2] for each in arguments)]
    paths = [*((path, path) for path in named), *mounts]
    running = {
        "name": "kube-scheduler",
        "image": "index.docker.io/rancher/hardened-kubernetes:v1.37.1-rke2r1-build20261001",
        "command": ["kube-scheduler"],
        "args": ["--permit-port-sharing=true", f"--kubeconfig={KUBECONFIG}", "--profiling=false", *arguments],
        "env": [{"name": "FILE_HASH", "value": "0"}],
        "volumeMounts": [{"name": f"file{at}", "mountPath": inside} for at, (_, inside) in enumerate(paths)],
    }
    volumes = [{"name": f"file{at}", "hostPath": {"path": outside}} for at, (outside, _) in enumerate(paths)]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "kube-scheduler", "namespace": "kube-system"},
        "spec": {"containers": [running], "volumes": volumes, "hostNetwork": True},
    }
    file.write_text(yaml.safe_dump(pod))


@pytest.fixture
def rke2(files: ControlPlaneFiles) -> ControlPlaneFiles:
    """Provide a machine whose manifest RKE2 has written."""
    files.manifest = files.root / RKE2_MANIFEST.relative_to("/")
    files.manifest.parent.mkdir(parents=True)
    write(files.manifest)
    return files


def test_the_lines_for_rke2_make_the_manifest_that_is_needed(rke2: ControlPlaneFiles) -> None:
    before = rke2.manifest.read_bytes()
    note, lines = rke2.run(URL).split("rke2-server\n")
    assert f"RKE2 writes {rke2.manifest} itself: add these lines to /etc/rancher/rke2/config.yaml" in note
    assert rke2.manifest.read_bytes() == before
    block = "\n".join(line for line in lines.splitlines() if line.startswith(("kube-scheduler", "  - ")))
    assert yaml.safe_load(block) == {
        "kube-scheduler-arg": [f"config={rke2.configuration}"],
        "kube-scheduler-extra-mount": [f"{rke2.certificates}:/host/certs:ro"],
    }
    assert f"```yaml\n{block.replace(str(rke2.root), '')}\n```" in PAGE.read_text(encoding="utf-8")
    assert configuration(rke2).get("clientConnection", "kubeconfig") == KUBECONFIG
    assert configuration(rke2).get("enableProfiling") is False

    write(rke2.manifest, f"--config={rke2.configuration}", mounts=((str(rke2.certificates), "/host/certs"),))
    assert rke2.run(URL) == "nothing to change"
    (rke2.certificates / "client.key").unlink()
    assert "systemctl restart rke2-server" in rke2.run(URL)
    while rke2.backups():
        rke2.run("--undo")
    assert not rke2.configuration.exists()


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        pytest.param((), r"cannot resolve gas-service\.default\.svc.*--url=https://ADDRESS:9001", id="no address"),
        pytest.param((URL, "--api-server"), "leave out --api-server", id="kube-apiserver's manifest"),
    ],
)
def test_rke2_is_refused_what_does_not_work_there(
    rke2: ControlPlaneFiles, flags: tuple[str, ...], sentence: str
) -> None:
    (rke2.manifest.with_name("kube-apiserver.yaml")).write_text(
        rke2.manifest.read_text().replace("-scheduler", "-apiserver")
    )
    before = rke2.state()
    with pytest.raises(ConfiguratorError, match=sentence):
        rke2.run(*flags)
    assert rke2.state() == before


@pytest.mark.parametrize(
    ("present", "sentence"),
    [
        pytest.param(None, "run this on a control-plane node", id="none"),
        pytest.param(RKE2_MANIFEST, "name that with -m", id="RKE2"),
        pytest.param(K3S, "this is k3s, its kube-scheduler is not a pod; use the chart", id="k3s"),
    ],
)
def test_without_a_manifest_the_distribution_says_what_to_do(present: Path | None, sentence: str) -> None:
    assert sentence in str(
        no_manifest(Path("/etc/kubernetes/manifests/kube-scheduler.yaml"), lambda path: path == present)
    )
