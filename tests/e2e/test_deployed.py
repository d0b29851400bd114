"""Extender and plugin run from the project's image with exactly the permissions that deploy/ gives them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gas.plugin.discovery.render_node import DRM_MAJOR
from sandbox.hardware.fake_sysfs import fake_gpus, write_tree
from tests.e2e import original
from tests.e2e.deployed import (
    DEPLOY,
    EXTENDER_ACCOUNT,
    PLUGIN_ACCOUNT,
    DeployedCluster,
    extender_ports,
    plugin_with_cards,
    refused,
    uses,
)
from tests.e2e.installed import Installed
from tests.e2e.kube_api import Object, write_kubeconfig
from tests.e2e.node_cell import NodeCell, running_node
from tests.e2e.plain_port import PlainPort
from tests.e2e.pods import OVER, PODS, cards_of, container, event_messages, get_pod, pod
from tests.e2e.ports import free_port
from tests.e2e.programs import ProgramError, running
from tests.e2e.project_image import built_image
from tests.e2e.verbs import Verbs
from tests.e2e.waiting import wait_for
from tests.fake_gpus import ARC_A770


@pytest.fixture(scope="module")
def deployed(binaries: Path) -> Iterator[DeployedCluster]:
    with running(DeployedCluster, binaries) as cluster:
        cluster.add_further_kinds()
        yield cluster


@pytest.fixture(scope="module")
def real_node(deployed: DeployedCluster) -> Iterator[NodeCell]:
    """Provide a real control-plane node with the project's image."""
    with running_node(deployed.binaries, deployed.api) as node:
        node.containerd.import_image(built_image(deployed.binaries).archive)
        label = {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}
        deployed.api.merge(f"/api/v1/nodes/{node.name}", label)
        yield node


@pytest.fixture(scope="module")
def installed(deployed: DeployedCluster, real_node: NodeCell) -> Installed:
    installation = Installed(deployed, real_node)
    installation.apply()
    installation.start_extender()
    installation.start_plugin()
    return installation


def test_extender_and_plugin_run_from_the_image_and_place_a_pod(installed: Installed) -> None:
    print(
        f"seconds from pod to ready: extender {installed.extender_seconds:.1f}, plugin {installed.plugin_seconds:.1f}"
    )
    api, node = installed.api, installed.node
    wait_for(
        "the node's cards with kubelet",
        lambda: api.get(f"/api/v1/nodes/{node.name}")["status"]["allocatable"].get("gpu.intel.com/i915") == "4",
    )
    labels = api.get(f"/api/v1/nodes/{node.name}")["metadata"]["labels"]
    assert labels["gpu.intel.com/gpu-numbers"] == "0.1"
    running = installed.run_gpu_pod("placed")
    assert cards_of(running) == "card0"
    assert "/dev/dri/card0" in node.devices(running, "main")
    assert PlainPort(installed.metrics_port).get("/metrics")[0] == 200
    # Two that fit nowhere, for the extender's events; one of them waits on when another pod leaves.
    installed.run_gpu_pod("leaves", millicores=700)
    for name in ("waits-1", "waits-2"):
        installed.create_gpu_pod(name, millicores=600)
        wait_for("the refusal's event", lambda name=name: event_messages(api, name, "NoGPUCardFits"))  # type: ignore[misc]
    installed.deployed.delete("leaves")
    wait_for(
        "the scheduler is woken",
        lambda: "gas-released" in api.get(f"/api/v1/nodes/{node.name}")["metadata"].get("annotations", {}),
    )
    # A pod that was bound past the extender: the plugin writes its receipt, and an event.
    installed.run_gpu_pod("adopted", millicores=100, node=node.name)
    wait_for("its receipt", lambda: "gas-allocated-cards" in get_pod(api, "adopted")["metadata"].get("annotations", {}))
    wait_for("its event", lambda: event_messages(api, "adopted", "GPUCardsAdopted"))


def test_the_health_check_of_the_image_shows_whether_the_program_responds(installed: Installed) -> None:
    extender = get_pod(installed.api, "gpu-aware-scheduling")
    check = ("/usr/local/bin/gas-health-check",)
    installed.node.execute(extender, "gasext", "env", f"GAS_HEALTH_PORT={installed.metrics_port}", *check)
    with pytest.raises(ProgramError):
        installed.node.execute(extender, "gasext", "env", f"GAS_HEALTH_PORT={free_port()}", *check)


