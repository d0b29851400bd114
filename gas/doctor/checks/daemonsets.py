"""Check that the pods of the plugin's DaemonSets are created and start, and name the cause where they do not."""

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from gas.cluster import paths
from gas.cluster.errors import ApiRefused
from gas.cluster.listing import Lister
from gas.doctor import fix
from gas.doctor.check import Check, Sources
from gas.doctor.findings import Finding, Unseen, about, not_seen, ok, probe, problem, warning
from gas.doctor.gpus import is_served, overlay_for
from gas.doctor.objects import DaemonSet, StartedPod, WarningEvent
from gas.doctor.snapshot import Snapshot
from gas.inspection.objects import InspectedNode, exclusion
from gas.programs import PLUGIN, containers_with, flag_value

DAEMONSETS = "plugin_daemonsets"  # name of the gathered DaemonSets
INSTALL = {
    "plugin": "kubectl apply --kustomize deploy/overlays/plugin   # or your own overlay: docs/deploy.md, 3",
    "nvidia": "kubectl apply --kustomize deploy/overlays/nvidia   # or your own overlay: docs/nvidia.md",
}
"""The command that installs the plugin, by overlay: for the cards of which vendor."""
WITHOUT_DAEMONSETS = {"eks.amazonaws.com/compute-type": "fargate", "type": "virtual-kubelet"}
"""Labels of nodes that run no pods of DaemonSets. The manifests and the chart leave these nodes out."""

