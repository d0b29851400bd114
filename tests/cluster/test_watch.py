from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gas.cluster.backoff import Backoff
from gas.cluster.listing import Lister
from gas.cluster.watch import Watch
from gas.objects.stored import ObjectId, Pod
from tests.background import eventually
from tests.cluster.scripted_server import (
    ScriptedServer,
    Step,
    answer,
    connected,
    hang,
    hang_up,
    refuse,
    status_object,
    stream,
)

PATH = "/api/v1/pods"


def pod(name: str, version: int, **more: object) -> dict[str, object]:
    return {
        "metadata": {"name": name, "namespace": "shop", "uid": f"uid-{name}", "resourceVersion": str(version)} | more,
        "spec": {"containers": []},
    }


def page(version: int, *items: object, after: str = "") -> Step:
    metadata = {"resourceVersion": str(version)} | ({"continue": after} if after else {})
    return answer(200, {"kind": "PodList", "metadata": metadata, "items": list(items)})


def event(kind: str, obj: object) -> dict[str, object]:
    return {"type": kind, "object": obj}


def bookmark(version: int) -> dict[str, object]:
    # As a real server writes it.
    return event(
        "BOOKMARK", {"metadata": {"resourceVersion": str(version)}, "spec": {"containers": None}, "status": {}}
    )


class Recorder:
    """A handler that records its calls, and raises for objects called ``poison``.

    pages  the names in each part of a list
    """

    def __init__(self) -> None:
        self.calls: list[tuple[str, ...]] = []
        self.pages: list[list[str]] = []
        self.fail_complete = 0

    def listed(self, objects: list[Pod]) -> None:
        self.pages.append([obj.metadata.name for obj in objects])

    def complete(self, listed: list[ObjectId]) -> None:
        if self.fail_complete:
            self.fail_complete -= 1
            raise RuntimeError("cannot take the list")
        self.calls.append(("complete", *(obj.name for obj in listed)))

    def changed(self, obj: Pod) -> None:
        if obj.metadata.name == "poison":
            raise RuntimeError("cannot take the object")
        self.calls.append(("changed", obj.metadata.name))

    def deleted(self, obj: Pod) -> None:
        self.calls.append(("deleted", obj.metadata.name))


@asynccontextmanager
async def watching(
    server: ScriptedServer,
    directory: Path,
    *,
    handler: Recorder | None = None,
    page_size: int = 500,
    field_selector: str | None = None,
    keep: Callable[[Pod], bool] | None = None,
    silence: float = 30.0,
    backoff: Backoff | None = None,
) -> AsyncIterator[tuple[Watch[Pod], Recorder]]:
    async with connected(server.url, directory) as api:
        recorder = handler or Recorder()
        watch = Watch(
            Lister(api, PATH, Pod, page_size=page_size, field_selector=field_selector, keep=keep),
            recorder,
            silence=silence,
            forbidden_pause=0.05,
            backoff=backoff or Backoff(first=0.01, longest=0.05),
        )
        task = asyncio.create_task(watch.run())
        try:
            yield watch, recorder
        finally:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task


def versions(server: ScriptedServer) -> list[str]:
    """Return the requests in order: ``list``, or the version from which a watch continues."""
    return [seen.query["resourceVersion"] if "watch" in seen.query else "list" for seen in server.seen]


async def test_the_complete_list_comes_first_then_every_change_in_order(tmp_path: Path) -> None:
    steps = (
        page(7, pod("a", 1), pod("b", 2), after="p2"),
        page(7, pod("c", 3)),
        stream(
            event("ADDED", pod("d", 8)),
            event("MODIFIED", pod("a", 9)),
            event("DELETED", pod("b", 10)),
            event("DELETED", pod("d", 11)),
        ),
    )
    async with ScriptedServer(*steps) as server, watching(server, tmp_path, page_size=2) as (watch, recorder):
        assert not watch.synced.is_set()
        await eventually(lambda: len(recorder.calls) == 5)
        assert watch.synced.is_set()
        assert recorder.calls == [
            ("complete", "a", "b", "c"),
            ("changed", "d"),
            ("changed", "a"),
            ("deleted", "b"),
            ("deleted", "d"),
        ]
        assert recorder.pages == [["a", "b"], ["c"]]
        assert (watch.relists, watch.broken, watch.undecodable) == (0, 0, 0)
        assert [seen.query for seen in server.seen[:2]] == [{"limit": "2"}, {"limit": "2", "continue": "p2"}]
        query = server.seen[2].query
        assert (query["watch"], query["resourceVersion"], query["allowWatchBookmarks"]) == ("1", "7", "true")
        assert 300 <= int(query["timeoutSeconds"]) <= 600


