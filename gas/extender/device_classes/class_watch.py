"""Watch DeviceClasses, if the API server has them."""

import asyncio
import contextlib
import logging
from http import HTTPStatus

from gas.cluster import paths
from gas.cluster.connection import ApiServer
from gas.cluster.errors import ApiRefused
from gas.cluster.listing import Lister
from gas.cluster.watch import Watch
from gas.objects.handler import Handler
from gas.objects.stored import DeviceClass
from gas.values.errors import GasError
from gas.values.timing import SYSTEM_TIMING, Timing

logger = logging.getLogger(__name__)

RETRY_PAUSE = 5.0  # seconds until the API server is asked again what it serves
PATIENCE = 3.0  # seconds for which the first decision waits for the classes
LOOK = 0.05  # seconds between two looks whether they are known


class ClassWatch:
    """The watch of DeviceClasses. It begins once the API server has said that it serves them, and ends if it does not.

    Nothing depends on it: without the permission, nodes of DRA drivers are refused, which is logged.
    """

    def __init__(self, api: ApiServer, handler: Handler[DeviceClass], timing: Timing = SYSTEM_TIMING) -> None:
        self._api = api
        self._watch = Watch(Lister(api, paths.DEVICE_CLASSES, DeviceClass), handler, timing=timing)
        self._is_served: bool | None = None  # None until the API server has said it

    async def run(self) -> None:
        noted = ""
        while self._is_served is None:
            try:
                await self._api.request("GET", paths.RESOURCE_API)
                self._is_served = True
            except GasError as error:
                if isinstance(error, ApiRefused) and error.status == HTTPStatus.NOT_FOUND:
                    self._is_served = False
                    logger.info("DeviceClasses are not watched, so nodes of DRA drivers are not used: %s", error)
                    return
                if str(error) != noted:
                    noted = str(error)
                    logger.warning("it is not known yet whether there are DeviceClasses: %s", error)
                await asyncio.sleep(RETRY_PAUSE)
        logger.info("DeviceClasses are watched: nodes of DRA drivers can be used for the resources that they name")
        await self._watch.run()

    async def tried(self) -> None:
        """Wait until the classes are known or cannot be read, at most a few seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while not self._is_over():  # noqa: ASYNC110 -- no event has all of its reasons
                    await asyncio.sleep(LOOK)

    def _is_over(self) -> bool:
        return self._is_served is False or self._watch.synced.is_set() or self._watch.refused is not None
