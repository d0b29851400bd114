"""Represent refused requests: the ``Status`` object with code, reason and message that the API server returns.

The sentences are kube-apiserver's own, because clients show them to people and some clients parse them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gas.values.errors import GasError
from sandbox.api.kinds import Kind


@dataclass(frozen=True, slots=True)
class Cause:
    """One invalid field. ``reason`` is FieldValueInvalid, FieldValueRequired, FieldValueForbidden or the like."""

    field: str
    message: str
    reason: str = "FieldValueInvalid"


class ApiFailure(GasError):
    """A refused request, with HTTP status ``code`` and response body ``status``."""

    def __init__(
        self, code: int, reason: str, message: str, details: dict[str, Any] | None = None, token: str | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": token} if token else {},
            "status": "Failure",
            "message": message,
        }
        if reason:
            self.status["reason"] = reason
        if details is not None:
            self.status["details"] = details
        self.status["code"] = code


def details_of(kind: Kind, name: str, subresource: str = "") -> dict[str, Any]:
    plural = f"{kind.plural}/{subresource}" if subresource else kind.plural
    return {**({"name": name} if name else {}), **({"group": kind.group} if kind.group else {}), "kind": plural}


def not_found(kind: Kind, name: str) -> ApiFailure:
    return ApiFailure(404, "NotFound", f'{kind.qualified} "{name}" not found', details_of(kind, name))


def conflict(kind: Kind, name: str, why: str, subresource: str = "") -> ApiFailure:
    """Return the 409 for an object that a request cannot change now."""
    what = f"{kind.qualified}/{subresource}" if subresource else kind.qualified
    message = f'Operation cannot be fulfilled on {what} "{name}": {why}'
    return ApiFailure(409, "Conflict", message, details_of(kind, name, subresource))


def bad_request(message: str) -> ApiFailure:
    return ApiFailure(400, "BadRequest", message)


def invalid(kind: Kind, name: str, causes: Sequence[Cause]) -> ApiFailure:
    """Return a 422 with every cause. ``causes`` must not be empty."""
    sentences = [f"{cause.field}: {cause.message}" for cause in causes]
    joined = sentences[0] if len(sentences) == 1 else f"[{', '.join(sentences)}]"
    what = f"{kind.name}.{kind.group}" if kind.group else kind.name
    details: dict[str, Any] = {
        **({"name": name} if name else {}),
        **({"group": kind.group} if kind.group else {}),
        "kind": kind.name,
        "causes": [{"reason": c.reason, "message": c.message, "field": c.field} for c in causes],
    }
    return ApiFailure(422, "Invalid", f'{what} "{name}" is invalid: {joined}', details)


def method_not_allowed() -> ApiFailure:
    message = "the server does not allow this method on the requested resource"
    return ApiFailure(405, "MethodNotAllowed", message, {})


def throttled() -> ApiFailure:
    """Return the 429 of a server that processes too many requests at the same time."""
    return ApiFailure(429, "TooManyRequests", "Too many requests, please try again later.")


def expired_page(token: str) -> ApiFailure:
    """Return the 410 whose ``token`` lets the client go on from the current state, without consistency."""
    message = (
        "The provided continue parameter is too old to display a consistent list result. "
        "You can start a new list without the continue parameter, or use the continue token in this response."
    )
    return ApiFailure(410, "Expired", message, token=token)
