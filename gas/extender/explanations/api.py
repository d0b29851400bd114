"""Serve explanations of waiting pods as an aggregated API, ``/apis/explain.gas/v1alpha1``.

The API server authenticates the user, and proves by a client certificate that a request and its headers come from it.
Here it is checked that the user may get the pod. The response has nothing of other pods and nodes but numbers.
"""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import unquote

import msgspec
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from gas.cluster import paths
from gas.cluster.errors import ApiRefused, ApiUnavailable
from gas.cluster.objects import decode_object, get_pod, may_access
from gas.daemon.listening import ListeningSocket
from gas.daemon.serving import PLAIN_KEEP_ALIVE, Port, serve
from gas.extender.filter import in_turns
from gas.extender.part import Core
from gas.extender.tls import BadCertificate, CertificateFiles, CertificateFlags, ServingCertificates
from gas.objects.stored import Pod
from gas.values.errors import GasError
from gas.vocabularies.protocol import BadNeed

logger = logging.getLogger(__name__)

GROUP, VERSION = "explain.gas", "v1alpha1"
KIND = "PodExplanation"
_AUTHENTICATION = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
_AUTHORITY = "requestheader-client-ca-file"
_NAMES = "requestheader-allowed-names"
_PREFIXES = "requestheader-extra-headers-prefix"
_LISTS = {_NAMES, _PREFIXES, *(f"requestheader-{kind}-headers" for kind in ("username", "group", "uid"))}

CHECK_INTERVAL = 60.0  # seconds between two looks at which certificates the API server presents
MOST_AT_ONCE = 8  # Requests in progress. Each costs the API server two, and the extender a decision on all nodes.
GRACE = 1.0  # seconds for requests in progress when the program ends


class _Data(msgspec.Struct, frozen=True):
    data: dict[str, str] = {}


