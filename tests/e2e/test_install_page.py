"""The install page, step by step to its end, as an administrator of a kubeadm control plane follows it.

The commands are read from the page and run in the page's order, in one shell, on a node whose ``/etc`` and ``/opt`` are
its own. kube-apiserver, kubelet, containerd, and the kube-scheduler of the manifest that kubeadm wrote are real. What
is not there is played by the test, and each line that it replaces is printed with the reason:

- ``git clone``: the page does not know where it was found, and what is tested is this very checkout
- ``buildah``: there is no registry to push to, and the image is the one of `tests.e2e.project_image`, built with what
  the build needs on the machine of the tests; its archive goes on to the real ``ctr images import`` of the page
- what `pip download` has got in an earlier run lies there already, and pip looks whether it is right
- kube-controller-manager, which makes pods of Deployment and DaemonSet, before the page waits for them
- a network of pods: every pod gets an address that leads nowhere, or the node's
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import sys
import tarfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sandbox.hardware.fake_sysfs import FLEX_170, fake_gpus, write_tree
from tests.e2e.control_plane_node import ControlPlaneNode
from tests.e2e.controllers import Controllers
from tests.e2e.deployed import DeployedCluster
from tests.e2e.images import BUSYBOX
from tests.e2e.kube_api import Object, RefusedError
from tests.e2e.node_cell import NodeCell, running_node
from tests.e2e.pods import get_pod
from tests.e2e.ports import own_address
from tests.e2e.programs import running
from tests.e2e.project_image import REPOSITORY, built_image

PAGE = (REPOSITORY / "docs/install.md").read_text(encoding="utf-8").partition("\n## Step by step")[2]
SERVICE = "gas-service.default.svc.cluster.local"
IMAGE = "registry.example/gas:0.1.0"
CHECKOUT = (
    "pyproject.toml", "README.md", "LICENSE", "requirements.lock", "Containerfile", "gas", "configurator", "deploy",
)  # fmt: skip
"""The files of the checkout that the page's commands use."""

STAND_IN = """\
#!{python}
import pathlib, shutil, subprocess, sys
expected = {expected!r}
if sys.argv[1:] not in expected:
    sys.exit(f"the test cannot stand in for this: {{sys.argv}}")
print("not run:", pathlib.Path(sys.argv[0]).name, *sys.argv[1:], "-- {reason}")
{instead}
"""


@dataclass(frozen=True, slots=True)
class Shell:
    """The administrator's shell: variables and directory of one block of the page remain for the next.

    `run` raises ProgramError when a command of the block fails.
    """

    machine: ControlPlaneNode
    directory: Path

    def run(self, block: str) -> str:
        """Run a block until its first command that fails, and return its output."""
        state = self.directory / "shell-state"
        script = self.directory / "block.sh"
        keep = f'{{ export -p; printf "cd %q\\n" "$PWD"; }} >{state}'
        # The programs are those that the page installs, so nothing of this checkout may be found by another way.
        script.write_text(f"unset PYTHONPATH\n[ ! -e {state} ] || . {state}\n{block}\n{keep}\n")
        return self.machine.run("bash", "-e", str(script), seconds=600)


@dataclass(frozen=True, slots=True)
class Wheels:
    """Wheels that earlier runs downloaded. pip checks them and downloads only new ones."""

    directory: Path

    def keep(self, downloaded: Path) -> None:
        """Keep just these wheels for the next run; another run may be reading."""
        self.directory.mkdir(exist_ok=True)
        wanted = {file.name: file for file in downloaded.glob("[!.]*")}
        for file in self.directory.glob("[!.]*"):
            if file.name not in wanted:
                file.unlink(missing_ok=True)
        for name, file in wanted.items():
            if not (self.directory / name).exists():
                copy = shutil.copy(file, self.directory / f".{os.getpid()}-{name}")
                Path(copy).rename(self.directory / name)


