"""Serve the verbs on the scheduler's port. Checks everything around them and decides nothing."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from starlette.responses import Response
from starlette.types import ASGIApp

from gas.extender.endpoint import MOST_LARGE, JsonEndpoint, Problem, by_path, to_its_end
from gas.extender.metrics import Metrics
from gas.extender.wire import BadRequest, Unreadable, encode_binding_result

logger = logging.getLogger(__name__)

Verb = Callable[[bytes], Awaitable[bytes]]
"""The body of a request -> the body of the response. May raise Unreadable, BadRequest or NotReady."""


@dataclass(frozen=True, slots=True)
class ServedVerb:
    call: Verb
    # the body of the response when a valid request cannot be decided, if it has no field for an error
    undecided: bytes | None = None
    is_undisturbed: bool = False  # whether a request is carried out even if its client goes away


def extender_app(verbs: Mapping[str, ServedVerb], metrics: Metrics, *, max_body: int, body_timeout: float) -> ASGIApp:
    """Return the application that kube-scheduler calls.

    ``verbs`` are by name, which ends the path (``filter`` is served as ``/scheduler/filter``), or by their whole path.

    The status is 404 for an unknown path (that of a part's verb is one while the part is off), for a content type other
    than JSON and for a body that is not JSON, 405 for another method, 408 for a body that is not complete in time, 413
    for one that is too large, and 200 for everything else (contract E10.6 to E10.10). A verb with an ``undecided`` body
    has no field for an error: an invalid request gets the status 400.

    A verb that is not ready ends its connection with the response (``Connection: close``): a Service chooses among the
    replicas for each new connection only, so the next request can reach the replica that leads. No other connection
    is touched, since a request may be in progress on it.
    """
    large = asyncio.Semaphore(MOST_LARGE)
    endpoints: dict[str, _VerbEndpoint] = {}
    for path, verb in verbs.items():
        name = path.rpartition("/")[2]
        endpoints[path if path.startswith("/") else f"/scheduler/{path}"] = _VerbEndpoint(
            name, metrics.requests, metrics.request_seconds.labels(name), max_body, body_timeout, large, verb
        )
    return by_path(
        endpoints,
        _Json(encode_binding_result(error="unknown path: expected /scheduler/filter or /scheduler/bind"), 404),
    )


class _Json(Response):
    media_type = "application/json"


@dataclass(eq=False)
class _VerbEndpoint(JsonEndpoint):
    method_is_checked_first = False
    wrong_content_type = 404
    not_ready = 200
    internal_error = 200
    when_too_large = "; raise --max-request-bytes"
    waits_if_many_are_large = True  # kube-scheduler cannot decide without a response

    verb: ServedVerb

    async def respond(self, body: bytes) -> Response:
        try:
            called = self.verb.call(body)
            return _Json(await (to_its_end(called) if self.verb.is_undisturbed else called))
        except Unreadable as error:
            raise Problem(404, "unreadable", str(error)) from None
        except BadRequest as error:
            raise Problem(200 if self.verb.undecided is None else 400, "bad-request", str(error)) from None

    def problem_response(self, problem: Problem) -> Response:
        if problem.status == 200 and self.verb.undecided is not None:
            logger.warning("%s: nothing was decided: %s", self.what, problem)
            return _Json(self.verb.undecided)
        return _Json(encode_binding_result(error=str(problem)), problem.status)
