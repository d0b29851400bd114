"""Decode and encode AdmissionReview, ``admission.k8s.io/v1``."""

from dataclasses import dataclass
from typing import TypeVar

import msgspec

from gas.objects.json_patch import Patch
from gas.values.errors import GasError
from gas.values.quoted import LONGEST_NAME, quoted

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"
CREATE, UPDATE = "CREATE", "UPDATE"
_OPERATIONS = frozenset({CREATE, UPDATE, "DELETE", "CONNECT"})
_LONGEST_UID = 128
_LONGEST_USER = 1024
_REFUSED = 403  # HTTP status that the client gets for an object that is refused


class BadReview(GasError):
    """The body is not an AdmissionReview that can be checked (status 400); the webhook's failure policy decides."""


class _Resource(msgspec.Struct, frozen=True):
    group: str = ""
    resource: str = ""


class _User(msgspec.Struct, frozen=True):
    username: str = ""


class Review(msgspec.Struct, rename="camel", frozen=True):
    """The API server's question about one request. A field that is missing is empty."""

    uid: str = ""
    resource: _Resource = _Resource()
    sub_resource: str = ""  # such as ``binding``; empty for the object itself
    operation: str = ""
    name: str = ""  # empty while the API server has not generated it yet
    namespace: str = ""
    user_info: _User = _User()
    dry_run: bool = False  # whether nothing will be stored, so that nothing may change here either
    new: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw, name="object")
    old: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw, name="oldObject")

    @property
    def target(self) -> str:
        """The resource with its group and subresource: ``pods/binding``, ``apps/deployments``; pods have no group."""
        return "/".join(filter(None, (self.resource.group, self.resource.resource, self.sub_resource)))

    @property
    def user(self) -> str:
        """The client that sent the request; its first 1024 characters."""
        return self.user_info.username[:_LONGEST_USER]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewResult:
    refusal: str = ""  # the sentence for the client whose request is refused; empty if it is allowed
    warnings: tuple[str, ...] = ()  # sentences that the client prints
    patch: Patch = ()


ALLOWED = ReviewResult()


class _Review(msgspec.Struct, rename="camel", frozen=True):
    api_version: str = ""
    kind: str = ""
    request: Review | None = None


_Object = TypeVar("_Object", bound=msgspec.Struct)


def decode_review(body: bytes) -> Review:
    """Decode an AdmissionReview. Raises BadReview with a sentence if it is not one or lacks what every review has."""
    wire = _decoded(body, _Review, "the AdmissionReview")
    if (found := (wire.api_version, wire.kind)) != (API_VERSION, KIND):
        raise BadReview(f"expected kind {KIND} of {API_VERSION}, found {quoted(found[1])} of {quoted(found[0])}")
    request = wire.request
    if request is None:
        raise BadReview("the review has no request")
    if not 0 < len(request.uid) <= _LONGEST_UID:
        raise BadReview(f"request.uid: expected 1 to {_LONGEST_UID} characters, found {quoted(request.uid)}")
    if request.operation not in _OPERATIONS:
        expected = "CREATE, UPDATE, DELETE or CONNECT"
        raise BadReview(f"request.operation: expected {expected}, found {quoted(request.operation)}")
    if not request.resource.resource:
        raise BadReview("request.resource.resource: expected the name of a resource, found nothing")
    for field, text in (
        ("resource.group", request.resource.group),
        ("resource.resource", request.resource.resource),
        ("subResource", request.sub_resource),
        ("name", request.name),
        ("namespace", request.namespace),
    ):
        if len(text) > LONGEST_NAME:
            raise BadReview(f"request.{field}: expected at most {LONGEST_NAME} characters, found {quoted(text)}")
    return request


def decode_object(raw: msgspec.Raw, kind: type[_Object], *, where: str = "request.object") -> _Object:
    """Decode the object of a review. Raises BadReview if it is missing or not of this kind."""
    if bytes(raw) in (b"", b"null"):
        raise BadReview(f"{where}: expected an object, found nothing")
    return _decoded(raw, kind, where)


def encode_result(review: Review, result: ReviewResult) -> bytes:
    response: dict[str, object] = {"uid": review.uid, "allowed": not result.refusal}
    if result.refusal:
        response["status"] = {"message": result.refusal, "code": _REFUSED}
    if result.warnings:
        response["warnings"] = result.warnings
    if result.patch:
        response |= {"patch": msgspec.json.encode(result.patch), "patchType": "JSONPatch"}
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": KIND, "response": response})


def _decoded(raw: bytes | msgspec.Raw, kind: type[_Object], where: str) -> _Object:
    try:
        return msgspec.json.decode(raw, type=kind)
    except RecursionError:
        raise BadReview(f"{where} is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadReview(f"{where} cannot be read: {error}") from None
