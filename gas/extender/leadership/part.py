"""The part by which one of several replicas decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gas.daemon import flag_values as values
from gas.daemon.flags import PartFlags, flag, switch
from gas.extender.part import Part

DEFAULT_LEASE_NAME = "gas-extender"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadershipFlags(PartFlags):
    """The flags of leader election."""

    switched_by: ClassVar[str] = "leader-elect"

    leader_elect: bool = switch(
        "leader-elect",
        "Elect a leader by a Lease. Required with more than one replica; only the leader decides.",
        group="Kubernetes API",
    )
    lease_namespace: str = flag(
        "lease-namespace",
        values.object_name,
        "",
        "NAME",
        "Namespace of the Lease.",
        unset="$POD_NAMESPACE, else the service account's, else default",
    )
    lease_name: str = flag("lease-name", values.object_name, DEFAULT_LEASE_NAME, "NAME", "Name of the Lease.")


LEADERSHIP = Part(flags=LeadershipFlags, is_on=lambda flags: flags.of(LeadershipFlags).leader_elect)
