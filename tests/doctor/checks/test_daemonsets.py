"""The check of the plugin's DaemonSets: each trap has its cause in the first sentence, and commands that help."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gas.doctor.all_parts import all_findings
from gas.doctor.checks.daemonsets import INSTALL, SeenDaemonSet
from gas.doctor.findings import Level
from gas.doctor.objects import DaemonSet, StartedPod
from gas.inspection.objects import InspectedNode
from tests.deploy.manifests import BASE, COMPONENTS, one
from tests.doctor.snapshots import CASE, NOT_SEEN, assert_case, case, fine, seen_node_json, snapshot

INTEL, NVIDIA = one(BASE / "plugin", "DaemonSet"), one(COMPONENTS / "nvidia", "DaemonSet")
EVERYWHERE = msgspec.json.decode(msgspec.json.encode(INTEL))
del EVERYWHERE["spec"]["template"]["spec"]["affinity"]
PODSECURITY = (
    'Error creating: pods "gas-plugin-x" is forbidden: violates PodSecurity "baseline:latest": hostPath volumes'
)
QUOTA = "Error creating: insufficient quota to match these scopes: [{PriorityClass In [system-node-critical]}]"
SCC = "Error creating: pods is forbidden: unable to validate against any security context constraint: [provider restr"
ROOT = "hostPath type check failed: /var/lib/kubelet/pod-resources is not a directory"
EXEC = "exec /opt/gas/bin/gas-plugin: exec format error"
PRESENT = {"nvidia.com/gpu.present": "true"}
NFD = {"feature.node.kubernetes.io/pci-0302_10de.present": "true"}
LABELLED = {"intel.feature.node.kubernetes.io/gpu": "true"}
FARGATE = {"eks.amazonaws.com/compute-type": "fargate"}


def node(name: str = "gpu-1", *, labels: dict[str, str] | None = None, kubelet: str = "", bare: bool = True) -> Any:
    """Build a node of the manifests' platform; ``bare`` without labels and resources about cards."""
    written = seen_node_json(name, labels={}, resources={}) if bare else seen_node_json(name)
    written["metadata"]["labels"] |= {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", **(labels or {})}
    written["status"]["nodeInfo"] = {"kubeletVersion": f"v1.37.1{kubelet}"}
    return msgspec.convert(written, InspectedNode)


def daemonset(
    *pods: StartedPod, desired: int = 1, ready: int = 0, event: str = "", of_pod: str = "", written: Any = INTEL
) -> dict[str, Any]:
    """Return what was gathered of one DaemonSet; ``event`` is about itself, ``of_pod`` about its pod."""
    status = {"desiredNumberScheduled": desired, "numberReady": ready}
    built = {**written, "metadata": {**written["metadata"], "uid": "d"}, "status": status}
    events = {"d": event} if event else {}
    events |= {"p": of_pod} if of_pod else {}
    seen = SeenDaemonSet(object=msgspec.convert(built, DaemonSet), pods=pods, events=events)
    return {"plugin_daemonsets": (seen,), "nodes": (node(),), "pods": ()}


def started(*, waiting: str = "", message: str = "", ended: str = "", bound: bool = True, refused: str = "") -> Any:
    """Build a pod that does not run on its node."""
    state = {"waiting": {"reason": waiting, "message": message}} if waiting else {}
    status: dict[str, Any] = {"containerStatuses": [{"name": "plugin", "state": state}]}
    if ended:
        status["containerStatuses"][0]["lastState"] = {"terminated": {"reason": "StartError", "message": ended}}
    if refused:
        status["conditions"] = [{"type": "PodScheduled", "status": "False", "message": refused}]
    spec = {"nodeName": "gpu-1"} if bound else {}
    metadata = {"name": "gas-plugin-x", "namespace": "default", "uid": "p"}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, StartedPod)


