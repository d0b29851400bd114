"""The part that serves the webhooks of pods: they check pods and complete them."""

from dataclasses import dataclass
from typing import ClassVar

from gas.daemon import flag_values as values
from gas.daemon.flags import PartFlags, flag
from gas.extender.admission.flags import AdmissionFlags
from gas.extender.part import Additions, Core, Part


@dataclass(frozen=True, slots=True, kw_only=True)
class PodWebhookFlags(PartFlags):
    switched_by: ClassVar[str] = "admission-port"

    scheduler_name: str | None = flag(
        "admission-scheduler-name=NAME",
        values.text_or_none,
        None,
        "Scheduler of new GPU pods (schedulerName) that have the default one; needs the webhook complete.pods.gas.",
        group="Admission webhooks (TLS)",
        unset="schedulerName stays as it is",
    )


MOST_REVIEWED_NEEDS = 64
"""Needs of reviewed pods that are remembered, with warnings: a workload creates many equal pods in a row. Each takes at
most 0.7 MB, with two lists of cards as long as LONGEST_ANNOTATION."""


def _build(core: Core) -> Additions:
    from gas.extender.pod_webhooks.reviews import PodReviews
    from gas.vocabularies.combined import Vocabularies
    from gas.vocabularies.pod_checks import PodChecks

    decider = core.decider
    checks = PodChecks(
        # Its needs are remembered apart: reviews may be forged, and must not displace those of real pods.
        Vocabularies(core.flags.vocabularies, most_needs=MOST_REVIEWED_NEEDS),
        decider.options.need,
        core.flags.of(PodWebhookFlags).scheduler_name,
        scores_nodes="prioritize" in core.verbs,
    )

    reviews = PodReviews(checks, nodes=lambda: decider.nodes.alike() if core.node_watch.synced.is_set() else None)
    return Additions(webhooks={"validate": reviews.validate, "complete": reviews.complete})


POD_WEBHOOKS = Part(flags=PodWebhookFlags, is_on=lambda flags: flags.of(AdmissionFlags).port > 0, build=_build)
