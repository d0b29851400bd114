"""The part that gives cards to the Bindings of other clients."""

from __future__ import annotations

from functools import partial

from gas.daemon.metric import CounterMetric
from gas.extender.admission.flags import AdmissionFlags
from gas.extender.hooks import Hooks
from gas.extender.part import Additions, Core, Part

REVIEWED_BINDINGS = CounterMetric(
    "gas_extender_reviewed_bindings_total",
    "Bindings of GPU pods that were reviewed, by outcome. Where the cards come from: chosen, repeated (as in an "
    "earlier review), carried (by the Binding itself), dry-run, none (the pod needs no cards), or refused. And what "
    "became of those that were chosen: settled (the pod is bound or gone), expired (no binding followed).",
    ("outcome",),
)


def _build(core: Core) -> Additions:
    from gas.cluster.objects import get_pod, patch_pod_metadata
    from gas.decision.names import EXPIRED_BINDING
    from gas.extender.binding_reviews.earlier_reviews import EarlierReviews
    from gas.extender.binding_reviews.reviews import BindReviews
    from gas.extender.readiness import lister_of_pods

    async def change_version(namespace: str, name: str, uid: str) -> bool:
        mark = {EXPIRED_BINDING: str(core.timing.nanoseconds())}
        return await patch_pod_metadata(core.api, namespace, name, uid, mark, urgent=True)

    decider = core.decider
    reviews = BindReviews(
        decider,
        core.pending_binds,
        core.metrics,
        get_pod=partial(get_pod, core.api, urgent=True),
        change_version=change_version,
        why_not_ready=core.why_not_ready,
        timing=core.timing,
    )
    earlier = EarlierReviews(
        lister_of_pods(core.api, decider.asks_for_cards, "spec.nodeName="),
        change_version,
        clock=core.timing.monotonic,
    )
    return Additions(
        hooks=Hooks(handlers=(reviews.unbound,), reviews=(reviews,)),
        webhooks={"bind": reviews},
        before_deciding=(earlier.end,),
        finish=(reviews.finish,),
    )


BINDING_REVIEWS = Part(
    is_on=lambda flags: flags.of(AdmissionFlags).port > 0, build=_build, metrics=(REVIEWED_BINDINGS,)
)