@pytest.mark.parametrize(
    CASE,
    [
        case("not-seen", "unknown", "may not be seen", plugin_daemonsets=NOT_SEEN),
        fine("none"),
        fine("all-ready", "1 of 1 pods are ready", **daemonset(ready=1)),
        case(
            "pod-security",
            "problem",
            "kubectl label --overwrite namespace default pod-security.kubernetes.io/enforce=privileged",
            **daemonset(event=PODSECURITY),
        ),
        case("quota", "problem", f"no quota for system-node-critical |  | {QUOTA}", **daemonset(event=QUOTA)),
        case("scc", "problem", "add-scc-to-user privileged --serviceaccount=gas-plugin", **daemonset(event=SCC)),
        case("no-event", "problem", "its pods are not created |  | no event says why", **daemonset()),
        case(
            "kubelets-root-unknown",
            "problem",
            '"ROOT/pod-resources"',
            **daemonset(started(waiting="ContainerCreating"), of_pod=ROOT),
        ),
        case(
            "kubelets-root-of-k0s",
            "problem",
            '"/var/lib/k0s/kubelet/pod-resources"',
            **daemonset(started(), of_pod=ROOT) | {"nodes": (node(kubelet="+k0s.0"),)},
        ),
        case(
            "kubelets-root-of-microk8s",
            "problem",
            '"/var/snap/microk8s/common/var/lib/kubelet/pod-resources"',
            **daemonset(started(), of_pod=ROOT) | {"nodes": (node(labels={"microk8s.io/cluster": "true"}),)},
        ),
        case(
            "image",
            "problem",
            "does not start: ImagePullBackOff |  | Back-off pulling",
            **daemonset(started(waiting="ImagePullBackOff", message='Back-off pulling image "gas:1"')),
        ),
        case(
            "image-of-another-architecture",
            "problem",
            "its image is for another architecture",
            **daemonset(started(waiting="CrashLoopBackOff", message="back-off 5m0s", ended=EXEC)),
        ),
        fine(
            "on-a-node-that-is-not-asked-about",
            **daemonset(started(waiting="ImagePullBackOff")) | {"nodes": (node("other"),), "only_node": "other"},
        ),
        fine("just-created", **daemonset(started(waiting="ContainerCreating"))),
        case(
            "no-room",
            "problem",
            "its pod is not scheduled |  | 0/1 nodes are available: 1 Insufficient memory.",
            **daemonset(started(bound=False, refused="0/1 nodes are available: 1 Insufficient memory.")),
        ),
        case(
            "fargate",
            "warning",
            "waits without end, because such nodes run no DaemonSets",
            **daemonset(started(bound=False), written=EVERYWHERE) | {"nodes": (node(labels=FARGATE),)},
        ),
        case(
            "arm64",
            "problem",
            "it wants no pod on node gpu-1: its image is for amd64, and the node is arm64",
            **daemonset(desired=0) | {"nodes": (node(labels=LABELLED | {"kubernetes.io/arch": "arm64"}),)},
        ),
        case(
            "no-node-has-the-label",
            "warning",
            "kubectl label node gpu-1 nvidia.com/gpu.present=true",
            **daemonset(desired=0, written=NVIDIA),
        ),
        case(
            "the-node-with-cards-lacks-the-label",
            "problem",
            "kubectl label node gpu-1 nvidia.com/gpu.present=true",
            **daemonset(desired=0, written=NVIDIA) | {"nodes": (node(labels=NFD),)},
        ),
        case(
            "affinity",
            "problem",
            "kubectl --namespace=default edit daemonset/gas-plugin",
            **daemonset(desired=0) | {"nodes": (node(labels=LABELLED | {"type": "virtual-kubelet"}),)},
        ),
        fine(
            "others-serve-the-node",
            **daemonset(ready=1) | {"nodes": (node(labels=LABELLED | FARGATE, bare=False),)},
        ),
        case(
            "one-of-three-is-missing",
            "problem",
            "its pods are not created",
            **daemonset(started(waiting="ContainerCreating"), started(), desired=3, ready=1, event="refused"),
        ),
        fine("of-another-vendor", **daemonset(ready=1) | {"nodes": (node(labels=PRESENT | FARGATE),)}),
    ],
)
def test_daemonsets(changes: dict[str, Any], level: str, words: str) -> None:
    assert_case("daemonsets", changes, level, words)


@pytest.mark.parametrize("event", [PODSECURITY, QUOTA, SCC])
def test_the_cause_comes_first_and_nothing_is_advised_that_is_there(event: str) -> None:
    found = all_findings(snapshot(calls=(), **daemonset(event=event)))
    about_nodes = [each for each in found if each.level is Level.PROBLEM and each.check != "extender"]
    assert about_nodes[0].check == "daemonsets"
    advised = [command for each in about_nodes[1:] for command in each.fix]
    assert not set(INSTALL.values()) & set(advised), about_nodes


@pytest.mark.parametrize(
    ("labels", "overlay"),
    [
        pytest.param(PRESENT, "nvidia", id="by-nvidias-operator"),
        pytest.param(NFD, "nvidia", id="by-feature-discovery"),
        pytest.param({"feature.node.kubernetes.io/pci-0380_8086.present": "true"}, "plugin", id="intels"),
        pytest.param({}, "plugin", id="none"),
    ],
)
def test_the_overlay_is_that_of_the_nodes_vendor(labels: dict[str, str], overlay: str) -> None:
    bare = {"nodes": (node(labels=labels),), "pods": (), "calls": ()}
    (missing,) = [each for each in all_findings(snapshot(**bare)) if each.check == "node-labels"]
    assert missing.fix == (INSTALL[overlay],)
    if labels == NFD:
        return  # its DaemonSet waits for the label of NVIDIA's operator
    installed = daemonset(ready=1, written=NVIDIA if overlay == "nvidia" else INTEL) | bare
    (missing,) = [each for each in all_findings(snapshot(**installed)) if each.check == "node-labels"]
    assert missing.fix[0].startswith("kubectl --namespace=default describe daemonset/gas-plugin")
