from __future__ import annotations

import json
from typing import Any

import pytest

from gas.extender.admission.pods import PodReviews
from gas.extender.admission.review import ALLOWED, BadReview, ReviewResult, encode_result
from gas.pod_checks import PodChecks
from gas.vocabularies import DEFAULT
from gas.vocabulary import NeedOptions
from tests.builders import container, pod_json
from tests.extender.admission.reviews import patched, review

BOTH = pod_json(container(i915=1, xe=1))
GPU = pod_json(container(i915=1))
PLAIN = pod_json(container(), annotations={"gas-same-gpu": "nonsense"})
REFUSED = "the pod asks for both gpu.intel.com/i915 and gpu.intel.com/xe; use only one of them in all its containers"


def reviews(scheduler_name: str | None = None) -> PodReviews:
    checks = PodChecks(DEFAULT, NeedOptions(), scheduler_name)
    return PodReviews(checks)


async def test_a_need_that_no_node_can_have_is_refused() -> None:
    assert await reviews().validate(review(BOTH)) == ReviewResult(refusal=REFUSED)


@pytest.mark.parametrize("new", [GPU, PLAIN], ids=["gpu", "no-gpu"])
async def test_other_pods_are_allowed(new: dict[str, Any]) -> None:
    assert await reviews().validate(review(new)) == ALLOWED


async def test_pods_of_the_system_can_always_be_created() -> None:
    assert await reviews().validate(review(BOTH, namespace="kube-system")) == ReviewResult(warnings=(REFUSED,))
    assert await reviews("gas-scheduler").complete(review(GPU, namespace="kube-system")) == ALLOWED


async def test_a_static_pod_can_always_be_created() -> None:
    mirror = pod_json(container(i915=1, xe=1), annotations={"kubernetes.io/config.mirror": "x"})
    assert await reviews().validate(review(mirror)) == ReviewResult(warnings=(REFUSED,))


@pytest.mark.parametrize(
    "other",
    [
        {"operation": "DELETE"},
        {"operation": "CONNECT", "subresource": "exec"},
        {"subresource": "binding"},
        {"subresource": "eviction"},
        {"resource": "services"},
        {"resource": "pods", "group": "metrics.k8s.io"},
    ],
)
async def test_reviews_without_a_rule_are_allowed_unread(other: dict[str, str]) -> None:
    assert await reviews().validate(review(5, **other)) == ALLOWED
    assert await reviews("gas-scheduler").complete(review(5, **other)) == ALLOWED


async def test_a_pod_that_cannot_be_read_is_a_bad_review() -> None:
    with pytest.raises(BadReview):
        await reviews().validate(review({"spec": []}))
    with pytest.raises(BadReview):
        await reviews().complete(review({"spec": []}))


@pytest.mark.parametrize(
    ("new", "present", "after"),
    [
        pytest.param(GPU, None, "gas-scheduler", id="none"),
        pytest.param(GPU, "default-scheduler", "gas-scheduler", id="default"),
        pytest.param(GPU, "other", "other", id="chosen-by-the-user"),
        pytest.param(GPU, "gas-scheduler", "gas-scheduler", id="complete"),
        pytest.param(PLAIN, "default-scheduler", "default-scheduler", id="no-gpu"),
        pytest.param(pod_json(container(i915=1), node="n1"), "default-scheduler", "default-scheduler", id="has-node"),
    ],
)
async def test_the_scheduler_of_gpu_pods_is_completed(new: dict[str, Any], present: str | None, after: str) -> None:
    pod = json.loads(json.dumps(new))
    if present is not None:
        pod["spec"]["schedulerName"] = present
    webhook = reviews("gas-scheduler").complete
    once = changed(pod, await webhook(review(pod)))
    assert once["spec"]["schedulerName"] == after
    assert await webhook(review(once)) == ALLOWED


async def test_without_the_flag_the_scheduler_stays() -> None:
    assert await reviews().complete(review(GPU)) == ALLOWED


def changed(pod: dict[str, Any], result: ReviewResult) -> Any:
    return patched(pod, json.loads(encode_result(review(pod), result))["response"])
