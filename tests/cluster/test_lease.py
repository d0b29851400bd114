from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gas.cluster.connection import ApiServer
from gas.cluster.lease import LeaderElection, LeaseTimes
from gas.values.timing import Timing
from tests.background import eventually
from tests.cluster.moved_clock import Clock
from tests.cluster.scripted_server import ScriptedServer, Seen, Step, answer, connected, hang_up, refuse

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


class LeaseServer:
    """Hold one Lease as an API server does: a write must name the version that is there."""

    def __init__(self) -> None:
        self.lease: dict[str, dict[str, object]] | None = None
        self.version = 0
        self.instead: Step | None = None
        """Answer everything by this."""
        self.instead_of_writes: Step | None = None
        self.holders: list[object] = []

    def put(self, **spec: object) -> None:
        self.version += 1
        metadata: dict[str, object] = {
            "name": "gas-extender",
            "resourceVersion": str(self.version),
            "labels": {"kept": "yes"},
        }
        self.lease = {"metadata": metadata, "spec": spec}
        self.holders.append(spec.get("holderIdentity"))

    @property
    def holder(self) -> object:
        return None if self.lease is None else self.lease["spec"].get("holderIdentity")

    def route(self, seen: Seen) -> Step:
        if self.instead is not None:
            return self.instead
        if seen.method == "GET":
            assert seen.path == f"{LEASES}/gas-extender"
            return refuse(404, "NotFound") if self.lease is None else answer(200, self.lease)
        if self.instead_of_writes is not None:
            return self.instead_of_writes
        return self.write(seen)

    def write(self, seen: Seen) -> Step:
        body = json.loads(seen.body)
        assert (body["apiVersion"], body["kind"]) == ("coordination.k8s.io/v1", "Lease")
        if seen.method == "POST":
            if self.lease is not None:
                return refuse(409, "AlreadyExists")
            assert seen.path == LEASES
            assert body["metadata"] == {"name": "gas-extender", "namespace": "default"}
        else:
            if self.lease is None or body["metadata"] != self.lease["metadata"]:
                return refuse(409, "Conflict")
            assert seen.path == f"{LEASES}/gas-extender"
        self.put(**body["spec"])
        return answer(200, self.lease)


class Candidate:
    """One replica with a clock of its own; it tries every 10 ms while the clock stands still."""

    def __init__(self, api: ApiServer, identity: str, clock: Clock) -> None:
        self.clock = clock
        self.changes: list[bool] = []
        self.election = LeaderElection(
            api,
            "default",
            identity=identity,
            times=LeaseTimes(duration=15, renew_deadline=10, retry_period=0.01),
            on_change=self.changes.append,
            timing=Timing(monotonic=clock),
        )
        self.task = asyncio.create_task(self.election.run())

    @property
    def leads(self) -> bool:
        return self.election.leads


class Scene:
    def __init__(self, api: ApiServer, lease: LeaseServer, server: ScriptedServer) -> None:
        self.api = api
        self.lease = lease
        self.server = server
        self.candidates: list[Candidate] = []

    def candidate(self, identity: str, clock: Clock | None = None) -> Candidate:
        candidate = Candidate(self.api, identity, clock or Clock())
        self.candidates.append(candidate)
        return candidate

    async def some_tries(self, count: int = 6) -> None:
        """Until every candidate has certainly looked again."""
        target = len(self.server.seen) + count * max(1, len(self.candidates))
        await eventually(lambda: len(self.server.seen) >= target)


@asynccontextmanager
async def scene(directory: Path) -> AsyncIterator[Scene]:
    lease = LeaseServer()
    server = ScriptedServer(route=lease.route)
    async with server, connected(server.url, directory) as api:
        made = Scene(api, lease, server)
        try:
            yield made
        finally:
            for candidate in made.candidates:
                candidate.task.cancel()
            await asyncio.gather(*(candidate.task for candidate in made.candidates), return_exceptions=True)


async def test_the_first_replica_takes_the_lease_and_keeps_it(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        first = it.candidate("a")
        await eventually(lambda: first.leads)
        second = it.candidate("b")
        for _ in range(5):
            first.clock.now += 9
            second.clock.now += 9
            await it.some_tries()
            assert (first.leads, second.leads) == (True, False)
        assert first.changes == [True]
        assert second.election.holder == "a"
        assert it.lease.lease is not None
        assert it.lease.lease["spec"]["leaseDurationSeconds"] == 15
        assert it.lease.lease["spec"]["leaseTransitions"] == 0


@pytest.mark.parametrize(
    "renew_time",
    [
        pytest.param("2001-01-01T00:00:00.000000Z", id="of-a-machine-whose-clock-is-behind"),
        pytest.param("2999-01-01T00:00:00.000000Z", id="of-a-machine-whose-clock-is-ahead"),
    ],
)
async def test_a_lease_expires_by_our_own_clock_since_its_last_change(tmp_path: Path, renew_time: str) -> None:
    async with scene(tmp_path) as it:
        it.lease.put(holderIdentity="gone", leaseDurationSeconds=15, renewTime=renew_time)
        candidate = it.candidate("a")
        await it.some_tries()
        candidate.clock.now += 14.9
        await it.some_tries()
        assert not candidate.leads
        it.lease.put(holderIdentity="gone", leaseDurationSeconds=15, renewTime=renew_time)
        await it.some_tries()
        candidate.clock.now += 14.9
        await it.some_tries()
        assert not candidate.leads
        candidate.clock.now += 0.2
        await eventually(lambda: candidate.leads)
        assert it.lease.lease is not None
        assert it.lease.lease["spec"]["leaseTransitions"] == 1
        assert it.lease.lease["metadata"]["labels"] == {"kept": "yes"}


async def test_the_duration_in_the_lease_counts(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        it.lease.put(holderIdentity="other", leaseDurationSeconds=60)
        candidate = it.candidate("a")
        await it.some_tries()
        candidate.clock.now += 59
        await it.some_tries()
        assert not candidate.leads
        candidate.clock.now += 2
        await eventually(lambda: candidate.leads)


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(hang_up, id="connections-die"),
        pytest.param(refuse(500), id="the-server-is-at-fault"),
        pytest.param(refuse(409, "Conflict"), id="another-client-keeps-writing-it"),
        pytest.param(refuse(403, "Forbidden"), id="the-permission-was-taken-away"),
    ],
)
async def test_a_leader_that_cannot_renew_stops_before_another_may_start(tmp_path: Path, trouble: Step) -> None:
    async with scene(tmp_path) as it:
        leader = it.candidate("a")
        await eventually(lambda: leader.leads)
        it.lease.instead_of_writes = trouble
        await asyncio.sleep(0.05)
        leader.clock.now += 9
        assert leader.leads
        leader.clock.now += 1.1
        assert not leader.leads


