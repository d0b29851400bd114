from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest

from gas.extender.admission.review import (
    BadReview,
    ReviewResult,
    decode_object,
    decode_review,
    encode_result,
)
from gas.objects.json_patch import Operation
from gas.objects.stored import NewPod
from tests.extender.admission.reviews import UID, review, review_json


def test_a_review_is_decoded() -> None:
    decoded = review(
        {"a": 1}, old={"b": 2}, group="apps", resource="deployments", operation="UPDATE", user="bob", dry_run=True
    )
    assert (decoded.uid, decoded.operation, decoded.user, decoded.dry_run) == (UID, "UPDATE", "bob", True)
    assert (decoded.namespace, decoded.name) == ("default", "pod")
    assert (bytes(decoded.new), bytes(decoded.old)) == (b'{"a": 1}', b'{"b": 2}')
    assert decoded.target == "apps/deployments"
    assert review(subresource="binding").target == "pods/binding"


def test_a_review_without_what_may_be_missing_is_decoded() -> None:
    bare = {"uid": "1", "resource": {"resource": "pods"}, "operation": "DELETE"}
    wire = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": bare}
    decoded = decode_review(json.dumps(wire).encode())
    assert (decoded.namespace, decoded.user, decoded.dry_run, bytes(decoded.new)) == ("", "", False, b"")


def test_the_longest_names_are_decoded_and_longer_users_are_cut() -> None:
    decoded = review({}, name="n" * 253, namespace="m" * 253, user="u" * 1025)
    assert (decoded.name, decoded.namespace, decoded.user) == ("n" * 253, "m" * 253, "u" * 1024)


def changed(**fields: Any) -> bytes:
    document = review_json({})
    for name, value in fields.items():
        target = document if name in ("apiVersion", "kind", "request") else document["request"]
        target[name] = value
    return json.dumps(document).encode()


BAD_BODIES = [
    pytest.param(b"", "the AdmissionReview cannot be read: ", id="empty"),
    pytest.param(b"hello", "the AdmissionReview cannot be read: ", id="not-json"),
    pytest.param(b"[]", "the AdmissionReview cannot be read: Expected `object`, got `array`", id="array"),
    pytest.param(changed()[:-30], "the AdmissionReview cannot be read: Input data was truncated", id="truncated"),
    pytest.param(changed() + b"{}", "the AdmissionReview cannot be read: ", id="two-documents"),
    pytest.param(b"\xff" + changed(), "the AdmissionReview cannot be read: ", id="not-utf-8"),
    pytest.param(
        b'{"request": {"object":' + b"[" * 100_000 + b"]" * 100_000 + b"}}",
        "the AdmissionReview is nested too deeply",
        id="nested",
    ),
    pytest.param(
        changed(kind="Pod", apiVersion="v1"),
        "expected kind AdmissionReview of admission.k8s.io/v1, found 'Pod' of 'v1'",
        id="kind",
    ),
    pytest.param(
        changed(apiVersion="admission.k8s.io/v1beta1"),
        "expected kind AdmissionReview of admission.k8s.io/v1, found 'AdmissionReview' of 'admission.k8s.io/v1beta1'",
        id="version",
    ),
    pytest.param(changed(request=None), "the review has no request", id="response-only"),
    pytest.param(changed(uid=""), "request.uid: expected 1 to 128 characters, found ''", id="no-uid"),
    *(
        pytest.param(
            changed(**{field: "x" * 254}),
            f"request.{field}: expected at most 253 characters, found 'xx",
            id=f"long-{field}",
        )
        for field in ("name", "namespace", "subResource")
    ),
    pytest.param(
        changed(resource={"resource": "x" * 254}),
        "request.resource.resource: expected at most 253 characters, found 'xx",
        id="long-resource",
    ),
    pytest.param(
        changed(resource={"group": "x" * 254, "resource": "pods"}),
        "request.resource.group: expected at most 253 characters, found 'xx",
        id="long-group",
    ),
    pytest.param(changed(uid="x" * 129), "request.uid: expected 1 to 128 characters, found 'xx", id="long-uid"),
    pytest.param(
        changed(operation="PATCH"),
        "request.operation: expected CREATE, UPDATE, DELETE or CONNECT, found 'PATCH'",
        id="operation",
    ),
    pytest.param(
        changed(resource={}), "request.resource.resource: expected the name of a resource, found nothing", id="resource"
    ),
    pytest.param(changed(dryRun="yes"), "the AdmissionReview cannot be read: Expected `bool`", id="type"),
]


@pytest.mark.parametrize(("body", "sentence"), BAD_BODIES)
def test_a_body_that_is_not_a_review_is_refused_with_a_sentence(body: bytes, sentence: str) -> None:
    with pytest.raises(BadReview) as bad:
        decode_review(body)
    assert str(bad.value).startswith(sentence)


@pytest.mark.parametrize(
    ("new", "sentence"),
    [
        (None, "request.object: expected an object, found nothing"),
        (1, "request.object cannot be read: Expected `object`, got `int`"),
        ({"spec": {"containers": 1}}, "request.object cannot be read: Expected `array | null`, got `int`"),
    ],
)
def test_an_object_that_cannot_be_read_is_a_bad_review(new: object, sentence: str) -> None:
    with pytest.raises(BadReview) as bad:
        decode_object(review(new).new, NewPod)
    assert str(bad.value).startswith(sentence)


def test_a_missing_object_is_a_bad_review() -> None:
    with pytest.raises(BadReview, match=r"^request\.oldObject: expected an object, found nothing$"):
        decode_object(msgspec.Raw(), NewPod, where="request.oldObject")


@pytest.mark.parametrize(
    ("result", "response"),
    [
        (ReviewResult(), {"uid": UID, "allowed": True}),
        (ReviewResult(warnings=("w",)), {"uid": UID, "allowed": True, "warnings": ["w"]}),
        (
            ReviewResult(refusal="no", warnings=("w",)),
            {"uid": UID, "allowed": False, "status": {"message": "no", "code": 403}, "warnings": ["w"]},
        ),
    ],
)
def test_a_result_is_encoded(result: ReviewResult, response: object) -> None:
    assert json.loads(encode_result(review(), result)) == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": response,
    }


def test_a_patch_is_encoded_in_base64() -> None:
    result = ReviewResult(patch=(Operation("add", "/spec/x", "y"),))
    response = json.loads(encode_result(review(), result))["response"]
    assert (response["allowed"], response["patchType"]) == (True, "JSONPatch")
    assert json.loads(base64.b64decode(response["patch"])) == [{"op": "add", "path": "/spec/x", "value": "y"}]
