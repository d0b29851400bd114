from __future__ import annotations

import json

import pytest

from gas.cluster.errors import (
    ApiRefused,
    ApiUnavailable,
    Forbidden,
    OutcomeUnknown,
    response_error,
)

ACCOUNT = "system:serviceaccount:default:gpu-aware-scheduling-service-account"


@pytest.mark.parametrize(
    ("message", "permission"),
    [
        pytest.param(
            f'pods is forbidden: User "{ACCOUNT}" cannot list resource "pods" in API group "" at the cluster scope',
            'the verb "list" on resource "pods" in the whole cluster',
            id="for-all-namespaces",
        ),
        pytest.param(
            f'leases.coordination.k8s.io "gas" is forbidden: User "{ACCOUNT}" cannot update resource "leases" in '
            'API group "coordination.k8s.io" in the namespace "kube-system"',
            'the verb "update" on resource "leases" of API group "coordination.k8s.io" in namespace "kube-system"',
            id="for-one-namespace-and-a-group",
        ),
        pytest.param(
            'admission webhook "quota.example.org" denied the request: no', None, id="the-refusal-of-a-webhook"
        ),
        pytest.param(
            'events "x" is forbidden: unable to create new content in namespace a because it is being terminated',
            None,
            id="the-refusal-in-a-deleted-namespace",
        ),
    ],
)
def test_forbidden_names_the_missing_permission(message: str, permission: str | None) -> None:
    body = json.dumps({"code": 403, "reason": "Forbidden", "message": message}).encode()
    error = response_error(403, body, request="GET /api/v1/pods", is_write=False)
    assert isinstance(error, Forbidden)
    assert error.missing_permission == permission
    if permission is None:
        assert message in str(error)
    else:
        assert str(error).startswith(f"the API server does not let {ACCOUNT} ")
        assert permission in str(error)


@pytest.mark.parametrize(
    ("status", "is_write", "kind"),
    [
        pytest.param(302, True, ApiRefused, id="a-redirection-changes-nothing"),
        pytest.param(404, True, ApiRefused, id="4xx-changes-nothing"),
        pytest.param(500, False, ApiUnavailable, id="5xx-of-a-question"),
        pytest.param(504, True, OutcomeUnknown, id="5xx-of-a-write-leaves-it-open"),
    ],
)
def test_the_status_of_a_response_selects_the_error(status: int, is_write: bool, kind: type[Exception]) -> None:
    assert type(response_error(status, b"", request="POST /x", is_write=is_write)) is kind


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        pytest.param(b'{"reason":"Conflict","message":"it is bound"}', "409 Conflict: it is bound", id="status"),
        pytest.param(b"<h1>go\x1b[31m\n away</h1>", "<h1>go[31m away</h1>", id="a-page-of-a-proxy"),
        pytest.param(b"\xff\xfe" + b"[" * 5000, "[[[", id="garbage"),
        pytest.param(b"", "no message", id="nothing"),
        pytest.param(b'{"reason":"' + b"x" * 5000 + b'","message":"no"}', f"{'x' * 100}: no", id="a-long-reason"),
        pytest.param(b'{"message":null}', "message", id="null"),
    ],
)
def test_the_sentence_shows_the_body_of_the_response(body: bytes, shown: str) -> None:
    error = response_error(409, body, request="POST /x", is_write=True)
    assert str(error).startswith("the API server refused POST /x: 409 ")
    assert shown in str(error)
    assert str(error).isprintable()
    assert len(str(error)) < 2000
