"""The requests and responses of the verb preempt, as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from gas.extender.wire import NO_POD, BadRequest, check_number, decoded, decoded_pod, in_exact_case
from gas.objects.stored import ObjectMeta, PreemptorPod


@dataclass(frozen=True, slots=True)
class Proposal:
    """The pods that kube-scheduler would evict from a node; ``violations`` of them violate a disruption budget."""

    uids: tuple[str, ...]
    violations: int = 0


@dataclass(frozen=True, slots=True)
class PreemptArgs:
    pod: PreemptorPod
    proposals: Mapping[str, Proposal]


class _Victim(msgspec.Struct, gc=False):
    """A pod by its UID (meta victims), or the whole pod."""

    uid: str = msgspec.field(name="UID", default="")
    metadata: ObjectMeta = ObjectMeta()


class _Victims(msgspec.Struct, gc=False):
    pods: Sequence[_Victim | None] | None = msgspec.field(name="Pods", default=None)
    violations: int = msgspec.field(name="NumPDBViolations", default=0)


class _PreemptWire(msgspec.Struct, rename="pascal", gc=False):
    pod: msgspec.Raw = NO_POD
    node_name_to_victims: dict[str, _Victims | None] | None = None
    node_name_to_meta_victims: dict[str, _Victims | None] | None = None


_preempt_decoder = msgspec.json.Decoder(_PreemptWire)
_pod_decoder = msgspec.json.Decoder(PreemptorPod | None)


def decode_preempt(body: bytes) -> PreemptArgs:
    """Decode ExtenderPreemptionArgs, with victims as UIDs or as whole pods. Raises Unreadable and BadRequest."""
    args = decoded(_preempt_decoder, body, "ExtenderPreemptionArgs")
    if args.pod == NO_POD or (args.node_name_to_meta_victims is None and args.node_name_to_victims is None):
        args = decoded(_preempt_decoder, in_exact_case(body, _PreemptWire), "ExtenderPreemptionArgs")
    pod = decoded_pod(_pod_decoder, args.pod, "ExtenderPreemptionArgs")
    by_node = args.node_name_to_victims if args.node_name_to_meta_victims is None else args.node_name_to_meta_victims
    if by_node is None:
        raise BadRequest("the request names no victims: expected NodeNameToMetaVictims or NodeNameToVictims")
    check_number(by_node)
    proposals = {
        node: Proposal(
            tuple(pod.uid or pod.metadata.uid or "" for pod in victims.pods or () if pod), victims.violations
        )
        for node, victims in by_node.items()
        if victims is not None
    }
    return PreemptArgs(pod, proposals)


def encode_preempt_result(victims: Mapping[str, Proposal]) -> bytes:
    """Encode ExtenderPreemptionResult, which has UIDs in either form of the request.

    A node that is missing drops out. The most important pod of each node must come first.
    """
    wire = {
        node: {"Pods": [{"UID": uid} for uid in proposal.uids], "NumPDBViolations": proposal.violations}
        for node, proposal in victims.items()
    }
    return msgspec.json.encode({"NodeNameToMetaVictims": wire})
