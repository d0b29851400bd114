"""Events, which users read with ``kubectl describe``."""

from __future__ import annotations

from typing import Any

from tests.api_behaviour.client import KubeApi


def _event(api: KubeApi, name: str, **parts: Any) -> dict[str, Any]:
    about = {"apiVersion": "v1", "kind": "Pod", "namespace": api.namespace, "name": "p"}
    moment = "2026-01-01T12:00:00Z"
    return {
        "metadata": {"name": name},
        "involvedObject": about,
        "reason": "FailedScheduling",
        "message": "no room",
        "type": "Warning",
        "count": 1,
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        **parts,
    }


async def test_an_event_is_returned_as_it_was_written(api: KubeApi) -> None:
    sent = _event(api, "p.1")
    response = await api.post(api.events, sent)
    assert response.code == 201
    assert {name: response[name] for name in sent if name != "metadata"} == {
        name: value for name, value in sent.items() if name != "metadata"
    }


async def test_an_event_is_found_by_its_object(api: KubeApi) -> None:
    await api.post(api.events, _event(api, "p.1"))
    other = {"kind": "Pod", "namespace": api.namespace, "name": "q"}
    await api.post(api.events, _event(api, "q.1", involvedObject=other))
    selector = "involvedObject.kind=Pod,involvedObject.name=p,reason=FailedScheduling,type=Warning"
    assert (await api.get(api.events, fieldSelector=selector)).names == ["p.1"]


async def test_the_count_of_an_event_is_patched(api: KubeApi) -> None:
    await api.post(api.events, _event(api, "p.1"))
    response = await api.patch(f"{api.events}/p.1", {"count": 2, "lastTimestamp": "2026-01-01T12:01:00Z"})
    assert (response["count"], response["lastTimestamp"]) == (2, "2026-01-01T12:01:00Z")


async def test_an_event_must_be_in_the_namespace_of_its_object(api: KubeApi) -> None:
    elsewhere = {"kind": "Pod", "namespace": "default", "name": "p"}
    response = await api.post(api.events, _event(api, "p.1", involvedObject=elsewhere))
    assert response.refusal == (422, "Invalid")
    assert response["details"]["causes"][0]["field"] == "involvedObject.namespace"
