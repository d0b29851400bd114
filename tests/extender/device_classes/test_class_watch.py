"""DeviceClasses are watched where the API server has them, and nothing waits for them in vain."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from gas.cluster import paths
from gas.cluster.connection import ApiServer
from gas.cluster.errors import ApiRefused, ApiUnavailable, Forbidden
from gas.extender.device_classes import class_watch
from gas.extender.device_classes.class_watch import ClassWatch
from gas.extender.device_classes.device_classes import DeviceClasses
from tests.extender.decider import following

I915 = "gpu.intel.com/i915"
CLASSES = {
    "metadata": {"resourceVersion": "1"},
    "items": [{"metadata": {"name": "gpu", "uid": "u"}, "spec": {"extendedResourceName": I915}}],
}


class Api:
    """Respond to each path with the next of its outcomes, and with the last one from then on."""

    def __init__(self, *discovery: object, classes: object = CLASSES) -> None:
        self.outcomes: dict[str, list[Any]] = {paths.RESOURCE_API: list(discovery), paths.DEVICE_CLASSES: [classes]}

    async def request(self, _method: str, path: str, **_options: object) -> bytes:
        await asyncio.sleep(0)
        found = self.outcomes[path]
        outcome = found.pop(0) if len(found) > 1 else found[0]
        if isinstance(outcome, Exception):
            raise outcome
        return json.dumps(outcome).encode()

    @asynccontextmanager
    async def stream(self, _path: str, **_options: object) -> AsyncIterator[AsyncIterator[bytes]]:
        await asyncio.Event().wait()
        yield cast("AsyncIterator[bytes]", None)


NOT_SERVED = ApiRefused(404, "NotFound", "the server could not find the requested resource")
AWAY = ApiUnavailable("no connection")
UNKNOWN_USER = ApiRefused(401, "Unauthorized", "Unauthorized")
FORBIDDEN = Forbidden("Forbidden", "no")


@pytest.mark.parametrize(
    ("api", "known", "said"),
    [
        pytest.param(Api({}), {I915: "gpu"}, "DeviceClasses are watched", id="served"),
        pytest.param(Api(AWAY, AWAY, {}), {I915: "gpu"}, "not known yet", id="away-at-first"),
        pytest.param(Api(UNKNOWN_USER, FORBIDDEN, {}), {I915: "gpu"}, "not known yet", id="refused-while-it-starts"),
        pytest.param(Api(NOT_SERVED), {}, "nodes of DRA drivers are not used", id="not-served"),
        pytest.param(
            Api({}, classes=FORBIDDEN), {}, "cannot watch /apis/resource.k8s.io/v1/deviceclasses", id="no-right"
        ),
    ],
)
async def test_the_first_decision_waits_until_it_is_clear_what_there_is(
    api: Api, known: dict[str, str], said: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(class_watch, "RETRY_PAUSE", 0.0)
    classes = DeviceClasses(following([]))
    watch = ClassWatch(cast("ApiServer", api), classes)
    running = asyncio.create_task(watch.run())
    async with asyncio.timeout(1.0):
        await watch.tried()
    assert classes.of_resource == known
    assert any(said in line for line in caplog.messages)
    running.cancel()


async def test_an_api_server_that_does_not_respond_holds_no_decision_up_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(class_watch, "PATIENCE", 0.1)
    async with asyncio.timeout(1.0):
        await ClassWatch(cast("ApiServer", Api(AWAY)), DeviceClasses(following([]))).tried()
