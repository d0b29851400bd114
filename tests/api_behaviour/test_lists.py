"""Lists: order, pages, versions, selectors."""

from __future__ import annotations

import pytest

from tests.api_behaviour.client import MERGE, KubeApi


async def _pods(api: KubeApi, *names: str) -> None:
    for name in names:
        await api.create_pod(name, metadata={"labels": {"name": name}})


async def test_a_list_is_sorted_by_name_and_has_a_version(api: KubeApi) -> None:
    await _pods(api, "c", "a", "b")
    response = await api.get(api.pods)
    assert (response["kind"], response["apiVersion"]) == ("PodList", "v1")
    assert response.names == ["a", "b", "c"]
    newest = max(int(item["metadata"]["resourceVersion"]) for item in response["items"])
    assert int(response.version) >= newest
    assert "continue" not in response.metadata


async def test_a_list_shows_every_write_before_it(api: KubeApi) -> None:
    for number in range(5):
        await api.create_pod(f"p{number}")
        assert (await api.get(api.pods)).names[-1] == f"p{number}"
    bound = await api.create_pod("q")
    await api.bind("q", "n", uid=bound.metadata["uid"])
    assert (await api.get(api.pods, fieldSelector="spec.nodeName=n")).names == ["q"]
    await api.delete(f"{api.pods}/q", {"gracePeriodSeconds": 0})
    assert "q" not in (await api.get(api.pods)).names


async def test_an_empty_list_has_no_items_but_a_version(api: KubeApi) -> None:
    response = await api.get(api.pods)
    assert response["items"] == []
    assert int(response.version) > 0


async def test_pages_show_one_state_of_the_cluster(api: KubeApi) -> None:
    await _pods(api, "a", "b", "c", "d", "e")
    first = await api.get(api.pods, limit="2")
    assert first.names == ["a", "b"]

    await api.delete(f"{api.pods}/c")
    await api.create_pod("cc")
    await api.patch(f"{api.pods}/d", {"metadata": {"labels": {"name": "changed"}}}, MERGE)

    second = await api.get(api.pods, limit="2", **{"continue": first.metadata["continue"]})
    assert second.names == ["c", "d"]
    assert second["items"][1]["metadata"]["labels"] == {"name": "d"}
    assert second.version == first.version
    third = await api.get(api.pods, limit="2", **{"continue": second.metadata["continue"]})
    assert third.names == ["e"]
    assert "continue" not in third.metadata
    assert (await api.get(api.pods)).names == ["a", "b", "cc", "d", "e"]


async def test_pages_over_all_namespaces_and_with_a_selector(api: KubeApi) -> None:
    for name in ("a", "b", "c"):
        await api.create_pod(name, metadata={"labels": {"of": api.namespace}})
    selector = f"of={api.namespace}"
    first = await api.get("/api/v1/pods", limit="2", labelSelector=selector)
    assert first.names == ["a", "b"]
    token = first.metadata["continue"]
    second = await api.get("/api/v1/pods", limit="2", labelSelector=selector, **{"continue": token})
    assert second.names == ["c"]


async def test_a_page_whose_history_is_gone_is_410_with_a_token_to_go_on(api: KubeApi) -> None:
    if api.compact is None:
        pytest.skip("this API server's history cannot be compacted: GAS_API_COMPACT is not set")
    await _pods(api, "a", "b", "c")
    first = await api.get(api.pods, limit="2")
    await api.create_pod("d")
    await api.compact()
    response = await api.get(api.pods, limit="2", **{"continue": first.metadata["continue"]})
    assert response.refusal == (410, "Expired")
    assert "continue parameter is too old" in response["message"]
    rest = await api.get(api.pods, **{"continue": response.metadata["continue"]})
    assert rest.names == ["c", "d"]


async def test_an_invalid_token_is_a_bad_request(api: KubeApi) -> None:
    response = await api.get(api.pods, limit="2", **{"continue": "garbage"})
    assert response.refusal == (400, "BadRequest")


async def test_a_limit_must_be_a_number(api: KubeApi) -> None:
    assert (await api.get(api.pods, limit="many")).refusal == (400, "BadRequest")


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        pytest.param("color=red", ["one"], id="equal"),
        pytest.param("color==red", ["one"], id="equal-equal"),
        pytest.param("color!=red", ["three", "two"], id="not-equal-holds-without-the-label"),
        pytest.param("color!=red,size=big", ["two"], id="all-must-hold"),
    ],
)
async def test_label_selectors(api: KubeApi, selector: str, names: list[str]) -> None:
    await api.create_pod("one", metadata={"labels": {"color": "red"}})
    await api.create_pod("two", metadata={"labels": {"color": "blue", "size": "big"}})
    await api.create_pod("three")
    assert (await api.get(api.pods, labelSelector=selector)).names == names


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        pytest.param("metadata.name=one", ["one"], id="name"),
        pytest.param("metadata.name!=one", ["three", "two"], id="not-the-name"),
        pytest.param("spec.nodeName=n", ["two"], id="node"),
        pytest.param("spec.nodeName=", ["one", "three"], id="no-node"),
        pytest.param("spec.nodeName!=", ["two"], id="any-node"),
        pytest.param("status.phase=Succeeded", ["three"], id="phase"),
        pytest.param("status.phase!=Succeeded,spec.nodeName=", ["one"], id="both-must-hold"),
        pytest.param("spec.schedulerName=default-scheduler,metadata.name=two", ["two"], id="scheduler"),
    ],
)
async def test_field_selectors(api: KubeApi, selector: str, names: list[str]) -> None:
    for name in ("one", "two", "three"):
        await api.create_pod(name)
    await api.bind("two", "n")
    await api.patch(f"{api.pods}/three/status", {"status": {"phase": "Succeeded"}})
    assert (await api.get(api.pods, fieldSelector=selector)).names == names


@pytest.mark.parametrize(
    "query",
    [
        pytest.param({"fieldSelector": "spec.color=red"}, id="unknown-field"),
        pytest.param({"fieldSelector": "metadata.name"}, id="no-comparison"),
        pytest.param({"labelSelector": "color red"}, id="no-operator"),
    ],
)
async def test_an_invalid_selector_is_a_bad_request(api: KubeApi, query: dict[str, str]) -> None:
    assert (await api.get(api.pods, **query)).refusal == (400, "BadRequest")
