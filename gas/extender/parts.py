"""List the optional parts of the extender. To remove a part, delete its package and its two lines here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gas.daemon.permissions import Permission, permissions_on
from gas.extender.binding_reviews.part import BINDING_REVIEWS
from gas.extender.device_classes.part import DEVICE_CLASSES
from gas.extender.explanations.part import EXPLANATIONS
from gas.extender.gpushare.part import GPUSHARE
from gas.extender.leadership.part import LEADERSHIP
from gas.extender.part import Part
from gas.extender.pod_groups.part import POD_GROUPS
from gas.extender.pod_webhooks.part import POD_WEBHOOKS
from gas.extender.preemption.part import PREEMPTION
from gas.extender.requeuing.part import REQUEUING
from gas.extender.scoring.part import SCORING
from gas.extender.sharepods.part import SHAREPODS
from gas.extender.telemetry.part import TELEMETRY

if TYPE_CHECKING:
    from gas.extender.flags import Flags

PARTS: tuple[Part, ...] = (
    BINDING_REVIEWS,
    POD_WEBHOOKS,
    SHAREPODS,
    DEVICE_CLASSES,
    PREEMPTION,
    POD_GROUPS,
    SCORING,
    LEADERSHIP,
    REQUEUING,
    TELEMETRY,
    EXPLANATIONS,
    GPUSHARE,
)

CORE_PERMISSIONS = (
    permissions_on("pods", "get", "list", "watch", "patch")
    | permissions_on("nodes", "list", "watch")
    | permissions_on("pods/binding", "create")
    | {Permission(verb, "events", needed=False) for verb in ("create", "patch")}
    | {Permission("get", "persistentvolumeclaims", needed=False)}
)


def permissions_of(flags: Flags, namespace: str) -> frozenset[Permission]:
    """Return the permissions on the API server of an extender with these flags that runs in this namespace."""
    return CORE_PERMISSIONS.union(*(part.permissions(flags, namespace) for part in PARTS if part.is_on(flags)))