_ARCHITECTURE = "kubernetes.io/arch"
_ROOTS = {"k0s": "/var/lib/k0s/kubelet", "microk8s": "/var/snap/microk8s/common/var/lib/kubelet"}
"""kubelet's ``--root-dir``, by the distribution that changes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenDaemonSet:
    """A DaemonSet of gas-plugin. Its pods and events are read only if a pod is missing or not ready."""

    object: DaemonSet
    pods: tuple[StartedPod, ...] = ()
    events: Mapping[str, str] = field(default_factory=dict)  # by UID of the object, the message of its last warning

    @property
    def namespace(self) -> str:
        return self.object.metadata.namespace or "default"

    @property
    def overlay(self) -> str:
        """The overlay that installs it."""
        sources = [flag_value(each, "card-sources") or "" for each in containers_with(self.object.pod, PLUGIN)]
        return "nvidia" if any("nvml" in each for each in sources) else "plugin"

    def kubectl(self, *words: str, note: str = "") -> str:
        return fix.kubectl(*words, f"daemonset/{self.object.metadata.name}", namespace=self.namespace, note=note)


def daemonsets(snapshot: Snapshot) -> tuple[SeenDaemonSet, ...]:
    """Return the DaemonSets of gas-plugin; none if they could not be seen."""
    seen: tuple[SeenDaemonSet, ...] | Unseen = snapshot.gathered.get(DAEMONSETS, ())
    return () if isinstance(seen, Unseen) else seen


def install_plugin(snapshot: Snapshot, *nodes: InspectedNode) -> str:
    """Return the command that installs the plugin for these or all nodes, or shows its DaemonSet if there is one."""
    overlay = overlay_for(nodes or snapshot.checked_nodes) or "plugin"
    installed = (each.kubectl("describe") for each in daemonsets(snapshot) if each.overlay == overlay)
    return next(installed, INSTALL[overlay])


async def _gather(sources: Sources) -> Mapping[str, object]:
    return {DAEMONSETS: await probe(_seen(sources))}


async def _seen(sources: Sources) -> tuple[SeenDaemonSet, ...]:
    lister = Lister(sources.api, paths.DAEMONSETS, DaemonSet, keep=lambda each: bool(containers_with(each.pod, PLUGIN)))
    try:
        listed = (await lister.fetch()).objects
    except ApiRefused as error:
        if error.status == 404:  # an API server for demonstrations
            return ()
        raise
    return tuple(await asyncio.gather(*(_with_pods(sources, SeenDaemonSet(object=each)) for each in listed)))


async def _with_pods(sources: Sources, seen: SeenDaemonSet) -> SeenDaemonSet:
    name, status = seen.object.metadata.name, seen.object.status
    if status.number_ready >= status.desired_number_scheduled:
        return seen
    pods, events = await asyncio.gather(
        Lister(sources.api, paths.pods_of(seen.namespace), StartedPod, keep=lambda pod: pod.is_of(name)).fetch(),
        Lister(sources.api, paths.events(seen.namespace), WarningEvent, field_selector="type=Warning").fetch(),
    )
    messages = {
        each.involved_object.uid or "": each.message for each in sorted(events.objects, key=lambda each: each.time)
    }
    return SeenDaemonSet(object=seen.object, pods=tuple(pods.objects), events=messages)


def check_daemonsets(snapshot: Snapshot) -> Iterator[Finding]:
    if isinstance(unseen := snapshot.gathered.get(DAEMONSETS, ()), Unseen):
        yield not_seen("daemonsets", unseen)
    for seen in daemonsets(snapshot):
        yield from about(f"daemonset {seen.namespace}/{seen.object.metadata.name}", _one(snapshot, seen))


def _one(snapshot: Snapshot, seen: SeenDaemonSet) -> Iterator[Finding]:
    status, nodes = seen.object.status, {node.name: node for node in snapshot.checked_nodes}
    with_cards = [each for each in nodes.values() if overlay_for([each]) == seen.overlay and not is_served(each)]
    for node in [each for each in with_cards if exclusion(seen.object.pod, each)][:1]:
        yield _excluded(seen, node, problem)
    if not with_cards and not status.desired_number_scheduled:
        yield from (_excluded(seen, node, warning) for node in [*nodes.values()][:1])
    if max(status.number_ready, len(seen.pods)) < status.desired_number_scheduled:
        message = seen.events.get(seen.object.metadata.uid or "", "no event says why")
        yield _explained(seen, "its pods are not created", message, seen.kubectl("describe"))
    for pod in seen.pods:
        if not pod.is_ready and snapshot.is_checked(pod.target):
            yield from _not_started(seen, pod, nodes.get(pod.target))
    yield ok(f"{status.number_ready} of {status.desired_number_scheduled} pods are ready", summary_of="object")


def _excluded(seen: SeenDaemonSet, node: InspectedNode, report: Callable[..., Finding]) -> Finding:
    wanted = seen.object.pod.spec.node_selector or {}
    key = next((key for key, value in wanted.items() if node.labels.get(key) != value), "")
    if key == _ARCHITECTURE:
        why, steps = f"its image is for {wanted[key]}, and the node is {node.labels.get(key)}", _other_image(seen, node)
    elif key:
        label = f"{key}={wanted[key]}"
        why, steps = f"the label {label} is missing", [fix.kubectl("label", "node", node.name, label)]
    else:
        why, steps = exclusion(seen.object.pod, node), [seen.kubectl("edit")]
    return report(f"it wants no pod on node {node.name}: {why}", *steps)


def _not_started(seen: SeenDaemonSet, pod: StartedPod, node: InspectedNode | None) -> Iterator[Finding]:
    describe = fix.pod(pod, "describe", "pod")
    reason, message = pod.trouble
    message = message or seen.events.get(pod.uid, "")
    if pod.node_name:
        state = f": {reason}" if reason not in ("", "ContainerCreating") else ""
        if message or state:  # otherwise it has just been created
            yield _explained(seen, f"its pod on node {pod.target} does not start{state}", message, describe, node)
    elif node is not None and any(node.labels.get(key) == value for key, value in WITHOUT_DAEMONSETS.items()):
        sentence = f"its pod for node {node.name} waits without end, because such nodes run no DaemonSets"
        yield warning(sentence, INSTALL[seen.overlay], fix.pod(pod, "delete", "pod"))
    else:
        scheduled = pod.condition("PodScheduled")
        message = (scheduled.message if scheduled is not None else None) or "no scheduler has reported on it yet"
        yield problem(f"its pod for node {pod.target} is not scheduled", describe, found=message)


def _explained(
    seen: SeenDaemonSet, sentence: str, message: str, look: str, node: InspectedNode | None = None
) -> Finding:
    for pattern, cause, steps in _CAUSES:
        if re.search(pattern, message):
            return problem(f"{sentence}; {cause}", *steps(seen, node), found=message)
    return problem(sentence, look, found=message)


def _admit(seen: SeenDaemonSet, _node: InspectedNode | None) -> list[str]:
    words = ("label", "--overwrite", "namespace", seen.namespace, "pod-security.kubernetes.io/enforce=privileged")
    return [fix.kubectl(*words), seen.kubectl("rollout", "restart")]


def _install(seen: SeenDaemonSet, _node: InspectedNode | None) -> list[str]:
    return [INSTALL[seen.overlay], seen.kubectl("rollout", "restart")]


def _add_scc(seen: SeenDaemonSet, _node: InspectedNode | None) -> list[str]:
    account = f"--serviceaccount={seen.object.pod.spec.service_account_name or 'default'}"
    words = ("oc", "adm", "policy", "add-scc-to-user", "privileged", account, f"--namespace={seen.namespace}")
    note = "or the component openshift, which allows less: docs/clusters.md"
    return [fix.command(*words, note=note), seen.kubectl("rollout", "restart")]


def _move_root(seen: SeenDaemonSet, node: InspectedNode | None) -> list[str]:
    root = next((each for sign, each in _ROOTS.items() if node is not None and sign in node.distribution), "")
    find = [] if root else ["# find ROOT on the node: ps -C kubelet -o args= | grep -o 'root-dir[= ][^ ]*'"]
    volume = {"name": "pod-resources", "hostPath": {"path": f"{root or 'ROOT'}/pod-resources"}}
    patch = json.dumps({"spec": {"template": {"spec": {"volumes": [volume]}}}})
    return [*find, seen.kubectl("patch", f"--patch={patch}", note="and in your installation: docs/clusters.md")]


def _other_image(_seen: SeenDaemonSet, node: InspectedNode | None) -> list[str]:
    architecture = node.labels.get(_ARCHITECTURE) if node is not None else "it"
    return [f"# build the image for {architecture} and use the component any-architecture: docs/clusters.md"]


_CAUSES: tuple[tuple[str, str, Callable[[SeenDaemonSet, InspectedNode | None], list[str]]], ...] = (
    ("violates PodSecurity", "the Pod Security Standard of its namespace forbids them", _admit),
    ("insufficient quota to match", "its namespace has no quota for system-node-critical", _install),
    ("security context constraint", "no SecurityContextConstraints admit them", _add_scc),
    ("pod-resources is not a directory", "kubelet has another --root-dir", _move_root),
    (
        "exec format error|no match for platform|no matching manifest",
        "its image is for another architecture",
        _other_image,
    ),
)
"""A part of Kubernetes' message, its cause, and the commands that help."""

CHECKS = (Check(name="daemonsets", title="the plugin's DaemonSets", findings=check_daemonsets, gather=_gather),)
