"""The part that elects the replica that decides."""

from dataclasses import dataclass
from typing import ClassVar

from gas.daemon import flag_values as values
from gas.daemon.flags import PartFlags, flag, switch
from gas.daemon.permissions import Permission
from gas.extender.flags import Flags
from gas.extender.part import Additions, Core, Part

DEFAULT_LEASE_NAME = "gas-extender"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadershipFlags(PartFlags):
    switched_by: ClassVar[str] = "leader-elect"

    leader_elect: bool = switch(
        "leader-elect",
        "Elect a leader by a Lease. Required with more than one replica; only the leader decides.",
        group="Kubernetes API",
    )
    lease_namespace: str = flag(
        "lease-namespace=NAME",
        values.object_name,
        "",
        "Namespace of the Lease.",
        unset="$POD_NAMESPACE, else the service account's, else default",
    )
    lease_name: str = flag("lease-name=NAME", values.object_name, DEFAULT_LEASE_NAME, "Name of the Lease.")


def _build(core: Core) -> Additions:
    from gas.extender.leadership.leadership import Leadership, own_namespace

    flags = core.flags.of(LeadershipFlags)
    leader = Leadership(
        core.api,
        flags.lease_namespace or own_namespace(),
        flags.lease_name or DEFAULT_LEASE_NAME,
        on_change=core.chosen,
        identity=core.identity,
        timing=core.timing,
    )
    return Additions(leader=leader)


def _permissions(flags: Flags, namespace: str) -> frozenset[Permission]:
    own = flags.of(LeadershipFlags)
    lease = own.lease_name or DEFAULT_LEASE_NAME
    return frozenset(
        Permission(verb, "leases", "coordination.k8s.io", own.lease_namespace or namespace, name)
        for verb, name in (("create", ""), ("get", lease), ("update", lease))
    )


LEADERSHIP = Part(
    flags=LeadershipFlags,
    is_on=lambda flags: flags.of(LeadershipFlags).leader_elect,
    build=_build,
    permissions=_permissions,
)