async def test_the_next_page_is_requested_before_a_page_is_processed() -> None:
    done: list[str] = []
    of_custom_resources = b'{"apiVersion":"v1","items":[],"metadata":{"continue":"p3"}}'  # keys in alphabetical order
    last = b'{"items":[],"metadata":{"resourceVersion":"7"}}'
    pages = iter((b'{"metadata":{"continue":"p2"},"items":[]}', of_custom_resources, last))

    class Pages:
        async def request(
            self, _method: str, _path: str, *, query: Mapping[str, str] | None = None, timeout: float = 0
        ) -> bytes:
            done.append((query or {}).get("continue", "p1"))
            return next(pages)

    def processed(_pods: list[Pod]) -> list[Pod]:
        done.append("processed")
        return []

    listing = await Lister(Pages(), PATH, Pod).fetch_paged(processed)
    assert done == ["p1", "p2", "processed", "p3", "processed", "processed"]
    assert listing.version == "7"


async def test_an_empty_cluster_is_a_complete_list_too(tmp_path: Path) -> None:
    empty = answer(200, {"metadata": {"resourceVersion": "3"}, "items": None})
    async with ScriptedServer(empty) as server, watching(server, tmp_path) as (watch, recorder):
        await watch.synced.wait()
        assert recorder.calls == [("complete",)]


async def test_objects_that_are_not_kept_are_dropped_but_their_versions_count(
    tmp_path: Path,
) -> None:
    steps = (
        page(7, pod("no-a", 1), pod("yes-b", 2), after="p2"),
        page(7, pod("no-c", 3)),
        stream(
            event("ADDED", pod("yes-d", 8)),
            event("MODIFIED", pod("no-a", 9)),
            event("DELETED", pod("yes-b", 10)),
            event("DELETED", pod("no-c", 11)),
            end="clean",
        ),
        stream(),
    )

    def keep(obj: Pod) -> bool:
        return obj.metadata.name.startswith("yes")

    async with ScriptedServer(*steps) as server, watching(server, tmp_path, keep=keep) as (_, recorder):
        await eventually(lambda: len(server.seen) == 4)
        assert recorder.calls == [("complete", "yes-b"), ("changed", "yes-d"), ("deleted", "yes-b")]
        assert versions(server)[-1] == "11"


async def test_a_selector_is_sent_with_list_and_watch(tmp_path: Path) -> None:
    server = ScriptedServer(page(7))
    async with server, watching(server, tmp_path, field_selector="spec.nodeName!="):
        await eventually(lambda: len(server.seen) == 2)
        assert [seen.query["fieldSelector"] for seen in server.seen] == ["spec.nodeName!="] * 2


@pytest.mark.parametrize(
    ("break_off", "broken"),
    [
        pytest.param(stream(event("ADDED", pod("b", 8)), bookmark(12), end="cut"), 1, id="the-connection-is-cut"),
        pytest.param(stream(event("ADDED", pod("b", 8)), bookmark(12), end="clean"), 0, id="the-server-ends-it"),
        pytest.param(stream(event("ADDED", pod("b", 8)), bookmark(12)), 0, id="it-falls-silent"),
    ],
)
async def test_a_watch_continues_from_the_last_version_without_a_new_list(
    tmp_path: Path, break_off: Step, broken: int
) -> None:
    steps = (page(7, pod("a", 1)), break_off, stream(event("ADDED", pod("c", 13))))
    server = ScriptedServer(*steps)
    async with server, watching(server, tmp_path, silence=0.3) as (watch, recorder):
        await eventually(lambda: ("changed", "c") in recorder.calls)
        assert versions(server)[:3] == ["list", "7", "12"]
        assert (watch.relists, watch.broken) == (0, broken)