async def test_a_leader_that_cannot_renew_announces_it_and_leads_again_later(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        leader = it.candidate("a")
        await eventually(lambda: leader.leads)
        it.lease.instead = refuse(500)
        await it.some_tries(2)
        leader.clock.now += 11
        await eventually(lambda: leader.changes == [True, False])
        it.lease.instead = None
        await eventually(lambda: leader.changes == [True, False, True])


async def test_the_end_of_leading_is_announced_in_time_while_a_request_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(*args: object, **options: object) -> bytes:
        await asyncio.Event().wait()
        return b""

    lease = LeaseServer()
    changes: list[bool] = []
    async with ScriptedServer(route=lease.route) as server, connected(server.url, tmp_path) as api:
        election = LeaderElection(
            api,
            "default",
            identity="a",
            times=LeaseTimes(duration=1.5, renew_deadline=1.0, retry_period=0.05),
            on_change=changes.append,
        )
        task = asyncio.create_task(election.run())
        await eventually(lambda: election.leads)
        monkeypatch.setattr(api, "request", hang)
        await eventually(lambda: changes == [True, False])
        assert not election.leads
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_leader_that_sees_another_holder_stops_at_once(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        leader = it.candidate("a")
        await eventually(lambda: leader.leads)
        it.lease.put(holderIdentity="b", leaseDurationSeconds=15)
        await eventually(lambda: not leader.leads)
        await eventually(lambda: leader.changes == [True, False])


async def test_one_of_two_replicas_that_try_at_once_leads(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        it.lease.put(holderIdentity="gone", leaseDurationSeconds=15)
        clock = Clock()
        candidates = [it.candidate(name, clock) for name in "abcd"]
        await it.some_tries()
        clock.now += 16
        await eventually(lambda: any(candidate.leads for candidate in candidates))
        await it.some_tries()
        assert sum(candidate.leads for candidate in candidates) == 1
        assert sum(len(candidate.changes) for candidate in candidates) == 1


async def test_a_write_without_a_response_counts_once_the_lease_shows_it(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        original = it.lease.write
        lost = 0

        def write_and_hang_up(seen: Seen) -> Step:
            nonlocal lost
            original(seen)
            lost += 1
            return hang_up if lost == 1 else answer(200, it.lease.lease)

        it.lease.write = write_and_hang_up  # type: ignore[method-assign]  # a server that loses one answer
        candidate = it.candidate("a")
        await eventually(lambda: candidate.leads)
        assert it.lease.holder == "a"
        assert lost >= 2


async def test_a_released_lease_is_taken_at_once(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        clock = Clock()
        first = it.candidate("a", clock)
        await eventually(lambda: first.leads)
        second = it.candidate("b", clock)
        await it.some_tries()
        await first.election.release()
        assert not first.leads
        assert first.changes == [True, False]
        await eventually(lambda: second.leads)
        await asyncio.wait_for(first.task, 10)
        assert it.lease.holder == "b"
        assert None in it.lease.holders


async def test_a_replica_that_does_not_lead_releases_nothing(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        it.lease.put(holderIdentity="other", leaseDurationSeconds=15)
        candidate = it.candidate("a")
        await it.some_tries()
        await candidate.election.release()
        assert it.lease.holders == ["other"]


async def test_release_stops_leading_while_the_api_server_is_unavailable(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        leader = it.candidate("a")
        await eventually(lambda: leader.leads)
        it.lease.instead = refuse(500)
        await leader.election.release()
        assert not leader.leads
        it.lease.instead = None
        await asyncio.sleep(0.1)
        assert not leader.leads


async def test_a_missing_permission_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    message = (
        'leases.coordination.k8s.io "gas-extender" is forbidden: User "gas" cannot get resource "leases" in API '
        'group "coordination.k8s.io" in the namespace "default"'
    )
    async with scene(tmp_path) as it:
        it.lease.instead = refuse(403, "Forbidden", message)
        candidate = it.candidate("a")
        await eventually(lambda: candidate.election.refused)
        assert 'the verb "get" on resource "leases"' in (candidate.election.refused or "")
        assert not candidate.leads
    assert caplog.text.count('the verb "get" on resource "leases"') == 1


async def test_a_response_that_is_not_a_lease_does_not_lead(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        it.lease.instead = answer(200, b"<html>")
        candidate = it.candidate("a")
        await it.some_tries()
        assert not candidate.leads
