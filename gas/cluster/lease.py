"""Which of several replicas leads: a Lease that the leader keeps renewing."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from gas.cluster import paths
from gas.cluster.backoff import spread
from gas.cluster.connection import ApiServer
from gas.cluster.errors import ApiRefused, ApiUnavailable, Forbidden
from gas.errors import GasError

logger = logging.getLogger(__name__)

_FORBIDDEN_PAUSE = 10.0


class _Spec(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """The part of a Lease that counts; its times are for people, nobody compares them."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _Lease(msgspec.Struct, rename="camel", frozen=True):
    metadata: msgspec.Raw
    """Sent back as it came: its resourceVersion makes the API server refuse a write over somebody else's."""
    spec: _Spec = _Spec()
    kind: str = "Lease"
    api_version: str = "coordination.k8s.io/v1"


_LEASE = msgspec.json.Decoder(_Lease)


class LeaderElection:
    """Takes the Lease when it is free, keeps it while it can, and knows when it must not lead any more.

        waiting --(free, or unchanged for its duration)--> leading
           ^------------(not renewed for renew_deadline)------'

    How long a Lease has not changed is told by one's own monotonic clock from the moment one has seen it, so
    the clocks of machines are never compared. A leader stops ``lease_duration - renew_deadline`` seconds
    before anyone else may start.

    identity        who we are; another one for each process that ever runs, a host's name alone is not enough
    lease_duration, renew_deadline, retry_period  seconds, each longer than the next
    on_change       called with the new value whenever `leads` has changed
    refused         while the API server forbids the Lease: the sentence that says what is missing
    """

    def __init__(
        self,
        api: ApiServer,
        namespace: str,
        name: str = "gas-extender",
        *,
        identity: str,
        lease_duration: float = 15.0,
        renew_deadline: float = 10.0,
        retry_period: float = 2.0,
        on_change: Callable[[bool], None] = lambda leads: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.identity = identity
        self.refused: str | None = None
        self.holder = ""
        """Who holds the Lease, as far as we know; for people."""
        self._api = api
        self._path = paths.lease(namespace, name)
        self._collection = paths.leases(namespace)
        self._metadata = msgspec.Raw(msgspec.json.encode({"name": name, "namespace": namespace}))
        self._duration = lease_duration
        self._deadline = renew_deadline
        self._retry_period = retry_period
        self._on_change = on_change
        self._clock = clock
        self._renewed: float | None = None
        self._seen: bytes | None = None
        self._seen_at = 0.0
        self._announced = False
        self._expiry: asyncio.TimerHandle | None = None
        self._lock = asyncio.Lock()
        self._released = False

    @property
    def leads(self) -> bool:
        """Whether we may act as the leader at this very moment."""
        return self._renewed is not None and self._clock() - self._renewed < self._deadline

    async def run(self) -> None:
        """Until cancelled or released."""
        while not self._released:
            pause = self._retry_period
            try:
                async with self._lock:
                    if not self._released:
                        await self._acquire_or_renew()
                self.refused = None
            except Forbidden as error:
                pause = max(pause, _FORBIDDEN_PAUSE)
                if self.refused is None:
                    logger.error("cannot take part in the election of a leader: %s", error)
                self.refused = str(error)
            except GasError as error:
                logger.info("the lease could not be taken or renewed: %s", error)
            except Exception:
                logger.exception("the lease could not be taken or renewed")
            self._announce()
            await asyncio.sleep(pause if self.leads else pause * spread(1.0, 1.2))

    async def release(self) -> None:
        """Stop leading, then hand the Lease over so that another replica takes it at once. No GasError.

        When the API server cannot be reached the Lease runs out by itself.
        """
        self._released = True
        async with self._lock:
            led, self._renewed = self.leads, None
            self._announce()
            if not led:
                return
            try:
                lease = await self._read()
                if lease is not None and lease.spec.holder_identity == self.identity:
                    free = msgspec.structs.replace(lease.spec, holder_identity=None, lease_duration_seconds=1)
                    await self._write("PUT", self._path, _Lease(lease.metadata, free))
                    self.holder = ""
            except GasError as error:
                logger.warning("the lease could not be handed over and will run out instead: %s", error)

    async def _acquire_or_renew(self) -> None:
        lease = await self._read()
        if lease is None:
            await self._take("POST", self._collection, _Lease(self._metadata))
            return
        self.holder = lease.spec.holder_identity or ""
        if self.holder == self.identity:
            await self._take("PUT", self._path, lease)
            return
        self._renewed = None
        if not self.holder or self._has_run_out(lease):
            await self._take("PUT", self._path, lease)

    def _has_run_out(self, lease: _Lease) -> bool:
        """Whether we have seen nothing of its holder for as long as the Lease lasts."""
        state = bytes(lease.metadata)
        if state != self._seen:
            self._seen, self._seen_at = state, self._clock()
        return self._clock() - self._seen_at >= (lease.spec.lease_duration_seconds or self._duration)

    async def _take(self, method: str, path: str, lease: _Lease) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        ours = lease.spec.holder_identity == self.identity
        spec = msgspec.structs.replace(
            lease.spec,
            holder_identity=self.identity,
            lease_duration_seconds=math.ceil(self._duration),
            acquire_time=(lease.spec.acquire_time or now) if ours else now,
            renew_time=now,
            lease_transitions=(lease.spec.lease_transitions or 0) + (not ours and method == "PUT"),
        )
        # From before the request: others count from when they see the write, which cannot be earlier.
        started = self._clock()
        try:
            await self._write(method, path, _Lease(lease.metadata, spec))
        except ApiRefused as error:
            if error.status != 409:
                raise
            logger.debug("somebody else was faster with the lease")
            return
        self._renewed = started
        self.holder = self.identity
        self._announce()
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry = asyncio.get_running_loop().call_later(self._deadline, self._announce)

    async def _read(self) -> _Lease | None:
        try:
            body = await self._api.request("GET", self._path, timeout=self._deadline / 2, urgent=True)
        except ApiRefused as error:
            if error.status == 404:
                return None
            raise
        try:
            return _LEASE.decode(body)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ApiUnavailable(f"expected a Lease from GET {self._path}, found something else: {error}") from error

    async def _write(self, method: str, path: str, lease: _Lease) -> None:
        body = msgspec.json.encode(lease)
        await self._api.request(method, path, body=body, timeout=self._deadline / 2, urgent=True)

    def _announce(self) -> None:
        leads = self.leads
        if leads == self._announced:
            return
        self._announced = leads
        logger.info("this replica leads" if leads else "this replica does not lead any more")
        self._on_change(leads)