class Refused(GasError):
    """A request that is not carried out, with the status of HTTP and the reason of Kubernetes' Status object."""

    def __init__(self, status: int, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.reason = reason


class ExplanationApi:
    def __init__(self, core: Core, opened: ListeningSocket) -> None:
        self._core = core
        self._socket = opened
        self._front: Mapping[str, str] = {}
        self._in_progress = 0

    async def run(self) -> None:
        tls = await self._certificates()
        port = Port(app=self, socket=self._socket, tls=tls, keep_alive=PLAIN_KEEP_ALIVE)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(tls.watch())
            tasks.create_task(self._keep_learning())
            tasks.create_task(serve([port], asyncio.Event(), graceful_timeout=GRACE))

    async def _certificates(self) -> ServingCertificates:
        """Return the certificates to serve with, as soon as the API server's authority can be used."""
        flags = self._core.flags
        files = CertificateFiles(
            flags.cert,
            flags.key,
            Path(_AUTHENTICATION),
            CertificateFlags(cacert=_AUTHORITY, names=_NAMES),
            lambda: self._front.get(_AUTHORITY, ""),
        )
        while True:
            await self._learn()
            try:
                return ServingCertificates(files, self._core.metrics, allowed_names=frozenset(self._listed(_NAMES)))
            except BadCertificate as bad:
                logger.error("--explain-port is not served yet: %s", bad)
            await asyncio.sleep(CHECK_INTERVAL)

    async def _keep_learning(self) -> None:
        while True:
            await asyncio.sleep(CHECK_INTERVAL)
            await self._learn()

    async def _learn(self) -> None:
        """Read which certificates the API server presents, and in which headers it names the user."""
        try:
            body = await self._core.api.request("GET", _AUTHENTICATION)
            front = decode_object(body, _Data, request=f"GET {_AUTHENTICATION}").data
            for name in front.keys() & _LISTS:
                msgspec.json.decode(front[name], type=list[str])
            self._front = front
        except (ApiRefused, ApiUnavailable, msgspec.DecodeError) as error:
            logger.warning("cannot read how the API server proves who it is: %s", error)

    def _listed(self, name: str) -> list[str]:
        found: list[str] = json.loads(self._front.get(name) or "[]")
        return found

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            response = JSONResponse(await self._document(scope))
        except Refused as refused:
            response = _status(refused.status, refused.reason, str(refused))
        except (ApiRefused, ApiUnavailable) as error:
            response = _status(503, "ServiceUnavailable", str(error))
        await response(scope, receive, send)

    async def _document(self, scope: Scope) -> Mapping[str, object]:
        if scope["method"] != "GET":
            raise Refused(405, "MethodNotAllowed", f"expected GET, found {scope['method']}")
        match scope["path"].strip("/").split("/"):
            case ["apis", "explain.gas", "v1alpha1"]:
                pods = {"name": "pods", "singularName": "pod", "namespaced": True, "kind": KIND, "verbs": ["get"]}
                found = {"groupVersion": f"{GROUP}/{VERSION}", "resources": [pods]}
                return {"kind": "APIResourceList", "apiVersion": "v1", **found}
            case ["apis", "explain.gas", "v1alpha1", "namespaces", namespace, "pods", name]:
                return await self._for_user(Headers(scope=scope), namespace, name)
        raise Refused(404, "NotFound", "unknown path")

    async def _for_user(self, headers: Headers, namespace: str, name: str) -> Mapping[str, object]:
        if self._in_progress >= MOST_AT_ONCE:
            raise Refused(429, "TooManyRequests", "too many explanations are being made; try again")
        self._in_progress += 1
        try:
            user = self._user(headers)
            wanted = {"verb": "get", "version": "v1", "resource": "pods", "namespace": namespace, "name": name}
            if not await may_access(self._core.api, {**user, "resourceAttributes": wanted}):
                sentence = f'User "{user["user"]}" cannot get resource "pods" in API group "" in the namespace'
                raise Refused(403, "Forbidden", f'{sentence} "{namespace}"')
            if why := self._core.why_not_ready():
                raise Refused(503, "ServiceUnavailable", why)
            if (pod := await get_pod(self._core.api, namespace, name)) is None:
                raise Refused(404, "NotFound", f'pods "{name}" not found')
            explanation = await self._explained(pod)
            metadata = {"namespace": namespace, "name": name}
            return {"kind": KIND, "apiVersion": f"{GROUP}/{VERSION}", "metadata": metadata, **explanation}
        except paths.MalformedName as error:
            raise Refused(400, "BadRequest", str(error)) from None
        finally:
            self._in_progress -= 1

    def _user(self, headers: Headers) -> dict[str, object]:
        """Return the user that the API server names, as a SubjectAccessReview names it."""

        def values(kind: str) -> list[str]:
            names = self._listed(f"requestheader-{kind}-headers")
            return [_utf8(text) for name in names for text in headers.getlist(name)]

        if not (names := values("username")):
            raise Refused(401, "Unauthorized", "the request names no user")
        extra: dict[str, list[str]] = {}
        for prefix in self._listed(_PREFIXES):
            for name, text in headers.items():
                if name.startswith(prefix.lower()):
                    extra.setdefault(unquote(name[len(prefix) :]), []).append(_utf8(text))
        uid = "".join(values("uid")[:1])
        return {"user": names[0], "groups": values("group"), "extra": extra, **({"uid": uid} if uid else {})}

    async def _explained(self, pod: Pod) -> Mapping[str, object]:
        """Return why a pod waits: how many nodes have room, and each reason of the others with how many have it."""
        decider = self._core.decider
        if pod.node_name or pod.is_over:
            return {"reason": "the pod does not wait"}
        try:
            need = decider.need(pod)
        except BadNeed as bad:
            return {"reason": "; ".join((str(bad), *bad.others))}
        faults = decider.faults(pod)
        if not need.wants_cards:
            return {"reason": faults or "the pod asks for no card"}
        names = [name for name, _ in decider.nodes]
        verdicts = await in_turns(decider.verdicts.of(need, names, decider.promises.to_others(pod)))
        refusals = [each.refusal for each in verdicts if each.refusal is not None]
        return {
            "nodes": len(names),
            "passing": len(names) - len(refusals),
            "groups": _groups((str(each), each.only_per_card) for each in refusals),
            "faults": faults,
        }


def _groups(reasons: Iterable[tuple[str, bool]]) -> list[dict[str, object]]:
    """Return the sentences with their numbers, first those of nodes that have what the pod asks for."""
    counted = sorted(Counter(reasons).items(), key=lambda each: (not each[0][1], -each[1], each[0]))
    return [{"reason": text, "nodes": nodes, "hasCards": has} for (text, has), nodes in counted]


def _status(code: int, reason: str, message: str) -> JSONResponse:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    return JSONResponse({**body, "message": message}, code)


def _utf8(header: str) -> str:
    """Return the text of a header as Go sends it; the server has decoded its bytes as Latin-1."""
    return header.encode("latin-1").decode("utf-8", "replace")
