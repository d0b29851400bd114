"""The scheduler's extender protocol, version 1: decoding of requests and encoding of responses.

Field names are Go's own (``NodeNames``, no JSON tags). Go reads them in any case, so any case is accepted here too.
Unknown fields are skipped while decoding. Source: contract E10.2, E10.3 and E10.5.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from gas.objects.stored import AskedPod, Node, Pod, PreemptorPod
from gas.values.errors import GasError

LONGEST_NAME = 253
"""Characters of the longest name of a Kubernetes object."""

_NOT_IN_NAMES = frozenset("/%?# ")


class Unreadable(GasError):
    """The body is not JSON (status 404, as in the original)."""


class BadRequest(GasError):
    """The body is JSON, but not a valid request (status 200 with the sentence in ``Error``)."""


@dataclass(frozen=True, slots=True)
class SentNode:
    """A whole node, as an autoscaler or a scheduler without ``nodeCacheCapable`` sends it.

    node  the decoded part
    raw   the JSON as it was sent, to be returned unchanged
    """

    node: Node
    raw: msgspec.Raw


@dataclass(frozen=True, slots=True)
class FilterArgs:
    """One filter request: exactly one of ``node_names`` and ``nodes`` is given, and it is not empty.

    Names are as sent: they may be empty, unknown or repeated.
    """

    pod: Pod
    node_names: list[str] | None
    nodes: list[SentNode] | None


@dataclass(frozen=True, slots=True)
class BindingArgs:
    """One bind request: a pod and a node. Every name can safely become part of a path."""

    pod_name: str
    pod_namespace: str
    pod_uid: str
    node: str

    @property
    def key(self) -> str:
        """The pod's ``namespace/name``, for messages."""
        return f"{self.pod_namespace}/{self.pod_name}"


@dataclass(frozen=True, slots=True)
class Proposal:
    """The pods that kube-scheduler would evict from a node.

    violations  how many of them violate a disruption budget
    """

    uids: tuple[str, ...]
    violations: int = 0


@dataclass(frozen=True, slots=True)
class PreemptArgs:
    """One preempt request: a pod, and the proposal for each node."""

    pod: PreemptorPod
    proposals: Mapping[str, Proposal]


class _NodeList(msgspec.Struct, gc=False):
    items: list[msgspec.Raw] | None = None


class _FilterWire(msgspec.Struct, rename="pascal", gc=False):
    pod: AskedPod | None = None
    nodes: _NodeList | None = None
    node_names: list[str] | None = None


class _MetaPod(msgspec.Struct, gc=False):
    uid: str = msgspec.field(name="UID", default="")


class _MetaVictims(msgspec.Struct, gc=False):
    pods: Sequence[_MetaPod | None] | None = msgspec.field(name="Pods", default=None)
    violations: int = msgspec.field(name="NumPDBViolations", default=0)


class _WholeMeta(msgspec.Struct, gc=False):
    uid: str = ""


class _WholePod(msgspec.Struct, gc=False):
    metadata: _WholeMeta = msgspec.field(default_factory=_WholeMeta)


class _WholeVictims(msgspec.Struct, gc=False):
    pods: Sequence[_WholePod | None] | None = msgspec.field(name="Pods", default=None)
    violations: int = msgspec.field(name="NumPDBViolations", default=0)


class _PreemptWire(msgspec.Struct, rename="pascal", gc=False):
    pod: PreemptorPod | None = None
    node_name_to_victims: dict[str, _WholeVictims | None] | None = None
    node_name_to_meta_victims: dict[str, _MetaVictims | None] | None = None


class _PreemptResultWire(msgspec.Struct, gc=False):
    victims: Mapping[str, _MetaVictims] = msgspec.field(name="NodeNameToMetaVictims")


class _BindingWire(msgspec.Struct, gc=False):
    pod_name: str = msgspec.field(name="PodName", default="")
    pod_namespace: str = msgspec.field(name="PodNamespace", default="")
    pod_uid: str = msgspec.field(name="PodUID", default="")
    node: str = msgspec.field(name="Node", default="")


