"""Elect one leader among several replicas by a Lease that the leader keeps renewing."""

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from gas.cluster import paths
from gas.cluster.connection import ApiServer
from gas.cluster.errors import ApiRefused, ApiUnavailable, Forbidden
from gas.values.errors import UNDECODABLE, GasError
from gas.values.timing import SYSTEM_TIMING, Timing

logger = logging.getLogger(__name__)

_FORBIDDEN_PAUSE = 10.0


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """The time limits of one Lease in seconds, each longer than the next."""

    duration: float = 15.0  # after which another replica may take a Lease that has not changed
    renew_deadline: float = 10.0  # after which a leader that cannot renew the Lease stops
    retry_period: float = 2.0  # between two attempts


class _Spec(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """The spec of a Lease. Its times are for people and are never compared."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _Lease(msgspec.Struct, rename="camel", frozen=True):
    metadata: msgspec.Raw
    """Sent back unchanged: its resourceVersion makes the API server refuse to overwrite another replica's change."""
    spec: _Spec = _Spec()
    kind: str = "Lease"
    api_version: str = "coordination.k8s.io/v1"


_LEASE = msgspec.json.Decoder(_Lease)


class LeaderElection:
    """Take the Lease when it is free, renew it, and stop leading in time when that fails.

        waiting --(free, or unchanged for its duration)--> leading
           ^------------(not renewed for renew_deadline)------'

    A replica measures how long a Lease has not changed by its own monotonic clock, from the moment it first saw that
    state, so the clocks of machines are never compared. A leader stops ``duration - renew_deadline`` seconds
    before another replica may start.

    identity   name of this process, unique among all that ever run; a host's name alone is not enough
    on_change  called with the new value whenever `leads` has changed
    refused    what permission is missing, as a sentence, while the API server forbids the Lease; else None
    holder     identity of the holder when the Lease was last read; empty if there is none
    """

    def __init__(
        self,
        api: ApiServer,
        namespace: str,
        name: str = "gas-extender",
        *,
        identity: str,
        times: LeaseTimes | None = None,
        on_change: Callable[[bool], None] = lambda leads: None,
        timing: Timing = SYSTEM_TIMING,
    ) -> None:
        self.identity = identity
        self.refused: str | None = None
        self.holder = ""
        self._api = api
        self._path = paths.lease(namespace, name)
        self._collection = paths.leases(namespace)
        self._metadata = msgspec.Raw(msgspec.json.encode({"name": name, "namespace": namespace}))
        self._times = times or LeaseTimes()
        self._on_change = on_change
        self._timing = timing
        self._clock = timing.monotonic
        self._renewed: float | None = None
        self._seen: bytes | None = None
        self._seen_at = 0.0
        self._announced = False
        self._expiry: asyncio.TimerHandle | None = None
        self._lock = asyncio.Lock()
        self._released = False

    @property
    def leads(self) -> bool:
        return self._renewed is not None and self._clock() - self._renewed < self._times.renew_deadline

    async def run(self) -> None:
        while not self._released:
            pause = self._times.retry_period
            try:
                async with self._lock:
                    if not self._released:
                        await self._acquire_or_renew()
                self.refused = None
            except Forbidden as error:
                pause = max(pause, _FORBIDDEN_PAUSE)
                if self.refused is None:
                    logger.error("cannot take part in leader election: %s", error)
                self.refused = str(error)
            except GasError as error:
                logger.info("cannot take or renew the lease: %s", error)
            except Exception:
                logger.exception("cannot take or renew the lease")
            self._announce()
            await asyncio.sleep(pause if self.leads else pause * self._timing.spread(1.0, 1.2))

    async def release(self) -> None:
        """Stop leading and give up the Lease, so that another replica can take it at once. Raises no GasError."""
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
                logger.warning("cannot give up the lease, it will expire instead: %s", error)

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
        if not self.holder or self._has_expired(lease):
            await self._take("PUT", self._path, lease)

    def _has_expired(self, lease: _Lease) -> bool:
        """Return whether the Lease has not changed for as long as it lasts."""
        state = bytes(lease.metadata)
        if state != self._seen:
            self._seen, self._seen_at = state, self._clock()
        return self._clock() - self._seen_at >= (lease.spec.lease_duration_seconds or self._times.duration)

    async def _take(self, method: str, path: str, lease: _Lease) -> None:
        now = self._timing.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        ours = lease.spec.holder_identity == self.identity
        spec = msgspec.structs.replace(
            lease.spec,
            holder_identity=self.identity,
            lease_duration_seconds=math.ceil(self._times.duration),
            acquire_time=(lease.spec.acquire_time or now) if ours else now,
            renew_time=now,
            lease_transitions=(lease.spec.lease_transitions or 0) + (not ours and method == "PUT"),
        )
        # Time before the request: other replicas count from when they see the write, which cannot be earlier.
        started = self._clock()
        try:
            await self._write(method, path, _Lease(lease.metadata, spec))
        except ApiRefused as error:
            if error.status != 409:
                raise
            logger.debug("another replica was faster to take the lease")
            return
        self._renewed = started
        self.holder = self.identity
        self._announce()
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry = asyncio.get_running_loop().call_later(self._times.renew_deadline, self._announce)

    async def _read(self) -> _Lease | None:
        try:
            body = await self._api.request("GET", self._path, timeout=self._times.renew_deadline / 2, urgent=True)
        except ApiRefused as error:
            if error.status == 404:
                return None
            raise
        try:
            return _LEASE.decode(body)
        except UNDECODABLE as error:
            raise ApiUnavailable(f"expected a Lease from GET {self._path}, found something else: {error}") from error

    async def _write(self, method: str, path: str, lease: _Lease) -> None:
        body = msgspec.json.encode(lease)
        await self._api.request(method, path, body=body, timeout=self._times.renew_deadline / 2, urgent=True)

    def _announce(self) -> None:
        leads = self.leads
        if leads == self._announced:
            return
        self._announced = leads
        logger.info("this replica leads" if leads else "this replica no longer leads")
        self._on_change(leads)
