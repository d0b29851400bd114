"""Read the pods that manifests ask for: pods themselves, and the templates of everything that creates pods."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from gas.inspection.objects import InspectedContainer, InspectedPod, InspectedPodMeta, InspectedPodSpec
from gas.objects.stored import ResourceRequirements, with_requests
from gas.values.amounts import MalformedQuantity, exact_quantity, parse_quantity, parse_rounded_up
from gas.values.errors import GasError
from gas.values.quoted import listed, quoted
from gas.values.yaml_text import InvalidYaml, parse_yaml

LARGEST = 1024 * 1024  # bytes of a file, which take some seconds to parse
MOST_PODS = 100_000  # Most replicas of one object. More is a mistake, and would take minutes.
_TEMPLATES = ("Deployment", "ReplicaSet", "StatefulSet", "ReplicationController", "DaemonSet", "Job", "CronJob")
_WITH_PODS = ("Pod", "SharePod", *_TEMPLATES)
"""Kinds that must have a pod. In all others, any pod template is found."""

_EXACT = re.compile(r"hugepages-.*|(?!requests\.)(?!.*kubernetes\.io/)[^/]+/.*")
"""Names of resources of which the API server demands a limit that is equal to the request."""


class UnreadableManifest(GasError):
    exit_code = 2


@dataclass(frozen=True, slots=True)
class WantedPods:
    """Equal pods that one object of a manifest asks for."""

    name: str  # ``Deployment shop/web``
    pod: InspectedPod  # one of them, without a UID
    count: int  # number that run at the same time; 0 for a DaemonSet
    each_node: bool = False  # True for a DaemonSet, which has one on every node that its rules allow
    fault: str = ""  # why the API server would refuse the pods


def read_manifests(file: str, content: bytes, namespace: str) -> tuple[list[WantedPods], list[str]]:
    """Return a file's pods, in this namespace by default, and its objects without pods. Raises UnreadableManifest."""
    try:
        objects = list(_objects(file, parse_yaml(content, LARGEST)))
    except (InvalidYaml, RecursionError) as error:
        raise UnreadableManifest(f"file {quoted(file)}: {error}") from error
    wanted: list[WantedPods] = []
    others: list[str] = []
    for built in objects:
        kind, name = built["kind"], _name(built, namespace)
        try:
            found = [
                WantedPods(
                    f"{name} {path}" if path and kind not in _WITH_PODS else name,
                    _pod(template, built, namespace),
                    count,
                    kind == "DaemonSet",
                    "; ".join(_faults(template["spec"])),
                )
                for path, template, count in _templates(built, 1)
            ]
            if not found and kind in _WITH_PODS:
                raise UnreadableManifest("expected a pod with a list of containers, found none")
        except (UnreadableManifest, RecursionError) as fault:  # aliases may lead back to where they begin
            if kind in _WITH_PODS:
                raise UnreadableManifest(f"file {quoted(file)}, {name}: {fault}") from fault
            found = []
        wanted += found
        others += [] if found else [name]
    return wanted, others


def one_shape(file: str, wanted: Sequence[WantedPods]) -> InspectedPod:
    """Return one pod of the only object of a file that creates pods. Raises UnreadableManifest."""
    if len(wanted) != 1:
        names = listed([each.name for each in wanted]) if wanted else "none"
        raise UnreadableManifest(f"file {quoted(file)}: expected one object that creates pods, found {names}")
    if fault := wanted[0].fault:
        raise UnreadableManifest(f"file {quoted(file)}, {wanted[0].name}: the API server refuses it: {fault}")
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


def _templates(part: Any, count: int, path: str = "") -> Iterator[tuple[str, Mapping[str, Any], int]]:
    """Yield each pod template in a part of an object, with its path and how many pods it makes."""
    if isinstance(part, list):
        for each in part:
            yield from _templates(each, count, path)
    if not isinstance(part, dict):
        return
    parallel = _number(part, "parallelism", 1)
    count *= min(parallel, _number(part, "completions", parallel)) * _number(part, "numOfHosts", 1)
    count *= _number(part, "replicas", _number(part, "minReplicas", 1))
    for template in (part, {"spec": part}):
        spec = template.get("spec")
        if isinstance(spec, dict) and spec.get("containers"):
            yield path, template, _number({"the number of pods": count}, "the number of pods", count)
            return
    for key, each in part.items():
        number = count
        if key == "workerTemplate":  # of a LeaderWorkerSet: its leader is one of the group
            number *= max(_number(part, "size", 1) - ("leaderTemplate" in part), 0)
        names = (path, part.get("name") or part.get("groupName"), "" if key in ("spec", "template") else key)
        yield from _templates(each, number, ".".join(str(name) for name in names if name))


def _number(of: Mapping[str, Any], key: str, default: int) -> int:
    number = of.get(key)
    if number is None:
        return default
    if type(number) is not int or not 0 <= number <= MOST_PODS:
        raise UnreadableManifest(f"expected a whole number from 0 to {MOST_PODS} at {key}, found {quoted(number)}")
    return number


def _faults(spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield why the API server would refuse the requests and limits of a pod, a sentence each."""
    containers = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    for part in (spec, *containers):
        where = "spec.resources" if part is spec else f"container {quoted(part.get('name'))}"
        resources = part.get("resources") or {}
        limits, requests = (resources.get(kind) or {} for kind in ("limits", "requests"))
        for name in {**limits, **requests}:
            if part is spec and name not in ("cpu", "memory") and not name.startswith("hugepages-"):
                yield f"{where} cannot have {quoted(name)}; move it into a container"
            elif fault := _fault(name, limits, requests):
                yield f"{where}, {quoted(name)}: {fault}"


def _fault(name: str, limits: Mapping[str, Any], requests: Mapping[str, Any]) -> str:
    is_exact = _EXACT.fullmatch(name) is not None
    limit = limits.get(name) or 0
    request = (requests.get(name) or 0) if name in requests else limit
    try:
        for each in (limit, request):
            (parse_quantity if is_exact else parse_rounded_up)(each)
    except MalformedQuantity as malformed:
        return str(malformed)
    if name not in limits:
        return "expected a limit, found only a request; write it under limits" if is_exact else ""
    asked, most = exact_quantity(request), exact_quantity(limit)
    if asked != most if is_exact else asked > most:
        return f"expected a request {'equal to' if is_exact else 'up to'} the limit, {limit}, found {request}"
    return ""


def _with_texts(part: Mapping[str, Any], *maps: str) -> dict[str, Any]:
    """Return a part with these maps of texts; a text ``null`` is empty, as for the API server."""
    texts = {
        key: {name: "" if text is None else text for name, text in part[key].items()} for key in maps if part.get(key)
    }
    return {**part, **texts}


def _pod(template: Mapping[str, Any], owner: Mapping[str, Any], namespace: str) -> InspectedPod:
    """Return the pod that a template makes, with the requests that the API server takes from limits."""
    metadata = template.get("metadata") or {}
    owners = owner.get("metadata") or {}
    spec = template["spec"]
    try:
        built = {
            "metadata": {
                **_with_texts(metadata, "annotations", "labels"),
                "name": str(owners.get("name") or owners.get("generateName") or "without-name"),
                "namespace": namespace if owners.get("namespace") is None else owners["namespace"],
                "uid": None,
            },
            "spec": {
                **_with_texts(with_requests(spec), "nodeSelector"),
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