@pytest.mark.parametrize(
    "gone",
    [
        pytest.param(refuse(410, "Expired", "too old resource version"), id="410-as-answer"),
        pytest.param(stream(event("ERROR", status_object(410, "Expired", "too old"))), id="410-within-the-stream"),
        pytest.param(
            stream(event("ERROR", status_object(410, "Gone", "old") | {"metadata": {}})), id="410-with-metadata"
        ),
        pytest.param(refuse(400, "BadRequest", "invalid resource version"), id="version-makes-no-sense"),
        pytest.param(refuse(504, "Timeout", "Too large resource version: 9, current: 3"), id="data-was-set-back-504"),
        pytest.param(
            stream(event("ERROR", status_object(504, "Timeout", "Too large resource version: 9, current: 3"))),
            id="data-was-set-back-within-the-stream",
        ),
    ],
)
async def test_an_unknown_version_leads_to_a_new_list(tmp_path: Path, gone: Step) -> None:
    steps = (page(7, pod("a", 1), pod("b", 2)), gone, page(20, pod("b", 2)), stream(event("ADDED", pod("c", 21))))
    async with ScriptedServer(*steps) as server, watching(server, tmp_path) as (watch, recorder):
        await eventually(lambda: ("changed", "c") in recorder.calls)
        assert recorder.calls == [("complete", "a", "b"), ("complete", "b"), ("changed", "c")]
        assert versions(server) == ["list", "7", "list", "20"]
        assert watch.relists == 1


async def test_a_list_that_expires_between_pages_starts_again(tmp_path: Path) -> None:
    steps = (
        page(7, pod("a", 1), after="p2"),
        refuse(410, "Expired"),
        page(9, pod("b", 8), after="p2"),
        page(9, pod("c", 9)),
    )
    async with ScriptedServer(*steps) as server, watching(server, tmp_path) as (watch, recorder):
        await watch.synced.wait()
        assert recorder.calls == [("complete", "b", "c")]
        assert recorder.pages == [["a"], ["b"], ["c"]]
        await eventually(lambda: len(server.seen) == 5)
        assert versions(server)[-1] == "9"


async def test_a_list_that_always_expires_is_requested_in_one_piece(tmp_path: Path) -> None:
    again = (page(7, pod("a", 1), after="p2"), refuse(410, "Expired"))
    steps = (*again, *again, page(9, pod("a", 1), pod("b", 8)))
    async with ScriptedServer(*steps) as server, watching(server, tmp_path) as (watch, recorder):
        await watch.synced.wait()
        assert recorder.calls == [("complete", "a", "b")]
        assert server.seen[4].query == {}


async def test_lines_of_any_length_arrive_in_any_pieces(tmp_path: Path) -> None:
    long = event("ADDED", pod("long", 8, annotations={"x": "y" * 3_000_000}))
    whole = b"".join(json.dumps(one).encode() + b"\n" for one in (long, event("ADDED", pod("b", 9)), bookmark(10)))
    pieces = [whole[at : at + 700_001] for at in range(0, len(whole), 700_001)]
    steps = (page(7), stream(*pieces, b"\n", b'{"type":"DELETED",', b'"object":{"metadata":{"name":"b"}}}\n'))
    async with ScriptedServer(*steps) as server, watching(server, tmp_path) as (watch, recorder):
        await eventually(lambda: len(recorder.calls) == 4)
        assert recorder.calls[1:] == [("changed", "long"), ("changed", "b"), ("deleted", "b")]
        assert watch.undecodable == 0


