"""Amounts of extended resources in pods and nodes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api_behaviour.client import KubeApi, pod

I915 = "gpu.intel.com/i915"
MEMORY = "gpu.intel.com/memory.max"


async def test_limits_of_extended_resources_become_requests(api: KubeApi) -> None:
    created = await api.create_pod("p", limits={I915: 1, MEMORY: "5Gi"})
    resources = created["spec"]["containers"][0]["resources"]
    assert resources["requests"] == resources["limits"] == {I915: "1", MEMORY: "5Gi"}


async def test_limits_of_init_containers_become_requests_too(api: KubeApi) -> None:
    init = [{"name": "i", "image": "x", "resources": {"limits": {I915: "1"}}}]
    created = await api.create_pod("p", initContainers=init)
    assert created["spec"]["initContainers"][0]["resources"]["requests"] == {I915: "1"}


@pytest.mark.parametrize(
    ("written", "answered"),
    [
        pytest.param(2, "2", id="a-number"),
        pytest.param("2000m", "2", id="thousandths"),
        pytest.param("5Gi", "5Gi", id="binary"),
        pytest.param("5368709120", "5368709120", id="plain-digits-stay-decimal"),
        pytest.param("1024Ki", "1Mi", id="the-largest-binary-unit"),
        pytest.param("5000000000", "5G", id="the-largest-decimal-unit"),
        pytest.param("0.5Gi", "512Mi", id="half-a-gibibyte"),
    ],
)
async def test_quantities_are_returned_in_canonical_form(api: KubeApi, written: Any, answered: str) -> None:
    created = await api.create_pod("p", limits={I915: 1, MEMORY: written})
    assert created["spec"]["containers"][0]["resources"]["limits"][MEMORY] == answered


async def test_cpu_and_memory_may_be_fractions_and_need_no_limit(api: KubeApi) -> None:
    created = await api.create_pod("p", requests={"cpu": "0.5", "memory": "1Gi"})
    assert created["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "500m", "memory": "1Gi"}}


@pytest.mark.parametrize("written", ["abc", "1.2.3", "5 Gi", "1Xi"])
async def test_an_invalid_quantity_is_a_bad_request(api: KubeApi, written: str) -> None:
    response = await api.post(api.pods, pod("p", limits={I915: written}))
    assert response.refusal == (400, "BadRequest")
    assert "quantities must match the regular expression" in response["message"]


@pytest.mark.parametrize(
    ("amounts", "message"),
    [
        pytest.param({"limits": {I915: "1.5"}}, 'Invalid value: "1500m": must be an integer', id="no-fractions"),
        pytest.param(
            {"limits": {I915: "-1"}}, 'Invalid value: "-1": must be greater than or equal to 0', id="not-negative"
        ),
        pytest.param(
            {"requests": {I915: "1"}},
            "Required value: Limit must be set for non overcommitable resources",
            id="a-request-needs-its-limit",
        ),
        pytest.param(
            {"requests": {I915: "1"}, "limits": {I915: "2"}},
            'Invalid value: "1": must be equal to gpu.intel.com/i915 limit of 2',
            id="request-and-limit-are-equal",
        ),
    ],
)
async def test_extended_resources_are_whole_and_not_overcommitted(
    api: KubeApi, amounts: dict[str, Any], message: str
) -> None:
    response = await api.post(api.pods, pod("p", **amounts))
    assert response.refusal == (422, "Invalid")
    assert message in [cause["message"] for cause in response["details"]["causes"]]


async def test_a_node_has_whole_amounts_of_extended_resources(api: KubeApi) -> None:
    node = {"metadata": {"name": f"{api.namespace}-n"}, "status": {"allocatable": {I915: "1.5"}}}
    response = await api.post("/api/v1/nodes", node)
    assert response.refusal == (422, "Invalid")
    assert response["details"]["causes"][0]["field"] == f"status.allocatable.{I915}"