class _NodeListResult(msgspec.Struct, gc=False):
    items: list[msgspec.Raw]


class _FilterResultWire(msgspec.Struct, gc=False):
    nodes: _NodeListResult | None = msgspec.field(name="Nodes")
    node_names: Sequence[str] | None = msgspec.field(name="NodeNames")
    failed: Mapping[str, str] = msgspec.field(name="FailedNodes")
    unresolvable: Mapping[str, str] = msgspec.field(name="FailedAndUnresolvableNodes")
    error: str = msgspec.field(name="Error")


_Wire = TypeVar("_Wire", _FilterWire, _BindingWire, _PreemptWire)


class _HostPriority(msgspec.Struct, rename="pascal", gc=False):
    host: str
    score: int


_filter_decoder = msgspec.json.Decoder(_FilterWire)
_binding_decoder = msgspec.json.Decoder(_BindingWire)
_preempt_decoder = msgspec.json.Decoder(_PreemptWire)
_node_decoder = msgspec.json.Decoder(Node)
_members_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encoder = msgspec.json.Encoder()


def decode_filter(body: bytes) -> FilterArgs:
    """Decode ExtenderArgs. Raises Unreadable, or BadRequest if there is no pod, no node, or nodes in both forms."""
    args = _decoded(_filter_decoder, body, "ExtenderArgs")
    if args.pod is None or (args.nodes is None and args.node_names is None):
        args = _decoded(_filter_decoder, _in_exact_case(body, _FilterWire), "ExtenderArgs")
    if args.pod is None:
        raise BadRequest("the request names no pod: expected an object in Pod, found null or nothing")
    if args.nodes is not None and args.node_names is not None:
        raise BadRequest("the request contains both Nodes and NodeNames: expected one of them")
    if args.nodes is not None:
        return FilterArgs(args.pod, None, _sent_nodes(args.nodes.items or []))
    if not args.node_names:
        raise BadRequest("the request names no node: expected Nodes or NodeNames with at least one of them")
    return FilterArgs(args.pod, args.node_names, None)


def decode_binding(body: bytes) -> BindingArgs:
    """Decode ExtenderBindingArgs. Raises Unreadable, or BadRequest if a name is missing or invalid.

    An empty namespace means ``default``, as everywhere in Kubernetes.
    """
    args = _decoded(_binding_decoder, body, "ExtenderBindingArgs")
    if not (args.pod_name and args.pod_namespace and args.pod_uid and args.node):
        args = _decoded(_binding_decoder, _in_exact_case(body, _BindingWire), "ExtenderBindingArgs")
    namespace = args.pod_namespace or "default"
    fields = {"PodName": args.pod_name, "PodNamespace": namespace, "PodUID": args.pod_uid, "Node": args.node}
    for field, text in fields.items():
        _check_name(field, text)
    return BindingArgs(pod_name=args.pod_name, pod_namespace=namespace, pod_uid=args.pod_uid, node=args.node)


def decode_preempt(body: bytes) -> PreemptArgs:
    """Decode ExtenderPreemptionArgs, with victims as UIDs or as whole pods.

    Raises Unreadable, or BadRequest if there is no pod, or no map of victims.
    """
    args = _decoded(_preempt_decoder, body, "ExtenderPreemptionArgs")
    if args.pod is None or (args.node_name_to_meta_victims is None and args.node_name_to_victims is None):
        args = _decoded(_preempt_decoder, _in_exact_case(body, _PreemptWire), "ExtenderPreemptionArgs")
    if args.pod is None:
        raise BadRequest("the request names no pod: expected an object in Pod, found null or nothing")
    if (meta := args.node_name_to_meta_victims) is not None:
        proposals = {
            node: Proposal(tuple(pod.uid for pod in victims.pods or () if pod), victims.violations)
            for node, victims in meta.items()
            if victims is not None
        }
    elif (whole := args.node_name_to_victims) is not None:
        proposals = {
            node: Proposal(tuple(pod.metadata.uid for pod in victims.pods or () if pod), victims.violations)
            for node, victims in whole.items()
            if victims is not None
        }
    else:
        raise BadRequest(
            "the request names no victims: expected an object in NodeNameToMetaVictims or NodeNameToVictims"
        )
    return PreemptArgs(args.pod, proposals)