def test_a_plugin_whose_directory_of_cards_was_removed_gets_a_new_container(installed: Installed) -> None:
    """As when a driver is reloaded: kubelet's probe fails after two minutes, and a minute later the cards are back."""
    api, node, dri = installed.api, installed.node, installed.tree / "dev/dri"
    asked = installed.deployed.on_this_node(installed.deployed.pod_of("daemonsets", "gas-plugin"))
    runnable = plugin_with_cards(asked, installed.plugin_port, node, installed.tree)
    spec = runnable["spec"]
    # As in manifests of Intel's plugin, /dev/dri is a mount of its own; a mount in a mount would go with the directory.
    next(each for each in spec["volumes"] if each["name"] == "tree")["hostPath"]["path"] += "/sys"
    next(each for each in spec["containers"][0]["volumeMounts"] if each["name"] == "tree")["mountPath"] += "/sys"
    spec["volumes"].append({"name": "dri", "hostPath": {"path": str(dri), "type": "Directory"}})
    spec["containers"][0]["volumeMounts"].append({"name": "dri", "mountPath": str(dri), "readOnly": True})
    installed.deployed.delete("gas-plugin")
    installed.deployed.run_until_ready(runnable)

    def i915() -> str:
        return str(api.get(f"/api/v1/nodes/{node.name}")["status"]["allocatable"].get("gpu.intel.com/i915"))

    wait_for("cards", lambda: i915() == "2", seconds=60)
    again = dri.with_name("again")
    again.mkdir()
    for entry in list(dri.iterdir()):
        entry.rename(again / entry.name)
    dri.rmdir()
    again.rename(dri)
    wait_for("no card", lambda: i915() == "0", seconds=60)
    wait_for("the event", lambda: event_messages(api, node.name, "GPUContainerFault"))
    assert len(event_messages(api, node.name, "GPUCardUnhealthy")) == 2
    started = time.monotonic()
    wait_for("cards again", lambda: i915() == "2", seconds=240)
    print(f"{time.monotonic() - started:.0f} s from the loss to the new container")
    assert get_pod(api, "gas-plugin")["status"]["containerStatuses"][0]["restartCount"] == 1


NFD_LABEL = "intel.feature.node.kubernetes.io/gpu"
CONNECT = """
import asyncio, sys
from gas.cluster.connection import connect

async def main():
    api = await connect(sys.argv[1])
    await api.request("GET", "/version")
    await api.close()

asyncio.run(main())
"""


def test_every_program_of_the_image_starts_on_a_read_only_root_as_an_unprivileged_user(
    deployed: DeployedCluster, real_node: NodeCell
) -> None:
    programs = {
        "extender": ["gas-extender", "--version"],
        "original": ["/extender", "--version"],
        "page": ["gas-page", "--help"],
        "plugin": ["gas-plugin", "--version"],
        "configurator": ["gas-configurator", "--help"],
        "doctor": ["gas", "doctor", "--help"],
        # Of the Kubernetes client, which reads kubeconfigs, the image has only a part.
        "kubeconfig": ["python", "-c", CONNECT, "/cluster/kubeconfig"],
    }
    containers = [at_rest(*each) for each in programs.items()]
    containers[-1]["volumeMounts"] = [
        {"name": "cluster", "mountPath": "/cluster", "readOnly": True},
        # Certificates that are inside of a kubeconfig are made files of.
        {"name": "tmp", "mountPath": "/tmp"},
    ]
    spec = {
        "nodeName": real_node.name,
        "hostNetwork": True,
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "containers": containers,
        "volumes": [
            {"name": "cluster", "hostPath": {"path": str(directory_with_kubeconfig(deployed, real_node))}},
            {"name": "tmp", "emptyDir": {}},
        ],
    }
    deployed.api.create(PODS, {"metadata": {"name": "programs"}, "spec": spec})
    ended = wait_for("the end of all", lambda: over(get_pod(deployed.api, "programs")), seconds=60)
    said = {name: real_node.log(ended, name) for name in programs}
    codes = {
        status["name"]: status["state"]["terminated"]["exitCode"] for status in ended["status"]["containerStatuses"]
    }
    assert codes == dict.fromkeys(programs, 0), said
    assert said["extender"] == said["original"] != ""