@dataclass(frozen=True, slots=True)
class Place:
    """The cluster in which the page is followed."""

    cluster: DeployedCluster
    node: NodeCell
    machine: ControlPlaneNode
    shell: Shell
    controllers: Controllers
    wheels: Wheels

    @property
    def opt(self) -> Path:
        """The node's ``/opt``, as seen from outside of the node."""
        return self.node.directory / "opt"

    def node_object(self) -> Object:
        return self.cluster.api.get(f"/api/v1/nodes/{self.node.name}")


@pytest.fixture
def place(binaries: Path, tmp_path: Path) -> Iterator[Place]:
    """Provide a cluster of one node with two cards, as kubeadm creates it, and an administrator's shell."""
    archive = tmp_path / "gas.tar"
    write_renamed(built_image(binaries).archive, archive, IMAGE)
    with running(DeployedCluster, binaries) as cluster, running_node(binaries, cluster.api) as node:
        cluster.scheduler.stop()
        cluster.api.merge(
            f"/api/v1/nodes/{node.name}", {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}
        )
        node.containerd.tag_image(BUSYBOX.name, "docker.io/library/busybox:1.37")
        machine = ControlPlaneNode(cluster, node, binaries)
        machine.start()
        address = own_address()
        with (machine.etc / "hosts").open("a") as hosts:
            hosts.write(f"{address} {SERVICE}\n")
        own_directories(machine, node)
        wheels = Wheels(binaries.parent / "wheels")
        cards = node.directory / "tree"
        write_tree(cards, fake_gpus(FLEX_170, 2), character_devices=True)
        yield Place(
            cluster=cluster,
            node=node,
            machine=machine,
            shell=Shell(machine, stand_ins(tmp_path, binaries, archive, wheels)),
            controllers=Controllers(cluster, node, address, cards),
            wheels=wheels,
        )


