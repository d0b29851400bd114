"""Several replicas, of which one leads: their rights to the Lease."""

from __future__ import annotations

from collections.abc import Iterator

from gas.doctor.check import Part, Permission
from gas.doctor.programs import EXTENDER, Program, flag_value, is_on
from gas.extender.leadership.part import DEFAULT_LEASE_NAME
from gas.objects.stored import DetailedContainer


def permissions(program: Program, container: DetailedContainer, namespace: str) -> Iterator[Permission]:
    """Yield what an extender needs to elect a leader."""
    if program is EXTENDER and is_on(container, "leader-elect"):
        within = flag_value(container, "lease-namespace") or namespace
        lease = flag_value(container, "lease-name") or DEFAULT_LEASE_NAME
        for verb, name in (("create", ""), ("get", lease), ("update", lease)):
            yield Permission(verb, "leases", "coordination.k8s.io", within, name)


PART = Part(permissions=permissions)