@pytest.mark.parametrize(
    ("line", "goes_on_from"),
    [
        pytest.param(event("MODIFIED", pod("bad", 8, labels={"a": {}})), "8", id="object-of-a-wrong-type"),
        pytest.param(event("STRANGE", pod("bad", 8)), "7", id="event-of-an-unknown-type"),
        pytest.param(b"{]\n", "7", id="no-json"),
        pytest.param(b'{"type":"ADDED","object":"\xff\xfe"}\n', "7", id="no-text"),
        pytest.param(
            b'{"type":"ADDED","object":{"metadata":{"resourceVersion":"8","name":"\xff"}}}\n', "7", id="no-text-in-it"
        ),
        pytest.param(b'{"type":"ADDED","object":' + b"[" * 100_000 + b"\n", "7", id="nested-without-end"),
        pytest.param(b"null\n", "7", id="null"),
    ],
)
async def test_a_line_that_cannot_be_decoded_is_skipped_and_counted(
    tmp_path: Path, line: object, goes_on_from: str, caplog: pytest.LogCaptureFixture
) -> None:
    steps = (page(7), stream(line, end="clean"), stream(event("ADDED", pod("a", 9))))
    async with ScriptedServer(*steps) as server, watching(server, tmp_path) as (watch, recorder):
        await eventually(lambda: len(recorder.calls) == 2)
        assert recorder.calls == [("complete",), ("changed", "a")]
        assert versions(server)[:3] == ["list", "7", goes_on_from]
        assert (watch.undecodable, watch.relists) == (1, 0)
    assert "cannot be decoded" in caplog.text


async def test_a_deletion_that_cannot_be_decoded_leads_to_a_new_list(tmp_path: Path) -> None:
    bad = event("DELETED", pod("a", 8, labels={"a": {}}))
    steps = (page(7, pod("a", 1)), stream(bad), page(9))
    async with ScriptedServer(*steps) as server, watching(server, tmp_path) as (watch, recorder):
        await eventually(lambda: len(recorder.calls) == 2)
        assert recorder.calls == [("complete", "a"), ("complete",)]
        assert (watch.undecodable, watch.relists, watch.faults) == (1, 1, 0)


async def test_an_object_of_the_list_that_cannot_be_decoded_is_left_out_and_counted(tmp_path: Path) -> None:
    for bad in (json.dumps(pod("bad", 2, labels=[])).encode(), b'{"metadata":{"name":"\xff"}}'):
        items = b",".join((json.dumps(pod("a", 1)).encode(), bad, json.dumps(pod("c", 3)).encode()))
        steps = (answer(200, b'{"metadata":{"resourceVersion":"7"},"items":[' + items + b"]}"),)
        async with ScriptedServer(*steps) as server, watching(server, tmp_path) as (watch, recorder):
            await watch.synced.wait()
            assert recorder.calls == [("complete", "a", "c")]
            assert watch.undecodable == 1


async def test_a_response_that_is_not_a_list_is_requested_again(tmp_path: Path) -> None:
    steps = (answer(200, b"<html>"), answer(200, []), page(7, pod("a", 1)))
    async with ScriptedServer(*steps) as server, watching(server, tmp_path) as (watch, recorder):
        await watch.synced.wait()
        assert recorder.calls == [("complete", "a")]
        assert watch.broken == 2


async def test_an_unavailable_api_server_is_tried_until_it_responds(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "gas.cluster.watch")
    away = (refuse(500), refuse(429), hang_up, hang_up)
    steps = (page(7, pod("a", 1)), stream(end="cut"), *away, stream(event("ADDED", pod("b", 8))))
    async with ScriptedServer(*steps) as server, watching(server, tmp_path) as (watch, recorder):
        await eventually(lambda: ("changed", "b") in recorder.calls)
        assert recorder.calls == [("complete", "a"), ("changed", "b")]
        assert watch.relists == 0
        assert watch.broken >= 4
    assert [record.levelname for record in caplog.records if "is interrupted" in record.message] == ["WARNING"]
    assert "the watch of /api/v1/pods is working again" in caplog.text


async def test_the_pauses_between_attempts_grow(tmp_path: Path) -> None:
    at: list[float] = []

    def route(seen: object) -> Step:
        at.append(time.monotonic())
        return refuse(500)

    async with ScriptedServer(route=route) as server, watching(server, tmp_path, backoff=Backoff()):
        await eventually(lambda: len(at) == 4)
    # 0.25, 0.5 and 1 s, each shortened by up to a half.
    assert at[3] - at[2] >= 0.5
    assert at[3] - at[0] >= 0.125 + 0.25 + 0.5


