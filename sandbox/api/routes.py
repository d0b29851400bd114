"""Serve the API over HTTP: authorization, paths, queries and bodies around the verbs."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from sandbox.api.failure import ApiFailure, bad_request, details_of, method_not_allowed
from sandbox.api.kinds import KINDS, PODS, Kind
from sandbox.api.list_watch import Selection, list_page, parse_selection, typed_json, watch_lines
from sandbox.api.storage import Stored
from sandbox.api.verbs import Api


@dataclass(frozen=True, slots=True)
class Access:
    """The attributes of a request by which a real API server decides whether it is allowed."""

    user: str  # from the bearer token; ``admin`` if the server has no tokens
    verb: str  # get, list, watch, create, update, patch or delete
    kind: Kind
    subresource: str = ""  # ``status``, ``binding`` or ""
    namespace: str | None = None  # None for kinds without a namespace and for lists of all namespaces
    name: str = ""

    @property
    def resource(self) -> str:
        return f"{self.kind.plural}/{self.subresource}" if self.subresource else self.kind.plural


Authorize = Callable[[Access], bool]

Intercept = Callable[[Access], Awaitable[ApiFailure | None]]
"""Called before a request is processed; may delay it, or return a failure to send as the response."""


def forbidden(access: Access) -> ApiFailure:
    """Return a 403 with the sentence that kube-apiserver's RBAC uses."""
    what = f'{access.kind.qualified} "{access.name}"' if access.name else access.kind.qualified
    where = f'in the namespace "{access.namespace}"' if access.namespace else "at the cluster scope"
    message = (
        f'{what} is forbidden: User "{access.user}" cannot {access.verb} resource "{access.resource}" '
        f'in API group "{access.kind.group}" {where}'
    )
    return ApiFailure(403, "Forbidden", message, details_of(access.kind, access.name))


_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_TRUE = ("1", "true")

_WATCH_SECONDS = 2700  # default length of a watch; kube-apiserver chooses 30 to 60 minutes


@dataclass(slots=True, kw_only=True)
class Settings:
    """The settings of the routes, which may be changed while the API is served."""

    tokens: Mapping[str, str] | None = None  # users by bearer token; None means that every request is made by ``admin``
    authorize: Authorize = lambda _access: True  # decides which requests are allowed; the others get a 403
    intercept: Intercept | None = None
    stopping: asyncio.Event = field(default_factory=asyncio.Event)  # set to end all open watches
    bookmark_seconds: float = 60  # between the bookmarks of a watch


def api_app(api: Api, settings: Settings) -> Starlette:
    routes = [Route(path, _healthy, methods=["GET"]) for path in ("/healthz", "/livez", "/readyz")]
    routes.append(Route("/version", _version, methods=["GET"]))
    for kind in KINDS:
        routes += _KindRoutes(api, kind, settings).routes()
    return Starlette(routes=routes, exception_handlers={ApiFailure: _refused, HTTPException: _unknown})


