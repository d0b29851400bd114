"""The page over HTTP: who may read it, what it may load, and that nothing can be changed or blocked through it."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import http.client
import json
import re
import threading
import time
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import NamedTuple

import pytest

from gas.extender.decisions import Decisions
from gas.inspection.cluster import Cluster, MeasuredUse, Missing
from gas.inspection.page import app as pages
from gas.inspection.page import view as views
from gas.inspection.page.app import page_app
from gas.inspection.page.board import Board
from gas.inspection.page.view import View
from gas.values.cards import Card
from tests.extender.running import Running, running
from tests.inspection.example_cluster import (
    GB,
    decoded_node,
    decoded_pod,
    example_cluster,
    gpu_node_json,
    page_of,
    record,
)
from tests.inspection.example_cluster import running as running_pod

STATIC = [file for file in (files("gas.inspection.page") / "static").iterdir() if file.is_file()]
FILES = ("/", "/page.css", "/page.js", "/icon.svg")
DOCUMENTS = ("cluster", "state", "pods", "decisions", "namespaces", "history", "node?name=gpu-1")
DATA = tuple(f"/data/{each}" for each in DOCUMENTS)


class Shown(NamedTuple):
    """A page of the example cluster."""

    cluster: Cluster
    board: Board
    page: View

    def update(self, *names: str) -> None:
        for _ in self.board.update(self.cluster, list(names)):
            pass


@contextmanager
def served(view: View, *, hosts: tuple[str, ...] = (), interval: float = 0.02) -> Iterator[Running]:
    stopping = asyncio.Event()
    with running(page_app(view, stopping, hosts=hosts, interval=interval)) as page:
        try:
            yield page
        finally:
            page._loop.call_soon_threadsafe(stopping.set)


@pytest.fixture
def shown() -> Shown:
    cluster, board = example_cluster(), Board("e")
    found = Shown(cluster, board, page_of(cluster, board))
    found.update(*cluster.node_names)
    return found


@pytest.fixture
def page(shown: Shown) -> Iterator[Running]:
    with served(shown.page) as found:
        yield found


@pytest.mark.parametrize("path", [*FILES, *DATA, "/nothing", "/data/node?name=nothing"])
def test_every_response_has_the_strict_policy_and_sets_no_cookie(page: Running, path: str) -> None:
    _, _, headers = page.ask("GET", path)
    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert {policy[each] for each in ("script-src", "style-src", "img-src", "connect-src")} == {"'self'"}
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert policy["require-trusted-types-for"] == "'script'"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["set-cookie"] is None
    assert headers["access-control-allow-origin"] is None


@pytest.mark.parametrize("path", [*FILES, *DATA, "/data/changes"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_only_get_and_head_are_served(page: Running, path: str, method: str) -> None:
    assert page.ask(method, path, b"x" * 10)[0] == 405


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("localhost:9004", 200),
        ("LOCALHOST:9004", 200),
        ("127.0.0.1:9004", 200),
        ("[::1]:9004", 200),
        ("10.1.2.3", 200),
        ("gpus.example.org", 200),
        ("gpus.example.org:443", 200),
        ("evil.example.org", 421),
        ("localhost.evil.example.org", 421),
        ("127.0.0.1.evil.example.org:9004", 421),
        ("", 421),
        ("localhost:80:80", 421),
    ],
)
def test_only_known_hosts_are_served_because_a_site_can_point_its_name_here(
    shown: Shown, host: str, status: int
) -> None:
    with served(shown.page, hosts=("gpus.example.org",)) as page:
        for path in ("/", "/data/cluster"):
            assert page.ask("GET", path, headers={"Host": host})[0] == status


def test_requests_that_another_site_makes_are_refused(page: Running) -> None:
    for site in ("cross-site", "same-site"):
        assert page.ask("GET", "/data/cluster", headers={"Sec-Fetch-Site": site})[0] == 403
        assert page.ask("GET", "/page.js", headers={"Sec-Fetch-Site": site})[0] == 403
        assert page.ask("GET", "/", headers={"Sec-Fetch-Site": site})[0] == 200  # a link to the page
    assert page.ask("GET", "/data/cluster", headers={"Sec-Fetch-Site": "same-origin"})[0] == 200


def test_nothing_is_loaded_from_elsewhere_and_no_html_is_made_from_texts() -> None:
    assert len(STATIC) == len(FILES)
    for file in STATIC:
        text = file.read_text()
        links = set(re.findall(r"https?://[^\"'\s)]*", text)) - {"http://www.w3.org/2000/svg"}
        assert links == set()
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", text)
        assert not re.search(r"<[a-z][^>]*\s(style|on\w+)=", text)
    assert sum(len(file.read_bytes()) for file in STATIC) < 300_000


def test_files_and_documents_are_compressed_for_browsers_that_take_it(page: Running) -> None:
    for path, kind in (("/page.js", "text/javascript"), ("/data/cluster", "application/json")):
        connection = page.http()
        connection.request("GET", path, headers={"Accept-Encoding": "br, gzip;q=0.8"})
        answer = connection.getresponse()
        assert (answer.headers["content-encoding"], answer.headers.get_content_type()) == ("gzip", kind)
        packed = gzip.decompress(answer.read())
        connection.close()
        _, plain, headers = page.ask("GET", path)
        assert headers["content-encoding"] is None
        assert (json.loads(packed) if path == "/data/cluster" else packed) == plain
    tag = page.ask("GET", "/page.js")[2]["etag"]
    assert page.ask("GET", "/page.js", headers={"If-None-Match": tag})[:2] == (304, b"")
    assert page.ask("GET", "/page.js")[2]["cache-control"] == "no-cache"
    assert page.ask("GET", "/data/cluster")[2]["cache-control"] == "no-store"


def test_what_cannot_be_shown_is_a_sentence(page: Running, shown: Shown) -> None:
    assert page.ask("GET", "/data/node?name=nothing")[:2] == (
        404,
        f"{_missing(lambda: shown.cluster.node('nothing'))}\n".encode(),
    )
    assert page.ask("GET", f"/data/pods?text={'x' * 1000}")[:2] == (200, {"total": 0, "pods": []})


def test_before_the_cluster_is_read_the_page_says_so() -> None:
    with served(page_of(None, Board("e"))) as page:
        for path in ("/data/cluster", "/data/pods"):
            status, text, headers = page.ask("GET", path)
            assert (status, text, headers["retry-after"]) == (503, b"the cluster is being read\n", "2")
        assert page.ask("GET", "/")[0] == 200


def _missing(ask: Callable[[], object]) -> str:
    with pytest.raises(Missing) as missing:
        ask()
    return str(missing.value)


def test_texts_of_others_arrive_escaped(page: Running, shown: Shown) -> None:
    shown.page._notes = ("use is \u202eshown",)
    assert page.ask("GET", "/data/state")[1]["notes"] == ["use is \\u202eshown"]
    hostile = running_pod("x", "gpu-1", "card0", i915=1, memory_max=GB)
    hostile["metadata"]["labels"] = {"a": "\u05d0</script>\x1b[2J"}
    shown.cluster.watched_pods.changed(decoded_pod(hostile))
    _, found, _ = page.ask("GET", "/data/pod?namespace=default&name=x")
    assert found["labels"] == {"a": "\\u05d0</script>\\x1b[2J"}


def test_links_name_cards_and_tiles(page: Running, shown: Shown) -> None:
    tiles = {"gpu.intel.com/gpu-numbers": "0.1", "gpu.intel.com/xe-links": "0.0-1.0"}
    node = gpu_node_json("linked", record(0), record(1), labels=tiles)
    node["status"]["allocatable"]["gpu.intel.com/tiles"] = "4"
    shown.cluster.watched_nodes.changed(decoded_node(node))
    assert page.ask("GET", "/data/node?name=linked")[1]["links"] == ["card0 gt0 - card1 gt0"]


def test_the_pod_s_way_and_why_are_those_of_kubectl_gas(page: Running, shown: Shown) -> None:
    record = Decisions()
    record.filtered("uid-default-train-0", ["gpu-1", "gpu-2"], 0.001)
    record.made("uid-default-train-0", "default/train-0", "gpu-1", "card0", verb="bind", seconds=0.004, now=7.0)
    shown.cluster.decisions = list(record)
    _, found, _ = page.ask("GET", "/data/pod?namespace=default&name=train-0")
    assert found["held"][0]["card"] == "card0"
    assert found["held"][0]["amounts"] == {"i915": 1, "memory.max": 12 * GB, "millicores": 800}
    assert found["written"] == {"gas-ts": "2026-01-01 00:00:00 UTC", "gas-container-cards": "card0"}
    (decision,) = found["decisions"]
    assert (decision["node"], decision["passing"], decision["milliseconds"]["bind"]) == ("gpu-1", 2, 4.0)
    assert page.ask("GET", "/data/decisions")[1]["decisions"] == [decision]
    _, why, _ = page.ask("GET", "/data/why?namespace=default&name=big")
    assert why["reason"] == "no card has 14.0 GB of memory.max free; nearest: gpu-2 card0 with 10.0 GB of memory.max"
    assert why["suggestions"][0]["node"] == "gpu-2"


def test_pods_are_found_by_name_node_and_state(page: Running) -> None:
    def names(query: str) -> list[str]:
        return [each["name"] for each in page.ask("GET", f"/data/pods?{query}")[1]["pods"]]

    assert names("") == ["big", "notebook", "train-0", "train-1", "web-7d"]
    assert names("text=TRAIN") == ["train-0", "train-1"]
    assert names("text=gpu-2") == ["web-7d"]
    assert names("state=waiting") == ["big"]
    assert names("state=bound&text=shop/") == ["web-7d"]
    assert names("text=hop/") == []  # a namespace is named in full
    (waiting,) = page.ask("GET", "/data/pods?state=waiting")[1]["pods"]
    assert waiting["note"] == "no card has 14.0 GB of memory.max free; nearest: gpu-2 card0 with 10.0 GB of memory.max"


@pytest.mark.parametrize(
    ("column", "order"),
    [
        ("memory.max", "notebook web-7d train-1 train-0 big"),
        ("-memory.max", "train-0 train-1 web-7d notebook big"),
        ("namespace", "big notebook train-0 train-1 web-7d"),
        ("-node", "notebook web-7d train-0 train-1 big"),
        ("used", "web-7d train-0 train-1 big notebook"),
    ],
)
def test_pods_are_sorted_before_the_list_is_cut(
    shown: Shown, monkeypatch: pytest.MonkeyPatch, column: str, order: str
) -> None:
    shown.cluster.use = {
        (f"uid-{pod}", Card(card)): MeasuredUse(amount * GB, None)
        for pod, card, amount in (("shop-web-7d", 0, 1), ("default-train-0", 0, 2), ("default-train-1", 1, 3))
    }
    for most in (200, 1):
        monkeypatch.setattr(views, "MOST_PODS", most)
        with served(shown.page) as page:
            found = page.ask("GET", f"/data/pods?sort={column}")[1]["pods"]
        assert [each["name"] for each in found] == order.split()[:most]


def test_a_column_that_pods_do_not_have_is_a_sentence(page: Running) -> None:
    status, text, _ = page.ask("GET", "/data/pods?sort=nonsense")
    assert (status, text.decode()[:60]) == (400, "parameter sort: expected a column of this report (namespace,")


def test_pods_of_a_namespace_are_added_up(page: Running) -> None:
    default, shop = page.ask("GET", "/data/namespaces")[1]["namespaces"]
    assert default == {
        "namespace": "default",
        "pods": 4,
        "waiting": 1,
        "i915": 3,
        "millicores": 1600,
        "memory.max": 25 * GB,
    }
    assert (shop["namespace"], shop["pods"], shop["waiting"], shop["memory.max"]) == ("shop", 1, 0, 6 * GB)


def test_a_card_that_is_not_open_says_by_which_report_or_label(page: Running, shown: Shown) -> None:
    labels = {
        "gpu.intel.com/gpu-numbers": "0.1.2",
        "gpu.intel.com/pci-groups": "0.1",
        "telemetry.aware.scheduling.hot/gas-disable-card0": "PCI_GROUP",
        "telemetry.aware.scheduling.old/gas-deschedule-pods-card1": "true",
        "telemetry.aware.scheduling.hot/gas-tile-disable-card2_gt1": "true",
    }
    node = gpu_node_json("n", *map(record, range(3)), record(3, healthy=False), labels=labels)
    node["status"]["allocatable"]["gpu.intel.com/tiles"] = "6"
    node["status"]["capacity"] = node["status"]["allocatable"]
    shown.cluster.watched_nodes.changed(decoded_node(node))
    shown.cluster.watched_pods.changed(decoded_pod(running_pod("lost", "n", "card7", i915=1)))
    board = "closed by label gas-disable-card0 of telemetry policy 'hot'"
    assert [
        (each["card"], each["health"], each["cause"]) for each in page.ask("GET", "/data/node?name=n")[1]["cards"]
    ] == [
        ("card0", "disabled", board),
        ("card1", "descheduled", f"{board}; closed by label gas-deschedule-pods-card1 of telemetry policy 'old'"),
        ("card2", "ok", "closed by label gas-tile-disable-card2_gt1 of telemetry policy 'hot'"),
        ("card3", "unhealthy", "unhealthy in annotation gas-cards, which the plugin writes"),
        (
            "card7",
            "gone",
            "held by pods or in annotation gas-cards, but the labels and resources of the node do not have it",
        ),
    ]


def events(page: Running, after: str, *, gzipped: bool = False) -> Generator[tuple[str, str, str], None, None]:
    """Yield (event, id, data) of a stream."""
    with contextlib.closing(page.http()) as connection:
        connection.request(
            "GET", f"/data/changes?after={after}", headers={"Accept-Encoding": "gzip"} if gzipped else {}
        )
        with connection.getresponse() as answer:
            yield from _events(answer, gzipped=gzipped)


def _events(answer: http.client.HTTPResponse, *, gzipped: bool) -> Generator[tuple[str, str, str], None, None]:
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/event-stream"
    unpack = zlib.decompressobj(31) if gzipped else None
    text = ""
    while piece := answer.read1(65536):
        text += (unpack.decompress(piece) if unpack is not None else piece).decode()
        while "\n\n" in text:
            event, _, text = text.partition("\n\n")
            lines = dict(line.split(": ", 1) for line in event.splitlines() if ": " in line)
            if "event" in lines:
                yield lines["event"], lines.get("id", ""), lines.get("data", "")


@pytest.mark.parametrize("gzipped", [False, True])
def test_changes_come_as_events_that_can_be_continued(page: Running, shown: Shown, *, gzipped: bool) -> None:
    whole = json.loads(shown.page.whole())
    start = f"{whole['board']}@{whole['version']}"
    stream = events(page, start, gzipped=gzipped)
    event, _, data = next(stream)
    assert (event, json.loads(data)["waiting"]) == ("state", 1)
    shown.cluster.watched_pods.changed(decoded_pod(running_pod("new", "gpu-10", "card1", i915=1, memory_max=GB)))
    shown.update("gpu-10")
    event, first, data = next(stream)
    assert event == "part"
    assert [each[0] for each in json.loads(data)["nodes"]] == ["gpu-10"]
    assert first == f"{whole['board']}@{shown.board.version}"
    assert next(stream)[0] == "state"
    again = events(page, first, gzipped=gzipped)
    assert next(again)[0] == "state"  # nothing that it has already
    stream.close()
    again.close()


@pytest.mark.parametrize("after", ["", "other@1", "e.1@99999", "e.0@3", "@"])
def test_a_browser_of_another_time_is_sent_back_to_the_beginning(page: Running, after: str) -> None:
    assert [each[0] for each in events(page, after)] == ["anew"]


@pytest.mark.parametrize("after", ["e.1@-1", "e.1@x", "e.1@", f"e.1@{'9' * 30}"])
def test_a_version_that_is_not_a_number_counts_as_the_first(page: Running, after: str) -> None:
    stream = events(page, after)
    event, _, data = next(stream)
    stream.close()
    assert (event, len(json.loads(data)["nodes"])) == ("part", 3)


def test_streams_are_limited_and_end_with_the_program(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MOST_STREAMS", 2)
    with served(shown.page) as page:
        opened = [events(page, f"{shown.board.name}@{shown.board.version}") for _ in range(2)]
        for stream in opened:
            next(stream)
        assert page.ask("GET", "/data/changes")[0] == 503
        ended = threading.Thread(target=lambda: list(opened[1]))
        ended.start()
        time.sleep(0.1)
    ended.join(10)
    assert not ended.is_alive()
    opened[0].close()


def test_a_browser_that_does_not_read_delays_no_other(page: Running, shown: Shown) -> None:
    silent = page.connect()
    silent.sendall(b"GET /data/changes?after= HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HT")
    half = page.connect()
    half.sendall(b"GET /data/cluster HTTP/1.1\r\n")
    begun = time.monotonic()
    for path in DATA:
        assert page.ask("GET", path)[0] == 200
    assert time.monotonic() - begun < 10
    silent.close()
    half.close()
