"""Review pods and templates of pods: refuse them, warn of faults, or complete them."""

import asyncio
from collections.abc import Callable, Sequence

import msgspec
from cachetools import LRUCache

from gas.decision.names import CHECKED
from gas.extender.admission.review import ALLOWED, CREATE, UPDATE, Review, ReviewResult, decode_object
from gas.extender.filter import in_turns
from gas.extender.pod_webhooks.part import MOST_REVIEWED_NEEDS
from gas.objects.json_patch import Operation, applied
from gas.objects.stored import WORKLOADS, NewContainer, NewPod, Workload
from gas.vocabularies.pod_checks import CountedFacts, Known, PodChecks

PODS = "pods"
CHANGED = frozenset({PODS, "pods/status"})  # resources by which the annotations of a pod can be changed
TEMPLATES = frozenset(f"{group}/{name}".lstrip("/") for group, names in WORKLOADS.items() for name in names)

SYSTEM_NAMESPACE = "kube-system"  # every pod can be created here, so that a cluster can start from nothing
MOST_SENTENCES = 10  # faults and warnings in one response; the API server keeps 4096 characters of all warnings
CLUSTER_TIMEOUT = 0.5  # most seconds to find out whether any node could hold a pod, while other work goes on
_RECEIPTS_WRITERS = ("system:serviceaccount:", "system:node:")  # users that may be the plugin, which writes receipts


class PodReviews:
    """The webhooks ``validate`` and ``complete``. A pod that asks for no GPU is never refused or changed."""

    def __init__(self, checks: PodChecks, *, nodes: Callable[[], Sequence[CountedFacts] | None]) -> None:
        self._checks = checks
        self._nodes = nodes
        self._known: tuple[Sequence[CountedFacts], Known] = (), {}  # with the nodes of the last review

    async def validate(self, review: Review) -> ReviewResult:
        """Check an object. Every object without a rule is allowed. Raises BadReview."""
        if review.target == PODS and review.operation == CREATE:
            return await self._new_pod(review, decode_object(review.new, NewPod))
        if review.target in CHANGED and review.operation == UPDATE:
            return self._changed_pod(review)
        if review.target in TEMPLATES and review.operation in (CREATE, UPDATE):
            return await self._template(review)
        return ALLOWED

    async def complete(self, review: Review) -> ReviewResult:
        """Add to a new pod what it lacks, and mark it if `validate` would find no fault in it. Raises BadReview.

        The API server asks here again if another webhook changes the pod afterwards. A mark is removed from every pod
        that should not have it.
        """
        if (review.target, review.operation) != (PODS, CREATE):
            return ALLOWED
        pod = decode_object(review.new, NewPod)
        if _is_of_the_system(review, pod):
            return ALLOWED
        patch = self._checks.complete(pod)
        completed = msgspec.convert(applied(patch, pod), NewPod) if patch else pod
        is_good = self._checks.vocabularies.is_gpu_pod(pod) and await self._new_pod(review, completed) == ALLOWED
        annotations = {name: text for name, text in pod.annotations.items() if name != CHECKED}
        if is_good:
            annotations[CHECKED] = "true"
        if annotations != pod.annotations:
            patch = (*patch, Operation("add", "/metadata/annotations", annotations))
        return ReviewResult(patch=patch)

    async def _new_pod(self, review: Review, pod: NewPod) -> ReviewResult:
        findings = self._checks.pod(pod)
        if findings.refusals and not _is_of_the_system(review, pod) and not pod.node_name:
            return ReviewResult(refusal="; ".join(_first(findings.refusals)), warnings=_first(findings.warnings))
        return ReviewResult(warnings=_first((*findings.all, *await self._in_cluster(pod))))

    def _changed_pod(self, review: Review) -> ReviewResult:
        old = decode_object(review.old, NewPod, where="request.oldObject")
        new = decode_object(review.new, NewPod)
        may_write_receipts = review.user.startswith(_RECEIPTS_WRITERS)
        return ReviewResult(warnings=_first(self._checks.change(old, new, may_write_receipts=may_write_receipts)))

    async def _template(self, review: Review) -> ReviewResult:
        workload = decode_object(review.new, Workload)
        if (pod := _pod_of(workload)) is None:
            return ALLOWED
        before: Sequence[str] = ()
        if review.operation == UPDATE:
            old = _pod_of(decode_object(review.old, Workload, where="request.oldObject"))
            if old == pod:
                return ALLOWED
            if old is not None:
                before = self._checks.pod(old).all
        findings = self._checks.pod(pod)
        what = "" if _is_of_the_system(review, pod) else "pods of this template will be refused: "
        refused = [f"{what}{each}" for each in findings.refusals if each not in before]
        warnings = [each for each in findings.warnings if each not in before]
        warnings += self._checks.rolling_update(workload, pod)
        return ReviewResult(warnings=_first((*refused, *warnings, *await self._in_cluster(pod))))

    async def _in_cluster(self, pod: NewPod) -> tuple[str, ...]:
        if (nodes := self._nodes()) is None:
            return ()
        if nodes != self._known[0]:
            self._known = nodes, LRUCache(MOST_REVIEWED_NEEDS)
        try:
            async with asyncio.timeout(CLUSTER_TIMEOUT):
                return await in_turns(self._checks.in_cluster(pod, *self._known))
        except TimeoutError:
            return ()


def _is_of_the_system(review: Review, pod: NewPod) -> bool:
    return review.namespace == SYSTEM_NAMESPACE or pod.is_mirror


def _first(sentences: Sequence[str]) -> tuple[str, ...]:
    if len(sentences) <= MOST_SENTENCES:
        return tuple(sentences)
    return (*sentences[: MOST_SENTENCES - 1], f"and {len(sentences) - MOST_SENTENCES + 1} more")


def _pod_of(workload: Workload) -> NewPod | None:
    """Return the pod that a template makes, with limits as requests, as when it is created; None without a template."""
    if (template := workload.template) is None:
        return None
    spec = msgspec.structs.replace(
        template.spec,
        containers=[_with_requests(each) for each in template.spec.containers or ()],
        init_containers=[_with_requests(each) for each in template.spec.init_containers or ()],
    )
    return NewPod(metadata=template.metadata, spec=spec)


def _with_requests(container: NewContainer) -> NewContainer:
    if (resources := container.resources) is None or not resources.limits:
        return container
    requests = {**resources.limits, **(resources.requests or {})}
    return msgspec.structs.replace(container, resources=msgspec.structs.replace(resources, requests=requests))
