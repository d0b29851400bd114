"""The optional parts of the extender. To remove one, delete its folder and its two lines here."""

from __future__ import annotations

from gas.extender.binding_reviews.part import BINDING_REVIEWS
from gas.extender.leadership.part import LEADERSHIP
from gas.extender.part import Part
from gas.extender.pod_webhooks.part import POD_WEBHOOKS
from gas.extender.preemption.part import PREEMPTION
from gas.extender.requeuing.part import REQUEUING
from gas.extender.scoring.part import SCORING
from gas.extender.sharepods.part import SHAREPODS
from gas.extender.telemetry.part import TELEMETRY

PARTS: tuple[Part, ...] = (
    BINDING_REVIEWS,
    POD_WEBHOOKS,
    SHAREPODS,
    PREEMPTION,
    SCORING,
    LEADERSHIP,
    REQUEUING,
    TELEMETRY,
)
