"""The part that gives cards to the Bindings of other clients."""

from __future__ import annotations

from gas.extender.admission.flags import AdmissionFlags
from gas.extender.part import Part

BINDING_REVIEWS = Part(is_on=lambda flags: flags.of(AdmissionFlags).port > 0)
