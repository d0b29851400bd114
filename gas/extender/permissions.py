"""The permissions on the API server that an extender needs. A test compares them with the roles of deploy/."""

from __future__ import annotations

from gas.daemon.permissions import Permission, permissions_on
from gas.extender.flags import Flags
from gas.extender.parts import PARTS

CORE = (
    permissions_on("pods", "get", "list", "watch")
    | permissions_on("nodes", "list", "watch")
    | permissions_on("pods/binding", "create")
    | {Permission(verb, "events", needed=False) for verb in ("create", "patch")}
)


def permissions_of(flags: Flags, namespace: str) -> frozenset[Permission]:
    """Return the permissions of an extender with these flags.

    namespace  the extender's own
    """
    return CORE.union(*(part.permissions(flags, namespace) for part in PARTS if part.is_on(flags)))
