"""The scheduler's extender protocol, version 1: decoding of requests and encoding of responses.

Field names are Go's own (``NodeNames``, no JSON tags). Go reads them in any case, so any case is accepted here as well.
Unknown fields are skipped while decoding. Source: contract E10.2, E10.3 and E10.5.
"""

from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from gas.objects.stored import AskedPod, Node, Pod
from gas.values.errors import UNDECODABLE, GasError
from gas.values.quoted import LONGEST_NAME

LARGEST_POD = 4 * 1024 * 1024  # bytes of a pod, which are at most half as many in the API server's storage
MOST_NODES = 100_000  # in one request; Kubernetes supports 5,000 in a cluster
_NOT_IN_NAMES = frozenset("/%?# ")


class Unreadable(GasError):
    """The body is not JSON (status 404, as in the original)."""


class BadRequest(GasError):
    """The body is JSON, but not a valid request (status 200 with the sentence in ``Error``)."""


@dataclass(frozen=True, slots=True)
class SentNode:
    """A whole node, as an autoscaler or a scheduler without ``nodeCacheCapable`` sends it."""

    node: Node
    raw: msgspec.Raw  # the JSON as it was sent, to be returned unchanged


@dataclass(frozen=True, slots=True)
class FilterArgs:
    """One filter request: exactly one of ``node_names`` and ``nodes`` is given, and it is not empty.

    Names are as sent: they may be empty, unknown or repeated.
    """

    pod: Pod
    node_names: list[str] | None
    nodes: list[SentNode] | None


class BindingArgs(msgspec.Struct, frozen=True, gc=False):
    """One bind request. Every name can safely become part of a path."""

    pod_name: str = msgspec.field(name="PodName", default="")
    pod_namespace: str = msgspec.field(name="PodNamespace", default="")
    pod_uid: str = msgspec.field(name="PodUID", default="")
    node: str = msgspec.field(name="Node", default="")

    @property
    def key(self) -> str:
        return f"{self.pod_namespace}/{self.pod_name}"


class _NodeList(msgspec.Struct, gc=False):
    items: list[msgspec.Raw] | None = None


NO_POD = msgspec.Raw(b"null")


class _FilterWire(msgspec.Struct, rename="pascal", gc=False):
    pod: msgspec.Raw = NO_POD
    nodes: _NodeList | None = None
    node_names: list[str] | None = None


Wire = TypeVar("Wire")
AnyPod = TypeVar("AnyPod", bound=Pod)

_filter_decoder = msgspec.json.Decoder(_FilterWire)
_pod_decoder = msgspec.json.Decoder(AskedPod | None)
_binding_decoder = msgspec.json.Decoder(BindingArgs)
_node_decoder = msgspec.json.Decoder(Node)
_members_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encoder = msgspec.json.Encoder()


def decode_filter(body: bytes) -> FilterArgs:
    """Decode ExtenderArgs. Raises Unreadable, or BadRequest if there is no pod, no node, or nodes in both forms."""
    args = decoded(_filter_decoder, body, "ExtenderArgs")
    if args.pod == NO_POD or (args.nodes is None and args.node_names is None):
        args = decoded(_filter_decoder, in_exact_case(body, _FilterWire), "ExtenderArgs")
    pod = decoded_pod(_pod_decoder, args.pod, "ExtenderArgs")
    if args.nodes is not None and args.node_names is not None:
        raise BadRequest("the request contains both Nodes and NodeNames: expected one of them")
    sent = (args.nodes.items or []) if args.nodes is not None else None
    if not (named := args.node_names or sent):
        raise BadRequest("the request names no node: expected Nodes or NodeNames with at least one of them")
    check_number(named)
    return FilterArgs(pod, args.node_names, None if sent is None else _sent_nodes(sent))


