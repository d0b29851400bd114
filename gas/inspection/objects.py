"""Nodes and pods with the rules that keep pods off nodes, which only these commands read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from gas.objects.stored import (
    DetailedContainer,
    DetailedNode,
    DetailedPod,
    DetailedPodSpec,
    ObjectMeta,
    Requirement,
    Volume,
)


class _InspectedPart(msgspec.Struct, rename="camel", frozen=True, kw_only=True, gc=False):
    """A part of a Kubernetes object."""


class NodeTaint(_InspectedPart, frozen=True):
    key: str = ""
    value: str | None = None
    effect: str = ""


class InspectedNodeSpec(_InspectedPart, frozen=True):
    taints: Sequence[NodeTaint] | None = None
    unschedulable: bool | None = None


class InspectedNode(DetailedNode, frozen=True):
    """A node with its taints."""

    spec: InspectedNodeSpec = InspectedNodeSpec()


class Toleration(_InspectedPart, frozen=True):
    """A toleration. An absent key tolerates every key, an absent effect every effect."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class NodeSelectorTerm(_InspectedPart, frozen=True):
    match_expressions: Sequence[Requirement] | None = None
    match_fields: Sequence[Requirement] | None = None


class NodeSelector(_InspectedPart, frozen=True):
    node_selector_terms: Sequence[NodeSelectorTerm] | None = None


class RequiredNodes(_InspectedPart, frozen=True):
    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class RequiredCompany(_InspectedPart, frozen=True):
    required: Sequence[Any] | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class PodAffinity(_InspectedPart, frozen=True):
    node_affinity: RequiredNodes | None = None
    pod_affinity: RequiredCompany | None = None
    pod_anti_affinity: RequiredCompany | None = None


class Spread(_InspectedPart, frozen=True):
    when_unsatisfiable: str = ""


class ContainerPort(_InspectedPart, frozen=True):
    host_port: int | None = None


class InspectedContainer(DetailedContainer, frozen=True):
    ports: Sequence[ContainerPort] | None = None


class InspectedVolume(Volume, frozen=True):
    """A volume, with the sources of those that may be bound to some of the nodes."""

    persistent_volume_claim: Any = None
    ephemeral: Any = None
    csi: Any = None


class SchedulingGate(_InspectedPart, frozen=True):
    name: str = ""


class InspectedPodSpec(DetailedPodSpec, frozen=True):
    containers: Sequence[InspectedContainer] | None = None
    init_containers: Sequence[InspectedContainer] | None = None
    volumes: Sequence[InspectedVolume] | None = None
    host_network: bool | None = None
    node_selector: dict[str, str] | None = None
    affinity: PodAffinity | None = None
    tolerations: Sequence[Toleration] | None = None
    topology_spread_constraints: Sequence[Spread] | None = None
    scheduling_gates: Sequence[SchedulingGate] | None = None


class Owner(_InspectedPart, frozen=True):
    """An object that a pod belongs to; one of them may be its controller."""

    kind: str = ""
    controller: bool | None = None


class InspectedPodMeta(ObjectMeta, frozen=True):
    owner_references: Sequence[Owner] | None = None


class InspectedPod(DetailedPod, frozen=True):
    """A pod with its owners and the rules that limit it to some of the nodes."""

    metadata: InspectedPodMeta = InspectedPodMeta()
    spec: InspectedPodSpec = InspectedPodSpec()

    @property
    def controller(self) -> str:
        """The kind of the object that creates the pod again when it is deleted; empty if there is none."""
        return next((each.kind for each in self.metadata.owner_references or () if each.controller), "")