def at_rest(name: str, command: list[str]) -> Object:
    """Return a container of the image with as few rights as possible."""
    return {
        "name": name,
        "image": "gas:0.1.0",
        "imagePullPolicy": "Never",
        "command": command,
        "securityContext": {
            "runAsNonRoot": True,
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def directory_with_kubeconfig(deployed: DeployedCluster, node: NodeCell) -> Path:
    """Write a kubeconfig that every user can read, and return its directory."""
    directory = node.directory / "cluster"
    directory.mkdir()
    write_kubeconfig(directory / "kubeconfig", deployed.api).chmod(0o644)
    return directory


def over(pod: Object) -> Object | None:
    return pod if pod["status"]["phase"] in OVER else None


def test_the_rights_of_deploy_are_enough_and_none_is_too_many(installed: Installed) -> None:
    api, plane = installed.api, installed.deployed.control_plane
    api.merge(
        f"/api/v1/nodes/{installed.node.name}",
        {"metadata": {"labels": {"telemetry.aware.scheduling.policy/gas-deschedule-pods-card0": "1"}}},
    )
    wait_for(
        "the deschedule label",
        lambda: "gpu.aware.scheduling/deschedule-pod" in get_pod(api, "placed")["metadata"].get("labels", {}),
    )
    for account, role, unseen in (
        # It reads a pod again only when the answer to a bind was lost, and claims after a start while volumes are made.
        (EXTENDER_ACCOUNT, "gas-handler", {("get", "pods"), ("get", "persistentvolumeclaims"), ("patch", "events")}),
        # To take everything off a node, with --uninstall; an event that comes again is patched.
        (PLUGIN_ACCOUNT, "gas-plugin", {("get", "nodes"), ("patch", "events")}),
    ):
        events = plane.audited(account)
        assert refused(events) == []
        used = set(uses(events))
        rules = api.get(f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{role}")["rules"]
        given = {(verb, resource) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}
        assert used <= given
        assert given - used <= unseen
        print(f"{role}: {len(events)} requests in the audit log, none refused")


def test_the_replicas_elect_a_leader_with_the_rights_of_deploy(installed: Installed) -> None:
    deployed, api = installed.deployed, installed.api
    deployed.kubectl.run("apply", "-k", DEPLOY / "overlays/replicas")
    asked = deployed.pod_of("deployments", "gpu-aware-scheduling")
    asked["metadata"]["name"] = "electing"
    deployed.run_until_ready(extender_ports(deployed.on_this_node(asked), free_port(), free_port()))
    lease = api.get("/apis/coordination.k8s.io/v1/namespaces/default/leases/gas-extender")
    assert lease["spec"]["holderIdentity"]
    assert refused(deployed.control_plane.audited(EXTENDER_ACCOUNT)) == []
    deployed.delete("electing")
    deployed.kubectl.run("apply", "-k", DEPLOY / "overlays/monitoring")


def test_with_nfd_the_plugin_needs_nothing_of_nodes(installed: Installed) -> None:
    deployed, api = installed.deployed, installed.api
    api.merge(f"/api/v1/nodes/{installed.node.name}", {"metadata": {"labels": {NFD_LABEL: "true"}}})
    deployed.delete("gas-plugin")
    deployed.kubectl.run("apply", "-k", DEPLOY / "overlays/nfd")
    before = len(deployed.control_plane.audited(PLUGIN_ACCOUNT))
    installed.start_plugin()
    (file,) = installed.features.iterdir()
    assert "gpu.intel.com/millicores=2000\n" in file.read_text()
    events = deployed.control_plane.audited(PLUGIN_ACCOUNT)[before:]
    assert refused(events) == []
    assert not [resource for _, resource in uses(events) if resource.startswith("nodes")]


def test_the_originals_own_steps_run_the_extender_of_this_image(installed: Installed) -> None:
    """A Secret made by `kubectl create secret tls`, which holds no ca.crt, with the original's manifests and ours."""
    deployed, api = installed.deployed, installed.api
    serving = deployed.authority.server("gas-service")
    api.delete("/api/v1/namespaces/default/secrets/extender-secret")
    files = (f"--cert={serving.certificate}", f"--key={serving.key}")
    deployed.kubectl.run("create", "secret", "tls", "extender-secret", *files)
    manifests = original.MANIFESTS.replace(original.IMAGE, "gas:0.1.0")
    sources = {
        "original": ["-f", "-"],
        "in-its-place": ["-k", str(DEPLOY / "overlays/original-certificates")],
        "one-file": ["-f", str(DEPLOY / "gas.yaml")],
    }
    for name, source in sources.items():
        deployed.kubectl.run("apply", *source, text=manifests)
        asked = deployed.pod_of("deployments", "gpu-aware-scheduling")
        asked["metadata"]["name"] = name
        port, plain = free_port(), free_port()
        for each in asked["spec"]["containers"][0].get("ports", ()):
            each["containerPort"] = port if each["name"] == "extender" else plain
        deployed.run_until_ready(deployed.on_this_node(asked, f"--port={port}", f"--metrics-port={plain}"))
        wait_for("the extender ready", PlainPort(plain).is_ready)
        with contextlib.closing(Verbs(port, deployed.authority, deployed.authority.client("kubernetes"))) as verbs:
            asking = get_pod(api, "placed") | {"spec": pod("asking", container(i915=1))["spec"]}
            assert verbs.filter(asking, [installed.node.name])["NodeNames"] == [installed.node.name]
        logged = installed.node.log(get_pod(api, name), asked["spec"]["containers"][0]["name"])
        assert ("clients need a certificate of the cluster's authority" in logged) is (name == "one-file")
        deployed.delete(name)


MEASURING = [each.name for each in DEPLOY.glob("components/usage")]
"""The component that lets the plugin measure use. It may have been removed with its part."""
WRITE_LIMIT = """
import sys
from pathlib import Path
root, uid = sys.argv[1:]
names = {f"pod{uid}", f"pod{uid.replace('-', '_')}.slice"}
for file in Path(root).rglob("pids.max"):
    if file.parent.name in names or file.parent.name.endswith(tuple(f"-{name}" for name in names)):
        file.write_text("1000")
        print(file.read_text().strip())
"""
"""Write a limit that needs no card into the cgroup of a pod."""


def test_the_components_usage_memory_limits_and_render_nodes_give_the_rights_that_they_are_for(
    installed: Installed, tmp_path: Path
) -> None:
    """There is no card and no controller dmem here, so the plugin's sentences show how far its rights reach."""
    api, node = installed.api, installed.node
    for each in api.items(PODS):
        installed.deployed.delete(each["metadata"]["name"])
    shutil.rmtree(installed.tree)
    unknown = replace(ARC_A770, device_id="0x56b3", memory=None)  # no table has its memory
    write_tree(installed.tree, fake_gpus(unknown, 2), character_devices=True)
    for node_file in (installed.tree / "dev/dri").glob(
        "renderD*"
    ):  # the tree's own device may be opened by every container
        number = int(node_file.name.removeprefix("renderD"))
        node_file.unlink()
        os.mknod(node_file, stat.S_IFCHR | 0o666, os.makedev(DRM_MAJOR, number))
    (installed.tree / "proc").symlink_to("/proc")
    (installed.tree / "sys/fs/cgroup").mkdir(parents=True)

    start_with(installed, tmp_path, *MEASURING, "memory-limits")
    used = other_users_pod(installed)
    measures(installed)
    for reason, words in (
        ("GPUMemoryUnknown", "cannot open /dev/dri/renderD128: Operation not permitted"),
        ("GPUMemoryLimitsMissing", "memory of card"),
    ):
        said = wait_for(reason, lambda reason=reason: event_messages(api, node.name, reason))  # type: ignore[misc]
        assert any(words in each for each in said), said
    plugin = get_pod(api, "gas-plugin")
    cgroups = f"{installed.tree}/sys/fs/cgroup"
    written = node.execute(plugin, "plugin", "/opt/gas/bin/python", "-c", WRITE_LIMIT, cgroups, used["metadata"]["uid"])
    assert written == "1000\n"

    start_with(installed, tmp_path, *MEASURING, "memory-limits", "render-nodes")
    measures(installed)
    opened = "cannot open /dev/dri/renderD128: No such device or address"  # allowed, but no driver has the device
    wait_for(opened, lambda: any(opened in said for said in event_messages(api, node.name, "GPUMemoryUnknown")))


def start_with(installed: Installed, directory: Path, *components: str) -> None:
    """Start the plugin in place of the running one, with components of deploy/."""
    deploy = os.path.relpath(DEPLOY, directory)
    chosen = [f"{deploy}/components/{each}" for each in components]
    kustomization = {"resources": [f"{deploy}/overlays/plugin"], "components": chosen}
    (directory / "kustomization.yaml").write_text(json.dumps(kustomization))
    if any(each["metadata"]["name"] == "gas-plugin" for each in installed.api.items(PODS)):
        installed.deployed.delete("gas-plugin")
    installed.deployed.kubectl.run("apply", "-k", directory)
    installed.start_plugin()


def other_users_pod(installed: Installed) -> Object:
    """Create a pod with a card whose processes belong to another user than the plugin's, and return it."""
    wait_for(
        "cards",
        lambda: (
            installed.api.get(f"/api/v1/nodes/{installed.node.name}")["status"]["allocatable"].get("gpu.intel.com/i915")
            == "4"
        ),
    )
    return installed.run_gpu_pod("used", millicores=0, node=installed.node.name, user=1234)


def measures(installed: Installed) -> None:
    """Wait until the plugin has read the processes of the pod three times, and check that it saw them."""
    if not MEASURING:
        return

    def document() -> Object | None:
        text = PlainPort(installed.plugin_port).get("/metrics")[1]
        walks = re.search(r"^gas_plugin_usage_walks_total (\S+)$", text, re.MULTILINE)
        if walks is None or float(walks[1]) < 3:
            return None
        found: Object = json.loads(PlainPort(installed.plugin_port).get("/usage")[1])
        return found

    usage = wait_for("three walks", document, seconds=60, every=0.5)
    assert (usage["trouble"], usage["problems"]) == (None, [])
    assert [each["name"] for each in usage["pods"]] == ["used"]