def decode_binding(body: bytes) -> BindingArgs:
    """Decode ExtenderBindingArgs. Raises Unreadable, or BadRequest if a name is missing or invalid."""
    args = decoded(_binding_decoder, body, "ExtenderBindingArgs")
    if not (args.pod_name and args.pod_namespace and args.pod_uid and args.node):
        args = decoded(_binding_decoder, in_exact_case(body, BindingArgs), "ExtenderBindingArgs")
    namespace = args.pod_namespace or "default"
    fields = {"PodName": args.pod_name, "PodNamespace": namespace, "PodUID": args.pod_uid, "Node": args.node}
    for field, text in fields.items():
        _check_name(field, text)
    return BindingArgs(args.pod_name, namespace, args.pod_uid, args.node)


def encode_filter_result(
    *,
    node_names: Sequence[str] | None = None,  # the nodes that pass
    nodes: Sequence[SentNode] | None = None,  # the same as whole nodes, if the request contained whole nodes
    failed: Mapping[str, str] | None = None,  # node name -> reason
    unresolvable: Mapping[str, str] | None = None,  # the same for nodes on which evicting other pods would not help
    error: str = "",  # the reason why nothing could be decided; the scheduler then ignores the rest
) -> bytes:
    sent = None if nodes is None else {"items": [each.raw for each in nodes]}
    return _encoder.encode(
        {
            "Nodes": sent,
            "NodeNames": node_names,
            "FailedNodes": failed or {},
            "FailedAndUnresolvableNodes": unresolvable or {},
            "Error": error,
        }
    )


def encode_binding_result(*, error: str = "") -> bytes:
    """Encode ExtenderBindingResult; an empty ``error`` means that the pod is bound. Any verb may have such an error."""
    return _encoder.encode({"Error": error})


def decoded(decoder: msgspec.json.Decoder[Wire], body: bytes, what: str) -> Wire:
    """Decode a request. Raises BadRequest, or Unreadable if it is not JSON."""
    try:
        return decoder.decode(body)
    except (msgspec.ValidationError, RecursionError) as error:
        raise BadRequest(f"the request is not a valid {what}: {error}") from None
    except ValueError as error:
        raise Unreadable(f"expected {what} as JSON: {error}") from None


def decoded_pod(decoder: msgspec.json.Decoder[AnyPod | None], raw: msgspec.Raw, what: str) -> AnyPod:
    """Decode the pod of a request. Raises BadRequest, also if there is none."""
    if (size := len(bytes(raw))) > LARGEST_POD:
        raise BadRequest(f"Pod has {size} bytes, expected at most {LARGEST_POD}; make it smaller")
    if (pod := decoded(decoder, bytes(raw), f"{what}.Pod")) is None:
        raise BadRequest("the request names no pod: expected an object in Pod, found null or nothing")
    return pod


def check_number(nodes: Sized) -> None:
    """Raise BadRequest if a request names more nodes than any cluster has: each takes some hundred bytes of memory."""
    if len(nodes) > MOST_NODES:
        raise BadRequest(f"the request names {len(nodes)} nodes: expected at most {MOST_NODES}; name fewer")


def in_exact_case(body: bytes, wire: type[msgspec.Struct]) -> bytes:
    """Return the object with the names of its members spelled as in ``wire``, whatever case they were written in."""
    exact = {field.encode_name.lower(): field.encode_name for field in msgspec.structs.fields(wire)}
    members = {exact.get(name.lower(), name): raw for name, raw in decoded(_members_decoder, body, "object").items()}
    return _encoder.encode(members)


def _sent_nodes(items: list[msgspec.Raw]) -> list[SentNode]:
    nodes = []
    for place, raw in enumerate(items):
        try:
            nodes.append(SentNode(_node_decoder.decode(raw), raw))
        except UNDECODABLE as error:
            raise BadRequest(f"Nodes.items[{place}] is not a valid node: {error}") from None
    return nodes


def _check_name(field: str, text: str) -> None:
    """Raise BadRequest unless a text can be a segment of a path (Kubernetes' own rule) and all of it is printable."""
    if not text:
        raise BadRequest(f"the request has no {field}: expected a name, found nothing")
    unfit = text in (".", "..") or len(text) > LONGEST_NAME or not text.isprintable()
    if unfit or not _NOT_IN_NAMES.isdisjoint(text):
        raise BadRequest(f"{field} is not a valid name: found {text[:80]!r}")
