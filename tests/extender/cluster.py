"""A cluster in a dictionary, in place of an API server, with outcomes that a test chooses."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

import msgspec

from gas.cluster.errors import ApiRefused, ApiUnavailable, OutcomeUnknown
from gas.objects.stored import Pod


class Outcome(Enum):
    """The outcome of a Binding."""

    WRITTEN = "written"
    REFUSED = "refused"
    NEVER_SENT = "never sent"
    LOST_AFTER_WRITING = "written, but the answer is lost"
    LOST_BEFORE_WRITING = "lost, and not written"


class Cluster:
    """Pods by ``namespace/name`` as JSON, with the verbs that `gas.extender.bind` is given.

    Every change of a pod gives it another resource version.

    outcome    of the next Bindings
    before     is awaited by every Binding before it does anything
    away       while true, the API server cannot be reached
    bindings   the metadata of every Binding that was sent, with ``node``
    asked      every pod that was read
    on_change  is called with the kind of watch event and a pod as it is now
    """

    def __init__(self) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.outcome = Outcome.WRITTEN
        self.before: Callable[[], Any] | None = None
        self.away = False
        self.bindings: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.on_change: Callable[[str, Pod], None] = lambda _type, _pod: None
        self._version = 0

    def add(self, pod: Mapping[str, Any]) -> Pod:
        """Create a pod and report it."""
        key = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        self.pods[key] = copy.deepcopy(dict(pod))
        return self.report("ADDED", key)

    def edit(self, key: str, change: Callable[[dict[str, Any]], None]) -> Pod:
        change(self.pods[key])
        return self.report("MODIFIED", key)

    def annotate(self, key: str, **annotations: str | None) -> Pod:
        """Set annotations, or remove those that are None; ``_`` stands for ``-``."""

        def change(pod: dict[str, Any]) -> None:
            own = pod["metadata"].setdefault("annotations", {})
            for name, text in annotations.items():
                own.pop(name.replace("_", "-"), None)
                if text is not None:
                    own[name.replace("_", "-")] = text

        return self.edit(key, change)

    def end(self, key: str, phase: str = "Succeeded") -> Pod:
        return self.edit(key, lambda pod: pod["status"].update(phase=phase))

    def mark_deleted(self, key: str) -> Pod:
        """Start the grace period of a pod."""
        return self.edit(key, lambda pod: pod["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z"))

    def remove(self, key: str) -> Pod:
        pod = self.report("DELETED", key)
        del self.pods[key]
        return pod

    def pod(self, key: str) -> Pod:
        return msgspec.json.decode(msgspec.json.encode(self.pods[key]), type=Pod)

    def all(self) -> list[Pod]:
        return [self.pod(key) for key in self.pods]

    def report(self, event: str, key: str) -> Pod:
        self._version += 1
        self.pods[key]["metadata"]["resourceVersion"] = str(self._version)
        pod = self.pod(key)
        self.on_change(event, pod)
        return pod

    async def get_pod(self, namespace: str, name: str) -> Pod | None:
        await asyncio.sleep(0)
        key = f"{namespace}/{name}"
        self.asked.append(key)
        if self.away:
            raise ApiUnavailable("cannot connect to the API server")
        return self.pod(key) if key in self.pods else None

    async def bind_pod(self, pod: Pod, node: str, annotations: Mapping[str, str]) -> None:
        metadata = {
            "name": pod.metadata.name,
            "uid": pod.uid,
            "resourceVersion": pod.metadata.resource_version,
            "annotations": dict(annotations),
        }
        self.bindings.append({**metadata, "node": node})
        if self.before is not None:
            await self.before()
        await asyncio.sleep(0)
        outcome = self.outcome
        if outcome is Outcome.REFUSED:
            raise ApiRefused(409, "Conflict", "the object has been modified")
        if outcome is Outcome.NEVER_SENT or self.away:
            raise ApiUnavailable("cannot connect to the API server")
        if outcome is not Outcome.LOST_BEFORE_WRITING:
            self.write_binding(pod.metadata.namespace or "default", {"metadata": metadata, "target": {"name": node}})
        if outcome is not Outcome.WRITTEN:
            raise OutcomeUnknown("the connection to the API server broke")

    async def change_version(self, namespace: str, name: str, uid: str) -> bool:
        """Change a pod as the extender does whose cards for a reviewed Binding have expired."""
        await asyncio.sleep(0)
        key = f"{namespace}/{name}"
        if self.away:
            raise ApiUnavailable("cannot connect to the API server")
        if key not in self.pods or self.pods[key]["metadata"]["uid"] != uid:
            return False
        self.annotate(key, gas_expired_binding=str(self._version))
        return True

    def write_binding(self, namespace: str, binding: Mapping[str, Any]) -> None:
        """Write a Binding as the API server does. Raises ApiRefused."""
        metadata = binding["metadata"]
        key = f"{namespace}/{metadata['name']}"
        if (pod := self.pods.get(key)) is None:
            raise ApiRefused(404, "NotFound", f"pods {key} not found")
        for field, word in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
            if metadata.get(field, "") not in ("", pod["metadata"][field]):
                raise ApiRefused(409, "Conflict", f"Precondition failed: {word}")
        if pod["spec"].get("nodeName") or "deletionTimestamp" in pod["metadata"]:
            raise ApiRefused(409, "Conflict", f"pod {key} cannot be bound")
        pod["spec"]["nodeName"] = binding["target"]["name"]
        pod["metadata"].setdefault("annotations", {}).update(metadata.get("annotations") or {})
        self.report("MODIFIED", key)
