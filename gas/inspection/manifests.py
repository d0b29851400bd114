"""Read the pods that manifests ask for: pods themselves, and the templates of everything that creates pods."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from gas.inspection.objects import InspectedContainer, InspectedPod, InspectedPodMeta, InspectedPodSpec
from gas.objects.stored import ResourceRequirements, with_requests
from gas.values.amounts import MalformedQuantity, parse_quantity
from gas.values.errors import GasError
from gas.values.quoted import listed, quoted
from gas.values.yaml_text import InvalidYaml, parse_yaml

LARGEST = 1024 * 1024  # bytes of a file, which take some seconds to parse
MOST_PODS = 100_000  # Most replicas of one object. More is a mistake, and would take minutes.
_PODS = ("Pod", "SharePod")  # kinds with the metadata and the spec of a pod
_TEMPLATES = ("Deployment", "ReplicaSet", "StatefulSet", "ReplicationController", "DaemonSet", "Job", "CronJob")


class UnreadableManifest(GasError):
    exit_code = 2


@dataclass(frozen=True, slots=True)
class WantedPods:
    """Equal pods that one object of a manifest asks for."""

    name: str  # ``Deployment shop/web``
    pod: InspectedPod  # one of them, without a UID
    count: int  # number that run at the same time; 0 for a DaemonSet
    each_node: bool = False  # True for a DaemonSet, which has one on every node that its rules allow


def read_manifests(file: str, content: bytes, namespace: str) -> tuple[list[WantedPods], list[str]]:
    """Return a file's pods, in this namespace by default, and its objects without pods. Raises UnreadableManifest."""
    try:
        objects = list(_objects(file, parse_yaml(content, LARGEST)))
    except (InvalidYaml, RecursionError) as error:
        raise UnreadableManifest(f"file {quoted(file)}: {error}") from error
    wanted: list[WantedPods] = []
    others: list[str] = []
    for built in objects:
        kind = built.get("kind")
        name = _name(built, namespace)
        try:
            if kind in _PODS:
                wanted.append(WantedPods(name, _pod(built, built, namespace), 1))
            elif kind in _TEMPLATES:
                wanted.append(_of_template(name, built, namespace))
            else:
                others.append(name)
        except UnreadableManifest as fault:
            raise UnreadableManifest(f"file {quoted(file)}, {name}: {fault}") from fault
    return wanted, others


def one_shape(file: str, wanted: Sequence[WantedPods]) -> InspectedPod:
    """Return one pod of the only object of a file that creates pods. Raises UnreadableManifest."""
    if len(wanted) != 1:
        names = listed([each.name for each in wanted]) if wanted else "none"
        raise UnreadableManifest(f"file {quoted(file)}: expected one object that creates pods, found {names}")
    return wanted[0].pod


def pod_of_requests(text: str, namespace: str) -> InspectedPod:
    """Return a pod of one container with requests such as ``cpu=2,gpu.intel.com/i915=1``. Raises UnreadableManifest."""
    requests: dict[str, str] = {}
    for part in map(str.strip, text.split(",")):
        name, is_there, amount = part.partition("=")
        try:
            parse_quantity(amount)
        except MalformedQuantity:
            is_there = ""
        if not name or not is_there or name in requests:
            raise UnreadableManifest(
                f"shape {quoted(text)}: expected different resources with amounts such as"
                f" gpu.intel.com/i915=1,gpu.intel.com/memory.max=14G, found {quoted(part)}"
            )
        requests[name] = amount
    return InspectedPod(
        metadata=InspectedPodMeta(name="shape", namespace=namespace),
        spec=InspectedPodSpec(
            containers=(InspectedContainer(name="main", resources=ResourceRequirements(requests=dict(requests))),)
        ),
    )


def _objects(file: str, documents: Iterable[object]) -> Iterator[Mapping[str, Any]]:
    for document in documents:
        if document is None:
            continue
        if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
            raise UnreadableManifest(
                f"file {quoted(file)}: expected a Kubernetes object with a kind, found {quoted(document)}"
            )
        if document["kind"].endswith("List") and isinstance(document.get("items"), list):
            yield from _objects(file, document["items"])
        else:
            yield document


def _name(built: Mapping[str, Any], namespace: str) -> str:
    metadata = built.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    name = metadata.get("name") or metadata.get("generateName") or "without-name"
    return f"{built['kind']} {metadata.get('namespace') or namespace}/{name}"


def _of_template(name: str, built: Mapping[str, Any], namespace: str) -> WantedPods:
    kind = built["kind"]
    spec = _part(built, "spec")
    if kind == "CronJob":
        spec = _part(_part(spec, "jobTemplate"), "spec")
    pod = _pod(_part(spec, "template"), built, namespace)
    if kind == "DaemonSet":
        return WantedPods(name, pod, 0, each_node=True)
    if kind in ("Job", "CronJob"):
        parallel = _number(spec, "parallelism", 1)
        return WantedPods(name, pod, min(parallel, _number(spec, "completions", parallel)))
    return WantedPods(name, pod, _number(spec, "replicas", 1))


def _part(of: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    part = of.get(key)
    if not isinstance(part, dict):
        raise UnreadableManifest(f"expected a map at {key}, found {'nothing' if part is None else quoted(part)}")
    return part


def _number(of: Mapping[str, Any], key: str, default: int) -> int:
    number = of.get(key)
    if number is None:
        return default
    if type(number) is not int or not 0 <= number <= MOST_PODS:
        raise UnreadableManifest(f"expected a whole number from 0 to {MOST_PODS} at {key}, found {quoted(number)}")
    return number


def _pod(template: Mapping[str, Any], owner: Mapping[str, Any], namespace: str) -> InspectedPod:
    """Return the pod that a template makes, with the requests that the API server takes from limits."""
    metadata = template.get("metadata") or {}
    owners = owner.get("metadata") or {}
    spec = _part(template, "spec")
    try:
        built = {
            "metadata": {
                **metadata,
                "name": str(owners.get("name") or owners.get("generateName") or "without-name"),
                "namespace": owners.get("namespace") or namespace,
                "uid": None,
            },
            "spec": {
                **with_requests(spec),
                **{
                    key: list(map(with_requests, spec[key]))
                    for key in ("containers", "initContainers")
                    if spec.get(key)
                },
            },
        }
        return msgspec.convert(built, InspectedPod)
    except ValueError as error:
        raise UnreadableManifest(f"expected a pod, found a mistake: {error}") from error
    except (TypeError, AttributeError) as error:
        raise UnreadableManifest(
            "expected maps at metadata, resources, requests and limits, and lists of maps at containers and"
            " initContainers"
        ) from error