class _KindRoutes:
    def __init__(self, api: Api, kind: Kind, settings: Settings) -> None:
        self._api = api
        self._kind = kind
        self._settings = settings

    def routes(self) -> list[Route]:
        kind, every = self._kind, ["GET", "POST", "PUT", "PATCH", "DELETE"]
        inside = f"{kind.root}/namespaces/{{namespace}}/{kind.plural}" if kind.namespaced else ""
        collection = inside or f"{kind.root}/{kind.plural}"
        routes = [
            Route(collection, self._collection, methods=every),
            Route(f"{collection}/{{name}}", partial(self._one, subresource=""), methods=every),
        ]
        if kind.namespaced:
            routes.append(Route(f"{kind.root}/{kind.plural}", self._collection, methods=every))
        if kind.has_status:
            routes.append(
                Route(f"{collection}/{{name}}/status", partial(self._one, subresource="status"), methods=every)
            )
        if kind is PODS:
            routes.append(Route(f"{collection}/{{name}}/binding", self._binding, methods=every))
        return routes

    async def _collection(self, request: Request) -> Response:
        namespace: str | None = request.path_params.get("namespace")
        query = request.query_params
        if request.method == "GET":
            watching = query.get("watch") in _TRUE
            await self._admit(request, "watch" if watching else "list")
            selection = parse_selection(
                self._kind, namespace, query.get("labelSelector", ""), query.get("fieldSelector", "")
            )
            if watching:
                return self._watch(request, selection)
            limit, token = _whole_number(query.get("limit", "")), query.get("continue", "")
            return _json(list_page(self._api.storage, self._kind, selection, limit, token))
        if request.method != "POST" or (self._kind.namespaced and namespace is None):
            raise method_not_allowed()
        sent = _decoded(await request.body())
        await self._admit(request, "create")
        return self._object(self._api.create(self._kind, namespace, sent), 201)

    def _watch(self, request: Request, selection: Selection) -> Response:
        query = request.query_params
        version = query.get("resourceVersion", "")
        if version and not version.isdigit():
            raise ApiFailure(500, "", f'resourceVersion: Invalid value: "{version}": invalid syntax')
        lines = watch_lines(
            self._api.storage,
            self._kind,
            selection,
            version,
            seconds=_whole_number(query.get("timeoutSeconds", "")) or _WATCH_SECONDS,
            stopping=self._settings.stopping,
            bookmark_seconds=self._settings.bookmark_seconds if query.get("allowWatchBookmarks") in _TRUE else None,
        )
        return StreamingResponse(lines, media_type="application/json")

    async def _one(self, request: Request, subresource: str) -> Response:
        if request.method == "POST" or (subresource and request.method == "DELETE"):
            raise method_not_allowed()
        namespace, name = request.path_params.get("namespace"), request.path_params["name"]
        body = await request.body()
        await self._admit(request, _VERBS.get(request.method, "get"), subresource)
        if request.method == "GET":
            return self._object(self._api.get(self._kind, namespace, name))
        if request.method == "PUT":
            return self._object(self._api.update(self._kind, namespace, name, _decoded(body), subresource))
        if request.method == "PATCH":
            content_type = request.headers.get("content-type", "")
            return self._object(self._api.patch(self._kind, namespace, name, (content_type, body), subresource))
        grace = request.query_params.get("gracePeriodSeconds")
        seconds = _whole_number(grace) if grace else None
        before = self._api.get(self._kind, namespace, name)
        left = self._api.delete(self._kind, namespace, name, _decoded(body) if body else {}, seconds)
        uid = before.value["metadata"]["uid"]
        return self._object(left) if left is not None else _success(200, details_of(self._kind, name) | {"uid": uid})

    async def _binding(self, request: Request) -> Response:
        if request.method != "POST":
            raise method_not_allowed()
        sent = _decoded(await request.body())
        await self._admit(request, "create", "binding")
        self._api.bind(request.path_params["namespace"], request.path_params["name"], sent)
        return _success(201)

    async def _admit(self, request: Request, verb: str, subresource: str = "") -> None:
        """Authorize the request. Raises ApiFailure: 401 for an unknown token, 403, or the failure of `Intercept`."""
        params = request.path_params
        user = self._user(request)
        access = Access(user, verb, self._kind, subresource, params.get("namespace"), params.get("name", ""))
        if not self._settings.authorize(access):
            raise forbidden(access)
        intercept = self._settings.intercept
        if intercept is not None and (failure := await intercept(access)) is not None:
            raise failure

    def _user(self, request: Request) -> str:
        tokens = self._settings.tokens
        if tokens is None:
            return "admin"
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if not token:
            return "system:anonymous"
        if scheme != "Bearer" or token not in tokens:
            raise ApiFailure(401, "Unauthorized", "Unauthorized")
        return tokens[token]

    def _object(self, stored: Stored, code: int = 200) -> Response:
        return _json(typed_json(self._kind, stored), code)


def _decoded(body: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise bad_request(f"the object provided is unrecognized: json parse error: {error}") from error


def _whole_number(text: str) -> int:
    """Parse a number of the query; 0 if it is absent."""
    if text and not (text.isascii() and text.isdigit()):
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return int(text or 0)


def _json(body: bytes, code: int = 200) -> Response:
    return Response(body, code, media_type="application/json")


def _success(code: int, details: dict[str, Any] | None = None) -> Response:
    status: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return _json(msgspec.json.encode(status | ({"details": details} if details else {"code": code})), code)


def _refuse(failure: ApiFailure) -> Response:
    if failure.code == 429:  # kube-apiserver sends no Status: its filter runs before anything that knows one
        return PlainTextResponse(f"{failure}\n", failure.code, headers={"Retry-After": "1"})
    return _json(msgspec.json.encode(failure.status), failure.code)


async def _refused(_request: Request, failure: Exception) -> Response:
    if not isinstance(failure, ApiFailure):
        raise failure
    return _refuse(failure)


async def _unknown(_request: Request, failure: Exception) -> Response:
    if isinstance(failure, HTTPException) and failure.status_code == 405:
        return _refuse(method_not_allowed())
    return _refuse(ApiFailure(404, "NotFound", "the server could not find the requested resource", {}))


async def _healthy(_request: Request) -> Response:
    return PlainTextResponse("ok")


async def _version(_request: Request) -> Response:
    return _json(msgspec.json.encode({"major": "1", "minor": "35", "gitVersion": "v1.35.4"}))
