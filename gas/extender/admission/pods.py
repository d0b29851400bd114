"""Reviews of pods: refused, warned of or completed when they are created."""

from __future__ import annotations

from gas.extender.admission.review import ALLOWED, CREATE, Review, ReviewResult, decode_object
from gas.objects import NewPod
from gas.pod_checks import Findings, PodChecks

PODS = "pods"
SYSTEM_NAMESPACE = "kube-system"
"""Every pod can be created here, so that a cluster can start from nothing."""


class PodReviews:
    """The webhooks ``validate`` and ``complete``. A pod that asks for no GPU is never refused or changed."""

    def __init__(self, checks: PodChecks) -> None:
        self._checks = checks

    async def validate(self, review: Review) -> ReviewResult:
        """Check an object. Everything that has no rule is allowed. Raises BadReview."""
        if (review.target, review.operation) != (PODS, CREATE):
            return ALLOWED
        pod = decode_object(review.new, NewPod)
        findings = self._checks.new_pod(pod)
        if _can_always_be_created(review, pod):
            return _warnings(findings)
        return ReviewResult(refusal="; ".join(findings.faults), warnings=findings.warnings)

    async def complete(self, review: Review) -> ReviewResult:
        """Add to a new pod what it lacks. Raises BadReview."""
        if (review.target, review.operation) != (PODS, CREATE):
            return ALLOWED
        pod = decode_object(review.new, NewPod)
        if _can_always_be_created(review, pod):
            return ALLOWED
        return ReviewResult(patch=self._checks.complete(pod))


def _can_always_be_created(review: Review, pod: NewPod) -> bool:
    return review.namespace == SYSTEM_NAMESPACE or pod.is_mirror


def _warnings(findings: Findings) -> ReviewResult:
    return ReviewResult(warnings=(*findings.faults, *findings.warnings))
