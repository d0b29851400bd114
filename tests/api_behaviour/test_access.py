"""Unknown tokens, and users without permission."""

from __future__ import annotations

import pytest

from tests.api_behaviour.client import KubeApi


async def test_an_unknown_token_is_unauthorized(api: KubeApi) -> None:
    headers = {"Authorization": "Bearer an-unknown-token"}
    response = await api.send("GET", api.pods, headers=headers)
    assert response.refusal == (401, "Unauthorized")


@pytest.mark.parametrize(
    ("method", "path", "query", "message"),
    [
        pytest.param(
            "GET",
            "/api/v1/pods",
            {},
            'pods is forbidden: User "USER" cannot list resource "pods" in API group "" at the cluster scope',
            id="list-pods",
        ),
        pytest.param(
            "GET",
            "/api/v1/namespaces/default/pods",
            {"watch": "true"},
            'pods is forbidden: User "USER" cannot watch resource "pods" in API group "" in the namespace "default"',
            id="watch-pods-of-a-namespace",
        ),
        pytest.param(
            "PATCH",
            "/api/v1/nodes/n",
            {},
            'nodes "n" is forbidden: User "USER" cannot patch resource "nodes" in API group "" at the cluster scope',
            id="patch-a-node",
        ),
        pytest.param(
            "POST",
            "/api/v1/namespaces/default/pods/p/binding",
            {},
            'pods "p" is forbidden: User "USER" cannot create resource "pods/binding" in API group "" '
            'in the namespace "default"',
            id="bind",
        ),
        pytest.param(
            "POST",
            "/api/v1/namespaces/default/events",
            {},
            'events is forbidden: User "USER" cannot create resource "events" in API group "" '
            'in the namespace "default"',
            id="create-an-event",
        ),
        pytest.param(
            "GET",
            "/apis/coordination.k8s.io/v1/namespaces/default/leases/l",
            {},
            'leases.coordination.k8s.io "l" is forbidden: User "USER" cannot get resource "leases" '
            'in API group "coordination.k8s.io" in the namespace "default"',
            id="get-a-lease",
        ),
        pytest.param(
            "PUT",
            "/apis/coordination.k8s.io/v1/namespaces/default/leases/l",
            {},
            'leases.coordination.k8s.io "l" is forbidden: User "USER" cannot update resource "leases" '
            'in API group "coordination.k8s.io" in the namespace "default"',
            id="update-a-lease",
        ),
    ],
)
async def test_a_refusal_names_the_missing_permission(
    api: KubeApi, method: str, path: str, query: dict[str, str], message: str
) -> None:
    if api.powerless is None:
        pytest.skip("no user without permissions on this API server: GAS_API_POWERLESS_TOKEN is not set")
    response = await api.send(method, path, {} if method != "GET" else None, query=query, headers=api.powerless)
    assert response.refusal == (403, "Forbidden")
    user = response["message"].split('User "')[1].split('"')[0]
    assert response["message"] == message.replace("USER", user)
