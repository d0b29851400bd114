"""The requests and responses of the verb preempt, as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from gas.extender.wire import BadRequest, decoded, in_exact_case
from gas.objects.stored import PreemptorPod


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


_preempt_decoder = msgspec.json.Decoder(_PreemptWire)


def decode_preempt(body: bytes) -> PreemptArgs:
    """Decode ExtenderPreemptionArgs, with victims as UIDs or as whole pods.

    Raises Unreadable, or BadRequest if there is no pod, or no map of victims.
    """
    args = decoded(_preempt_decoder, body, "ExtenderPreemptionArgs")
    if args.pod is None or (args.node_name_to_meta_victims is None and args.node_name_to_victims is None):
        args = decoded(_preempt_decoder, in_exact_case(body, _PreemptWire), "ExtenderPreemptionArgs")
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


def encode_preempt_result(victims: Mapping[str, Proposal]) -> bytes:
    """Encode ExtenderPreemptionResult, which has UIDs in either form of the request.

    A node that is missing drops out. The most important pod of each node must come first.
    """
    wire = {
        node: _MetaVictims([_MetaPod(uid) for uid in proposal.uids], proposal.violations)
        for node, proposal in victims.items()
    }
    return msgspec.json.encode(_PreemptResultWire(wire))
