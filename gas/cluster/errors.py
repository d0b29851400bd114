"""Errors of requests to the API server, sorted by what the caller knows afterwards.

ApiRefused        the API server refused the request; nothing was changed
  Forbidden       it refused with 403
ApiUnavailable    there is no usable response, and nothing was changed: the request was not sent, or only read
  OutcomeUnknown  a write was sent, and it may or may not have been carried out
"""

import re

import msgspec

from gas.values.errors import UNDECODABLE, GasError

_RBAC_REFUSAL = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\S+) resource "(?P<resource>[^"]*)"'
    r' in API group "(?P<group>[^"]*)"'
    r'(?: in the namespace "(?P<namespace>[^"]*)")?'
)
LARGEST_RESPONSE = 2**30  # Bytes. A page of a list has 500 objects of at most a few million.
_LONGEST_MESSAGE = 1000
_LONGEST_REASON = 100


class NoCluster(GasError):
    """There is no usable service account and no usable kubeconfig, so there is no API server to talk to."""


class ApiRefused(GasError):
    """The API server refused the request, with a status from 300 to 499. Nothing was changed.

    reason, message  those of the Status object; the reason (``Conflict``, ``NotFound``, ``Expired``) may be empty
    """

    def __init__(self, status: int, reason: str, message: str, *, request: str = "a request") -> None:
        super().__init__(f"the API server refused {request}: {status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


class Forbidden(ApiRefused):
    """The API server refused with 403.

    missing_permission  the verb and resource to add to the account's role; None if the refusal is not from RBAC but
                        from a webhook, a quota or a namespace that is being deleted
    """

    def __init__(self, reason: str, message: str, *, request: str = "a request") -> None:
        super().__init__(403, reason, message, request=request)
        self.missing_permission: str | None = None
        if (match := _RBAC_REFUSAL.search(message)) is not None:
            group = f' of API group "{match["group"]}"' if match["group"] else ""
            scope = f'namespace "{match["namespace"]}"' if match["namespace"] else "the whole cluster"
            resource = f'resource "{match["resource"]}"{group} in {scope}'
            self.missing_permission = f'the verb "{match["verb"]}" on {resource}'
            self.args = (
                f"the API server does not let {match['user']} {match['verb']} {match['resource']}: "
                f"give its role {self.missing_permission}",
            )


class ApiUnavailable(GasError):
    """There is no usable response: no connection, a timeout, a broken connection, 5xx. Nothing was changed.

    message  the server's own sentence of a 5xx response, else empty
    """

    def __init__(self, sentence: str, *, message: str = "") -> None:
        super().__init__(sentence)
        self.message = message


class OutcomeUnknown(ApiUnavailable):
    """A write was sent and its outcome is unknown. Read the object to find out."""


class Status(msgspec.Struct, frozen=True):
    """The body of an error response, and the object of a watch's ERROR event."""

    code: int | None = None
    reason: str | None = None
    message: str | None = None


_STATUS = msgspec.json.Decoder(Status)


def response_error(code: int, body: bytes, *, request: str, is_write: bool) -> ApiRefused | ApiUnavailable:
    """Return the error for a response that is not a success. A body that is not a Status is shown as text."""
    try:
        status = _STATUS.decode(body)
    except UNDECODABLE:
        status = Status()
    message = status.message
    if not message:
        text = " ".join(body[:_LONGEST_MESSAGE].decode(errors="replace").split())
        message = "".join(letter for letter in text if letter.isprintable())[:200]
    return status_error(Status(code, status.reason, message), request=request, is_write=is_write)


def status_error(status: Status, *, request: str, is_write: bool = False) -> ApiRefused | ApiUnavailable:
    """Return the error for a Status. Without a code, and from 500 on, the server itself has failed."""
    code = status.code or 500
    reason = (status.reason or "")[:_LONGEST_REASON]
    message = (status.message or "no message")[:_LONGEST_MESSAGE]
    if code == 403:
        return Forbidden(reason or "Forbidden", message, request=request)
    if code < 500:
        return ApiRefused(code, reason, message, request=request)
    kind = OutcomeUnknown if is_write else ApiUnavailable
    return kind(f"the API server failed at {request}: {code} {reason}: {message}", message=message)
