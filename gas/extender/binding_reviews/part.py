"""The part that gives cards to the Bindings of other clients."""

from gas.daemon.metric import Metric
from gas.extender.admission.flags import AdmissionFlags
from gas.extender.hooks import Hooks
from gas.extender.part import Additions, Core, Part

REVIEWED_BINDINGS = Metric(
    "gas_extender_reviewed_bindings_total",
    "Bindings of GPU pods that were reviewed, by outcome. Where the cards come from: chosen, repeated (as in an "
    "earlier review), carried (by the Binding itself), dry-run, none (the pod needs no cards), or refused. And what "
    "became of those that were chosen: settled (the pod is bound or gone), expired (no binding followed).",
    ("outcome",),
)


def _build(core: Core) -> Additions:
    from gas.extender.binding_reviews.reviews import BindReviews

    reviews = BindReviews(
        core.decider,
        core.pending_binds,
        core.metrics,
        settler=core.settler,
        why_not_ready=core.why_not_ready,
        timing=core.timing,
    )
    return Additions(hooks=Hooks(handlers=(reviews.unbound,), observers=(reviews,)), webhooks={"bind": reviews})


BINDING_REVIEWS = Part(
    is_on=lambda flags: flags.of(AdmissionFlags).port > 0, build=_build, metrics=(REVIEWED_BINDINGS,)
)