def encode_filter_result(
    *,
    node_names: Sequence[str] | None = None,
    nodes: Sequence[SentNode] | None = None,
    failed: Mapping[str, str] | None = None,
    unresolvable: Mapping[str, str] | None = None,
    error: str = "",
) -> bytes:
    """Encode ExtenderFilterResult.

    node_names    the nodes that pass
    nodes         the same as whole nodes, if the request contained whole nodes
    failed        node name -> reason
    unresolvable  the same for nodes on which evicting other pods would not help
    error         the reason why nothing could be decided; the scheduler then ignores the rest
    """
    sent = None if nodes is None else _NodeListResult([each.raw for each in nodes])
    return _encoder.encode(_FilterResultWire(sent, node_names, failed or {}, unresolvable or {}, error))


def encode_preempt_result(victims: Mapping[str, Proposal]) -> bytes:
    """Encode ExtenderPreemptionResult, which has UIDs in either form of the request.

    A node that is missing drops out. The most important pod of each node must come first.
    """
    wire = {
        node: _MetaVictims([_MetaPod(uid) for uid in proposal.uids], proposal.violations)
        for node, proposal in victims.items()
    }
    return _encoder.encode(_PreemptResultWire(wire))


def encode_scores(scores: Iterable[tuple[str, int]]) -> bytes:
    """Encode HostPriorityList: the score of each node, a whole number."""
    return _encoder.encode([_HostPriority(name, score) for name, score in scores])


def encode_binding_result(*, error: str = "") -> bytes:
    """Encode ExtenderBindingResult; an empty ``error`` means that the pod is bound."""
    return _encoder.encode({"Error": error})


def encode_error(error: str) -> bytes:
    """Encode a response of filter or bind that contains only an error."""
    return _encoder.encode({"Error": error})


def _decoded(decoder: msgspec.json.Decoder[_Wire], body: bytes, what: str) -> _Wire:
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise BadRequest(f"the request is not a valid {what}: {error}") from None
    except RecursionError:
        raise BadRequest(f"the request is not a valid {what}: it is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unreadable(f"expected {what} as JSON: {error}") from None


def _in_exact_case(body: bytes, wire: type[msgspec.Struct]) -> bytes:
    """Return the object with the names of its members spelled as in ``wire``, whatever case they were written in."""
    exact = {field.encode_name.lower(): field.encode_name for field in msgspec.structs.fields(wire)}
    members = {exact.get(name.lower(), name): raw for name, raw in _members_decoder.decode(body).items()}
    return _encoder.encode(members)


def _sent_nodes(items: list[msgspec.Raw]) -> list[SentNode]:
    if not items:
        raise BadRequest("the request names no node: expected Nodes or NodeNames with at least one of them")
    nodes = []
    for place, raw in enumerate(items):
        try:
            nodes.append(SentNode(_node_decoder.decode(raw), raw))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadRequest(f"Nodes.items[{place}] is not a valid node: {error}") from None
        except RecursionError:
            raise BadRequest(f"Nodes.items[{place}] is not a valid node: it is nested too deeply") from None
    return nodes


def _check_name(field: str, text: str) -> None:
    """Raise BadRequest unless a text can be a segment of a path (Kubernetes' own rule) and all of it is printable."""
    if not text:
        raise BadRequest(f"the request has no {field}: expected a name, found nothing")
    unfit = text in (".", "..") or len(text) > LONGEST_NAME or not text.isprintable()
    if unfit or not _NOT_IN_NAMES.isdisjoint(text):
        raise BadRequest(f"{field} is not a valid name: found {text[:80]!r}")