def test_the_page_leads_from_a_plain_cluster_to_a_pod_on_its_card_and_back(place: Place) -> None:
    blocks = iter(re.findall(r"^```sh\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE))
    shell, machine, api = place.shell, place.machine, place.cluster.api
    files, node = machine.files(), place.node_object()

    def follow(first_words: str) -> str:
        """Run the next block of the page, which must begin with these words."""
        block = next(blocks)
        assert block.startswith(first_words), f"the page goes on otherwise than the test: {block}"
        started = time.monotonic()
        said = shell.run(block)
        print(f"{block}-> {time.monotonic() - started:.1f} s\n{said}")
        return said

    follow("git clone")
    place.wheels.keep(place.opt / "gas/source/wheels")
    follow("buildah push")
    assert IMAGE in follow("buildah push")
    follow("cd /opt/gas/source\npython3 -m venv")
    assert shell.run("command -v gas-configurator") == "/opt/gas/venv/bin/gas-configurator\n"

    follow("mkdir mine")
    looked = follow("kubectl diff")
    assert "+  name: gpu-aware-scheduling" in looked
    assert "+  dnsPolicy: ClusterFirstWithHostNet" in looked
    assert "kube-scheduler does not call the extender" in " ".join(looked.split())  # wrapped by the terminal's width
    assert "no pod runs an extender" in looked
    assert machine.files() == files
    with pytest.raises(RefusedError):
        place.cluster.pod_of("deployments", "gpu-aware-scheduling")

    installed = follow("kubectl apply -k mine")
    assert "daemonset.apps/gas-plugin created" in installed
    assert "the Secret default/extender-secret is in the cluster" in installed
    machine.wait_for_scheduler("the page's", with_configuration=True)
    place.controllers.make_pods()
    assert "successfully rolled out" in follow("kubectl --namespace=default rollout status")
    looked = follow("kubectl get nodes")
    assert re.search(rf"^{place.node.name} +card0.card1 +20 +", looked, re.MULTILINE)
    assert re.search(r"^\d+ ok\.$", looked, re.MULTILINE)

    seen = follow("kubectl apply -f - <<'END'\napiVersion: v1\nkind: Pod")
    assert re.search(rf"^with-a-card +{place.node.name} +card0 +by-path card0 renderD128$", seen, re.MULTILINE)
    assert "/dev/dri/card0" in place.node.devices(get_pod(api, "with-a-card"), "main")

    follow("kubectl delete pod with-a-card\ngas-configurator --undo")
    assert machine.files() == files
    follow("kubectl delete -k mine")
    place.controllers.take_pods_away()
    follow("kubectl --namespace=default wait pod")
    left = place.node_object()["metadata"]
    assert left["labels"] == node["metadata"]["labels"]
    assert left.get("annotations") == node["metadata"].get("annotations")
    machine.wait_for_scheduler("kubeadm's own again", with_configuration=False)
    follow("cd /\nrm -rf /opt/gas")
    assert list(place.opt.iterdir()) == []
    assert list(blocks) == []
    assert installed_objects(place) == []


def installed_objects(place: Place) -> list[str]:
    """Return the objects that the page installed and that still exist."""
    kinds = "all,serviceaccounts,secrets,networkpolicies,clusterroles,clusterrolebindings,validatingadmissionpolicies"
    named = place.cluster.kubectl.run("get", kinds, "--output=name").splitlines()
    return [name for name in named if re.search(r"\bgas\b|gpu-aware|extender-secret", name)]


def own_directories(machine: ControlPlaneNode, node: NodeCell) -> None:
    """Give the node an empty ``/opt`` and pods without a network; nothing outside of the node is written."""
    (node.directory / "opt").mkdir()
    machine.run("mount", "--bind", str(node.directory / "opt"), "/opt")
    node.add_network()


def stand_ins(directory: Path, binaries: Path, archive: Path, wheels: Wheels) -> Path:
    """Write the stand-ins, and return the directory of a shell that finds them before the machine's programs."""
    programs = directory / "bin"
    programs.mkdir()
    (programs / "kubectl").symlink_to(binaries / "kubectl")
    cached = [str(wheels.directory)] if wheels.directory.exists() else []
    copy = ["cp", "-r", *(str(REPOSITORY / name) for name in CHECKOUT), *cached, "/opt/gas/source"]
    write_program(
        programs / "git",
        STAND_IN.format(
            python=sys.executable,
            expected=[["clone", "REPOSITORY", "/opt/gas/source"]],
            reason="what is tested is this checkout, which takes the place of what is cloned",
            instead=f"pathlib.Path('/opt/gas/source').mkdir(parents=True)\nsubprocess.run({copy}, check=True)",
        ),
    )
    write_program(
        programs / "buildah",
        STAND_IN.format(
            python=sys.executable,
            expected=[
                ["build", "--format", "docker", "--tag", IMAGE, "."],
                ["push", IMAGE],
                ["push", IMAGE, f"docker-archive:gas.tar:{IMAGE}"],
            ],
            reason="there is no registry, and the image is the one that tests/e2e/project_image.py has built",
            instead=f"if 'archive' in sys.argv[-1]: shutil.move({str(archive)!r}, 'gas.tar')",
        ),
    )
    # Nor may what the page installs be there already, as in a shell with an environment of this checkout.
    others = [path for path in os.environ["PATH"].split(":") if not (Path(path) / "gas-configurator").exists()]
    (directory / "shell-state").write_text(
        f'export PATH="{":".join([str(programs), *others])}" KUBECACHEDIR="{directory}/kubectl" PIP_QUIET=1\ncd /\n'
    )
    return directory


def write_program(file: Path, text: str) -> None:
    file.write_text(text)
    file.chmod(0o755)


def write_renamed(archive: Path, renamed: Path, name: str) -> None:
    """Write the image under another name, in the form of ``docker save``."""
    with tarfile.open(archive) as old, tarfile.open(renamed, "w") as new:
        for entry in old:
            content = old.extractfile(entry)
            if entry.name == "manifest.json":
                assert content is not None
                (manifest,) = json.load(content)
                text = json.dumps([manifest | {"RepoTags": [name]}]).encode()
                entry.size, content = len(text), io.BytesIO(text)
            if entry.name != "repositories":
                new.addfile(entry, content)
