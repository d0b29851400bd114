"""Reports that follow the cluster."""

from __future__ import annotations

import asyncio
import io
import sys

import pytest

from gas.inspection.cluster import Cluster
from gas.inspection.connection import Where
from gas.inspection.output import Look
from gas.inspection.report import Column, Report
from gas.inspection.rows import pod_report
from gas.inspection.watching import screen_lines, watch_report
from sandbox.api.kinds import PODS
from tests.background import eventually
from tests.inspection.conftest import Kubectl
from tests.inspection.example_cluster import create_pod, waiting


def all_pods(cluster: Cluster) -> Report:
    return pod_report(cluster)


async def test_a_report_is_written_again_after_each_change(kubectl: Kubectl, monkeypatch: pytest.MonkeyPatch) -> None:
    output = io.StringIO()
    monkeypatch.setattr(sys, "stdout", output)
    monkeypatch.setattr("gas.inspection.watching.INTERVAL", 0.01)
    where = Where(kubeconfig=str(kubectl.kubeconfig))
    watching = asyncio.create_task(watch_report(where, all_pods, "csv", Look, program="gas"))
    try:
        await eventually(lambda: output.getvalue().count("namespace,name") == 1)
        create_pod(kubectl.server, waiting("fresh", i915=1))
        await eventually(lambda: "default,fresh,Waiting" in output.getvalue())
        kubectl.server.api.delete(PODS, "default", "fresh", {"gracePeriodSeconds": 0})
        await eventually(lambda: "fresh" not in output.getvalue().rpartition("namespace,name")[2])
        lists = [line for line in kubectl.beside.asked if line.endswith("GET /api/v1/pods")]
        assert len(lists) <= 3  # the settings, the first list of the watch, and the watch itself
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def test_the_watch_ends_without_a_word_when_its_reader_is_gone(
    kubectl: Kubectl, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Closed(io.StringIO):
        def write(self, _text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", Closed())
    where = Where(kubeconfig=str(kubectl.kubeconfig))
    assert await asyncio.wait_for(watch_report(where, all_pods, "csv", Look, program="gas"), 20) == 0
    assert capsys.readouterr().err == ""
    sys.stdout.close()  # the null device, which takes the place of the output


async def test_a_terminal_that_cannot_redraw_gets_the_report_after_each_change(
    kubectl: Kubectl, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    output = Terminal()
    monkeypatch.setattr(sys, "stdout", output)
    monkeypatch.setattr("gas.inspection.watching.INTERVAL", 0.01)
    where = Where(kubeconfig=str(kubectl.kubeconfig))
    for name, is_redrawn in (("dumb", False), ("xterm", True)):
        monkeypatch.setenv("TERM", name)
        watching = asyncio.create_task(watch_report(where, all_pods, "table", Look, program="gas"))
        try:
            await eventually(lambda: "train-1" in output.getvalue())
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        assert ("\x1b" in output.getvalue()) is is_redrawn
        output.truncate(0)


def test_a_note_on_the_screen_cannot_control_the_terminal() -> None:
    report = Report((Column("name"),), [{"name": "pod"}])
    note = "node gpu-1: \x1b[2J\u202eevil\n"
    assert screen_lines(report, (note,), wide=False, look=Look())[-1] == r"1 row; node gpu-1: \x1b[2J\u202eevil\n"


def test_the_screen_has_as_many_lines_as_the_terminal() -> None:
    report = Report((Column("name"),), [{"name": f"pod-{number}"} for number in range(50)])
    lines = screen_lines(report, ("a note",), wide=False, look=Look(width=40), height=10)
    assert len(lines) == 10
    assert lines[-1] == "8 of 50 rows; see --sort-by and --where;"[:40]
    assert screen_lines(report, (), wide=False, look=Look(), height=60)[-1] == "50 rows"
    one = Report(report.columns, report.rows[:1])
    assert screen_lines(one, (), wide=False, look=Look(), height=60)[-1] == "1 row"
