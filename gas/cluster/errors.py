"""What can go wrong with a request to the API server, sorted by what the caller knows afterwards.

ApiRefused        it answered no: nothing was changed
  Forbidden       it answered 403
ApiUnavailable    no usable answer, and nothing was changed: never sent, or only a question
  OutcomeUnknown  a write was sent and nobody knows whether it was carried out
"""

from __future__ import annotations

import re

import msgspec

from gas.errors import GasError

_RBAC_REFUSAL = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\S+) resource "(?P<resource>[^"]*)"'
    r' in API group "(?P<group>[^"]*)"'
    r'(?: in the namespace "(?P<namespace>[^"]*)")?'
)
_LONGEST_MESSAGE = 1000


class NoCluster(GasError):
    """Neither a service account nor a usable kubeconfig: there is no API server to talk to."""


class ApiRefused(GasError):
    """The API server answered no. Nothing was changed.

    status   the HTTP status, 300 to 499
    reason   the Status object's word for programs (``Conflict``, ``NotFound``, ``Expired``), maybe empty
    message  the Status object's sentence
    request  what was asked, ``"POST /api/v1/…"``
    """

    def __init__(self, status: int, reason: str, message: str, *, request: str = "a request") -> None:
        super().__init__(f"the API server refused {request}: {status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


class Forbidden(ApiRefused):
    """403. ``missing_permission`` names what to add to our role.

    It is None when something else than RBAC says no: a webhook, a quota, a namespace that is being deleted.
    """

    def __init__(self, reason: str, message: str, *, request: str = "a request") -> None:
        super().__init__(403, reason, message, request=request)
        self.missing_permission: str | None = None
        if (match := _RBAC_REFUSAL.search(message)) is not None:
            self.missing_permission = _permission(match)
            self.args = (
                f"the API server does not let {match['user']} {match['verb']} {match['resource']}: "
                f"give its role {self.missing_permission}",
            )


def _permission(match: re.Match[str]) -> str:
    resource = f'resource "{match["resource"]}"'
    if match["group"]:
        resource += f' of API group "{match["group"]}"'
    scope = f'namespace "{match["namespace"]}"' if match["namespace"] else "the whole cluster"
    return f'the verb "{match["verb"]}" on {resource} in {scope}'


class ApiUnavailable(GasError):
    """No usable answer: cannot connect, timed out, connection died, 5xx. Nothing was changed.

    ``message`` is the server's own sentence of a 5xx answer, else empty.
    """

    def __init__(self, sentence: str, *, message: str = "") -> None:
        super().__init__(sentence)
        self.message = message


class OutcomeUnknown(ApiUnavailable):
    """The same, but of a write that was sent: only reading the object tells whether it was carried out."""


class Status(msgspec.Struct, frozen=True):
    """The body of an API server's error answer, and the object of a watch's ERROR event."""

    code: int | None = None
    reason: str | None = None
    message: str | None = None


_STATUS = msgspec.json.Decoder(Status)


def answer_error(code: int, body: bytes, *, request: str, is_write: bool) -> ApiRefused | ApiUnavailable:
    """The error for an answer that is no success. A body that is no Status is shown as text."""
    try:
        status = _STATUS.decode(body)
    except (msgspec.DecodeError, RecursionError):
        status = Status()
    if not status.message:
        text = " ".join(body[:_LONGEST_MESSAGE].decode(errors="replace").split())
        shown = "".join(letter for letter in text if letter.isprintable())
        status = Status(reason=status.reason, message=shown[:200])
    return status_error(
        Status(code=code, reason=status.reason, message=status.message), request=request, is_write=is_write
    )


def status_error(status: Status, *, request: str, is_write: bool = False) -> ApiRefused | ApiUnavailable:
    """The error that a Status stands for; from 500 on, or without a code, the server itself is at fault."""
    code = status.code or 500
    reason = status.reason or ""
    message = (status.message or "the answer says no more")[:_LONGEST_MESSAGE]
    if code == 403:
        return Forbidden(reason or "Forbidden", message, request=request)
    if code < 500:
        return ApiRefused(code, reason, message, request=request)
    kind = OutcomeUnknown if is_write else ApiUnavailable
    return kind(f"the API server failed at {request}: {code} {reason}: {message}", message=message)
