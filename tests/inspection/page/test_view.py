"""The page's view of a cluster: follows the API server, survives its absence, and measures in the background."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gas.inspection.page import view as views
from gas.inspection.page.view import MOST_NOTES, NotRead, View
from tests.background import eventually, in_background
from tests.cluster.scripted_server import connected
from tests.doctor.sandbox_cluster import Beside, doctor_server
from tests.inspection.example_cluster import (
    EXAMPLE_USE,
    GB,
    create_pod,
    example_nodes,
    example_pods,
    fill,
    no_decisions,
    running,
    use_path,
    with_real_uids,
)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "INTERVAL", 0.02)
    monkeypatch.setattr(views, "USE_INTERVAL", 0.1)


def shown(view: View) -> dict[str, list[list[object]]]:
    """Return the cards of each node on the map."""
    return {name: cards for name, _, cards in json.loads(view.whole())["nodes"]}


async def test_the_map_follows_bookings_and_measured_use(tmp_path: Path) -> None:
    beside = Beside()
    server = doctor_server(beside)
    async with server, connected(server.url, tmp_path, token="admin") as api:
        fill(server, example_nodes(), example_pods())
        uses = with_real_uids(server, EXAMPLE_USE)
        beside.objects.update(uses)
        view = View(api, no_decisions)
        with pytest.raises(NotRead, match="the cluster is being read"):
            view.whole()
        assert view.state()["trouble"] == "the cluster is being read"
        async with in_background(view.run()):
            await eventually(lambda: view.state()["trouble"] == "" and "gpu-1" in shown(view))
            await eventually(lambda: shown(view)["gpu-1"][0][4] != -1)
            create_pod(server, running("new", "gpu-10", "card1", i915=1, memory_max=2 * GB))
            await eventually(lambda: shown(view)["gpu-10"][1][3] == 1)
            beside.objects[use_path("gpu-1")] = {"trouble": None, "pods": []}
            await eventually(lambda: shown(view)["gpu-1"][0][4] == -1)
            assert (await view.decisions())["notes"] == ["the last decisions are not shown"]
            assert view.node("gpu-2")["ready"] is True


async def test_the_history_has_samples_of_how_full_the_cluster_was_and_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "SAMPLE_INTERVAL", 0.0)
    monkeypatch.setattr(views, "MOST_SAMPLES", 3)
    server = doctor_server(Beside())
    async with server, connected(server.url, tmp_path, token="admin") as api:
        fill(server, example_nodes(), example_pods())
        view = View(api, no_decisions)

        def samples() -> list[dict[str, object]]:
            return view.history()["samples"]  # type: ignore[return-value]

        async with in_background(view.run()):
            await eventually(lambda: len(samples()) == 3)
            booked = samples()[-1]["booked"]
            assert isinstance(booked, dict)
            assert (samples()[-1]["waiting"], booked["memory.max"]) == (1, 31 / 64)
            create_pod(server, running("new", "gpu-10", "card1", i915=1, memory_max=GB))
            await eventually(lambda: samples()[-1]["booked"]["memory.max"] == 32 / 64)  # type: ignore[index]
            assert len(samples()) == 3


async def test_a_page_that_starts_before_the_api_server_shows_why_until_it_is_there(tmp_path: Path) -> None:
    async with connected("http://127.0.0.1:1", tmp_path) as api:
        view = View(api, no_decisions)
        async with in_background(view.run()) as (task,):
            await eventually(lambda: "cannot connect to the API server" in str(view.state()["trouble"]))
            with pytest.raises(NotRead, match="cannot connect to the API server"):
                view.whole()
            assert not task.done()


async def test_a_failure_of_the_page_itself_does_not_end_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object) -> None:
        raise RuntimeError("a bug")

    server = doctor_server(Beside())
    async with server, connected(server.url, tmp_path, token="admin") as api:
        fill(server, example_nodes(), example_pods())
        view = View(api, no_decisions)
        async with in_background(view.run()):
            with monkeypatch.context() as patched:
                patched.setattr(views, "Board", fail)
                await eventually(lambda: view.state()["trouble"] == "the page has failed; its log says why")
            await eventually(lambda: view.state()["trouble"] == "" and "gpu-1" in shown(view))


async def test_many_reasons_why_use_is_unknown_are_cut_short(tmp_path: Path) -> None:
    beside = Beside()
    for name in ("gpu-1", "gpu-2", "gpu-10"):
        beside.objects[use_path(name)] = {"trouble": f"the trouble of {name}", "pods": []}
    server = doctor_server(beside)
    async with server, connected(server.url, tmp_path, token="admin") as api:
        pods = [each for each in example_pods() if "extender" not in each["metadata"]["name"]]
        fill(server, example_nodes(), pods)
        view = View(api, no_decisions)
        async with in_background(view.run()):
            await eventually(lambda: len(view.state()["notes"]) > 1)  # type: ignore[arg-type]
            notes = view.state()["notes"]
            assert isinstance(notes, list)
            assert notes[0] == "no extender was found in a pod; its default flags are assumed"
            assert len(notes) <= MOST_NOTES + 1
            assert notes[-1] == "and 1 more of such"