async def test_a_server_that_ends_every_watch_at_once_gets_few_requests(tmp_path: Path) -> None:
    def route(seen: object) -> Step:
        return stream(end="clean") if "watch" in server.seen[-1].query else page(7)

    async with ScriptedServer(route=route) as server, watching(server, tmp_path, backoff=Backoff()):
        await asyncio.sleep(1)
        assert len(server.seen) < 10


@pytest.mark.parametrize("forbidden", ["list", "watch"])
async def test_a_missing_permission_is_logged_once_and_tried_again_slowly(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, forbidden: str
) -> None:
    allowed = asyncio.Event()
    message = f'pods is forbidden: User "gas" cannot {forbidden} resource "pods" in API group "" at the cluster scope'

    def route(seen: object) -> Step:
        verb = "watch" if "watch" in server.seen[-1].query else "list"
        if verb == forbidden and not allowed.is_set():
            return refuse(403, "Forbidden", message)
        return hang_after_headers if verb == "watch" else page(7, pod("a", 1))

    hang_after_headers = stream()
    async with ScriptedServer(route=route) as server, watching(server, tmp_path) as (watch, recorder):
        await eventually(lambda: len(server.seen) >= 4)
        assert watch.synced.is_set() == (forbidden == "watch")
        assert watch.refused is not None
        assert f'the verb "{forbidden}" on resource "pods" in the whole cluster' in watch.refused
        allowed.set()
        await eventually(lambda: watch.refused is None)
        assert recorder.calls == [("complete", "a")]
    assert caplog.text.count(f'the verb "{forbidden}"') == 1


async def test_other_tasks_run_while_many_events_are_handled(tmp_path: Path) -> None:
    class Slow(Recorder):
        def changed(self, obj: Pod) -> None:
            super().changed(obj)
            time.sleep(0.03)

    many = b"".join(json.dumps(event("ADDED", pod(f"p{each}", 8 + each))).encode() + b"\n" for each in range(10))
    turns: list[int] = []
    async with (
        ScriptedServer(page(7), stream(many)) as server,
        watching(server, tmp_path, handler=Slow()) as (_, recorder),
    ):
        while len(recorder.calls) < 11:
            turns.append(len(recorder.calls))
            await asyncio.sleep(0)
    assert len(set(turns)) > 5


async def test_a_handler_that_fails_for_one_object_gets_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    steps = (page(7), stream(event("ADDED", pod("poison", 8)), event("ADDED", pod("a", 9))))
    async with ScriptedServer(*steps) as server, watching(server, tmp_path) as (watch, recorder):
        await eventually(lambda: len(recorder.calls) == 2)
        assert recorder.calls == [("complete",), ("changed", "a")]
        assert watch.faults == 1
    assert "RuntimeError: cannot take the object" in caplog.text


async def test_a_list_for_which_the_handler_fails_is_not_synced_and_is_repeated(tmp_path: Path) -> None:
    recorder = Recorder()
    recorder.fail_complete = 1
    server = ScriptedServer(page(7, pod("a", 1)), page(8, pod("b", 2)))
    async with server, watching(server, tmp_path, handler=recorder) as (watch, _):
        await eventually(lambda: watch.faults == 1)
        assert not watch.synced.is_set()
        await watch.synced.wait()
        assert recorder.calls == [("complete", "b")]


async def test_last_contact_is_the_time_of_the_last_response(tmp_path: Path) -> None:
    send = asyncio.Event()

    async def later(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        await send.wait()
        await stream_line(writer)

    async def stream_line(writer: asyncio.StreamWriter) -> None:
        writer.write(b"1\r\n\n\r\n")
        await hang(writer)

    async with ScriptedServer(page(7), later) as server, watching(server, tmp_path) as (watch, _):
        await eventually(lambda: len(server.seen) == 2)
        await asyncio.sleep(0.1)
        before = watch.last_contact
        await asyncio.sleep(0.1)
        assert watch.last_contact == before
        send.set()
        await eventually(lambda: watch.last_contact > before)


async def test_a_cancelled_watch_closes_its_connection(tmp_path: Path) -> None:
    async with ScriptedServer(page(7), stream()) as server:
        async with watching(server, tmp_path):
            await eventually(lambda: len(server.seen) == 2)
        await eventually(lambda: server.open == 0)
