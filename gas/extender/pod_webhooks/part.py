"""The part that serves the webhooks of pods: their checks, and what they lack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gas.daemon import flag_values as values
from gas.daemon.flags import PartFlags, flag
from gas.extender.admission.flags import AdmissionFlags
from gas.extender.part import Part


@dataclass(frozen=True, slots=True, kw_only=True)
class PodWebhookFlags(PartFlags):
    """The flags of the webhooks of pods."""

    switched_by: ClassVar[str] = "admission-port"

    scheduler_name: str | None = flag(
        "admission-scheduler-name",
        values.text_or_none,
        None,
        "NAME",
        "Scheduler of new GPU pods (schedulerName) that have the default one; needs the webhook complete.pods.gas.",
        group="Admission webhooks (TLS)",
        unset="schedulerName stays as it is",
    )


POD_WEBHOOKS = Part(flags=PodWebhookFlags, is_on=lambda flags: flags.of(AdmissionFlags).port > 0)
