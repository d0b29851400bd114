"""Check that the pods of the plugin's DaemonSets are created and start, and name the cause where they do not."""

import asyncio
import json
import re
import shlex
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

_WITHOUT_DAEMONSETS = {"eks.amazonaws.com/compute-type": "fargate", "type": "virtual-kubelet"}
"""Labels of nodes that run no pods of DaemonSets. The manifests and the chart leave these nodes out."""

_ARCHITECTURE = "kubernetes.io/arch"
_ROOTS = {"+k0s": "/var/lib/k0s/kubelet", "microk8s.io/cluster": "/var/snap/microk8s/common/var/lib/kubelet"}
"""kubelet's ``--root-dir``, by a part of its release or of the node's labels, in distributions that change it."""

_RESTART = "kubectl --namespace={namespace} rollout restart daemonset/{name}"
_OTHER_IMAGE = "# build the image for {architecture} and use the component any-architecture: docs/clusters.md"
_CAUSES = {
    "violates PodSecurity": (
        "the Pod Security Standard of its namespace forbids them",
        "kubectl label --overwrite namespace {namespace} pod-security.kubernetes.io/enforce=privileged",
        _RESTART,
    ),
    "insufficient quota to match": ("its namespace has no quota for system-node-critical", "{install}", _RESTART),
    "security context constraint": (
        "no SecurityContextConstraints admit them",
        "oc adm policy add-scc-to-user privileged --serviceaccount={account} --namespace={namespace}"
        "   # or the component openshift, which allows less: docs/clusters.md",
        _RESTART,
    ),
    "pod-resources is not a directory": (
        "kubelet has another --root-dir",
        "# on the node, ps -C kubelet -o args= shows it, as ROOT",
        "kubectl --namespace={namespace} patch daemonset/{name} --patch={patch}"
        "   # and in your installation: docs/clusters.md",
    ),
    "exec format error|no match for platform": ("its image is for another architecture", _OTHER_IMAGE),
}
"""By a part of Kubernetes' message: its cause, and the commands that help."""


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

    def kubectl(self, *words: str) -> str:
        return fix.kubectl(*words, f"daemonset/{self.object.metadata.name}", namespace=self.namespace)


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
    if seen.object.status.number_ready >= seen.object.status.desired_number_scheduled:
        return seen
    owner = f"DaemonSet/{seen.object.metadata.name}"
    pods, events = await asyncio.gather(
        Lister(sources.api, paths.pods_of(seen.namespace), StartedPod, keep=lambda pod: pod.owner == owner).fetch(),
        Lister(sources.api, paths.events(seen.namespace), WarningEvent, field_selector="type=Warning").fetch(),
    )
    ordered = sorted(events.objects, key=lambda each: each.last_timestamp or "")
    messages = {each.involved_object.uid or "": each.message for each in ordered}
    return SeenDaemonSet(object=seen.object, pods=tuple(pods.objects), events=messages)


def check_daemonsets(snapshot: Snapshot) -> Iterator[Finding]:
    if isinstance(unseen := snapshot.gathered.get(DAEMONSETS, ()), Unseen):
        yield not_seen("daemonsets", unseen)
    for seen in daemonsets(snapshot):
        yield from about(f"daemonset {seen.namespace}/{seen.object.metadata.name}", _one(snapshot, seen))


def _one(snapshot: Snapshot, seen: SeenDaemonSet) -> Iterator[Finding]:
    desired, ready = seen.object.status.desired_number_scheduled, seen.object.status.number_ready
    nodes = {node.name: node for node in snapshot.checked_nodes}
    with_cards = [each for each in nodes.values() if overlay_for([each]) == seen.overlay and not is_served(each)]
    excluded = [each for each in with_cards if exclusion(seen.object.pod, each)]
    if excluded:
        yield _excluded(seen, excluded[0], problem)
    elif not desired and not with_cards:
        yield from (_excluded(seen, node, warning) for node in [*nodes.values()][:1])
    for node in nodes.values():
        if _WITHOUT_DAEMONSETS.items() & node.labels.items() and not exclusion(seen.object.pod, node):
            sentence = f"its pod for node {node.name} waits without end, because such nodes run no DaemonSets"
            yield warning(sentence, INSTALL[seen.overlay])
    if max(ready, len(seen.pods)) < desired:
        message = seen.events.get(seen.object.metadata.uid or "", "no event says why")
        yield _explained(seen, "its pods are not created", message, seen.kubectl("describe"))
    for pod in seen.pods:
        scheduled, (reason, message) = pod.condition("PodScheduled"), pod.trouble
        message = message or seen.events.get(pod.uid, "")
        if not pod.node_name:
            message = scheduled.message or "" if scheduled is not None else ""
        state = f": {reason}" if reason not in ("", "ContainerCreating") else ""
        if not pod.is_ready and snapshot.is_checked(pod.node_name) and (message or state):  # not just created
            where = f"on node {pod.node_name} does not start{state}" if pod.node_name else "is not scheduled"
            look = fix.pod(pod, "describe", "pod")
            yield _explained(seen, f"its pod {where}", message, look, nodes.get(pod.node_name))
    yield ok(f"{ready} of {desired} pods are ready", summary_of="object")


def _excluded(seen: SeenDaemonSet, node: InspectedNode, report: Callable[..., Finding]) -> Finding:
    wanted = seen.object.pod.spec.node_selector or {}
    key = next((key for key, value in wanted.items() if node.labels.get(key) != value), "")
    label, found = f"{key}={wanted.get(key)}", node.labels.get(_ARCHITECTURE)
    why, step = f"the label {label} is missing", fix.kubectl("label", "node", node.name, label)
    if key == _ARCHITECTURE:
        why, step = f"its image is for {wanted[key]}, and the node is {found}", _OTHER_IMAGE.format(architecture=found)
    elif not key:
        why, step = exclusion(seen.object.pod, node), seen.kubectl("edit")
    return report(f"it wants no pod on node {node.name}: {why}", step)


def _explained(seen: SeenDaemonSet, text: str, message: str, look: str, node: InspectedNode | None = None) -> Finding:
    signs = f"{node.status} {node.labels}" if node is not None else ""
    root = next((root for sign, root in _ROOTS.items() if sign in signs), "ROOT")
    volume = {"name": "pod-resources", "hostPath": {"path": f"{root}/pod-resources"}}
    words = {
        "namespace": seen.namespace,
        "name": seen.object.metadata.name,
        "account": seen.object.pod.spec.service_account_name or "default",
        "architecture": node.labels.get(_ARCHITECTURE, "") if node is not None else "it",
        "patch": json.dumps({"spec": {"template": {"spec": {"volumes": [volume]}}}}),
    }
    values = {name: shlex.quote(word) for name, word in words.items()} | {"install": INSTALL[seen.overlay]}
    for pattern, (cause, *steps) in _CAUSES.items():
        if re.search(pattern, message):
            return problem(f"{text}; {cause}", *(each.format(**values) for each in steps), found=message)
    return problem(text, look, found=message)


CHECKS = (Check(name="daemonsets", title="the plugin's DaemonSets", findings=check_daemonsets, gather=_gather),)
