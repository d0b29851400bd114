"""Leases, by which leaders are elected."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.api_behaviour.client import KubeApi

SPEC = {
    "holderIdentity": "a",
    "leaseDurationSeconds": 15,
    "acquireTime": "2026-01-01T12:00:00.000000Z",
    "renewTime": "2026-01-01T12:00:00.000001Z",
    "leaseTransitions": 0,
}


async def _lease(api: KubeApi) -> dict[str, Any]:
    response = await api.post(api.leases, {"metadata": {"name": "leader"}, "spec": SPEC})
    assert response.code == 201, response.body
    body: dict[str, Any] = response.body
    return body


async def test_a_lease_is_returned_as_it_was_written(api: KubeApi) -> None:
    created = await _lease(api)
    assert (created["kind"], created["apiVersion"]) == ("Lease", "coordination.k8s.io/v1")
    assert created["spec"] == SPEC
    assert (await api.get(f"{api.leases}/leader")).body == created


async def test_only_one_of_two_renewals_from_the_same_version_succeeds(api: KubeApi) -> None:
    created = await _lease(api)
    first = await api.put(f"{api.leases}/leader", created | {"spec": SPEC | {"holderIdentity": "b"}})
    assert first["spec"]["holderIdentity"] == "b"
    second = await api.put(f"{api.leases}/leader", created | {"spec": SPEC | {"holderIdentity": "c"}})
    assert second.refusal == (409, "Conflict")
    assert second["details"] == {"name": "leader", "group": "coordination.k8s.io", "kind": "leases"}
    assert (await api.get(f"{api.leases}/leader"))["spec"]["holderIdentity"] == "b"


async def test_of_replicas_that_take_a_lease_at_the_same_time_one_succeeds(api: KubeApi) -> None:
    created = await _lease(api)
    responses = await asyncio.gather(
        *(api.put(f"{api.leases}/leader", created | {"spec": SPEC | {"holderIdentity": f"r{n}"}}) for n in range(8))
    )
    assert sorted(response.code for response in responses) == [200] + 7 * [409]
    (winner,) = (f"r{n}" for n, response in enumerate(responses) if response.code == 200)
    assert (await api.get(f"{api.leases}/leader"))["spec"]["holderIdentity"] == winner


async def test_only_one_of_two_creations_succeeds(api: KubeApi) -> None:
    await _lease(api)
    response = await api.post(api.leases, {"metadata": {"name": "leader"}, "spec": SPEC})
    assert response.refusal == (409, "AlreadyExists")
    assert response["message"] == 'leases.coordination.k8s.io "leader" already exists'


async def test_replacing_a_lease_needs_its_version(api: KubeApi) -> None:
    await _lease(api)
    response = await api.put(f"{api.leases}/leader", {"metadata": {"name": "leader"}, "spec": SPEC})
    assert response.refusal == (422, "Invalid")
    assert response["details"]["causes"][0]["field"] == "metadata.resourceVersion"


async def test_a_holder_can_be_cleared(api: KubeApi) -> None:
    created = await _lease(api)
    await api.put(f"{api.leases}/leader", created | {"spec": {"leaseDurationSeconds": 1, "leaseTransitions": 0}})
    spec = (await api.get(f"{api.leases}/leader"))["spec"]
    assert spec == {"leaseDurationSeconds": 1, "leaseTransitions": 0}


async def test_times_of_a_lease_have_microseconds(api: KubeApi) -> None:
    spec = SPEC | {"renewTime": "2026-01-01T12:00:00Z"}
    response = await api.post(api.leases, {"metadata": {"name": "leader"}, "spec": spec})
    assert response.refusal == (400, "BadRequest")


async def test_a_lease_is_deleted_at_once(api: KubeApi) -> None:
    created = await _lease(api)
    response = await api.delete(f"{api.leases}/leader")
    assert (response.code, response["status"]) == (200, "Success")
    assert response["details"] == {
        "name": "leader",
        "group": "coordination.k8s.io",
        "kind": "leases",
        "uid": created["metadata"]["uid"],
    }
    assert (await api.get(f"{api.leases}/leader")).code == 404
