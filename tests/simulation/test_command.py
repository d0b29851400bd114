"""The command line of the simulation: arguments, exit codes, interrupts, and histories as they are printed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from simulation.__main__ import main
from simulation.plan import Plan
from simulation.planted import planted_fault
from simulation.run import Outcome, readable
from simulation.workers import find, run_noted, run_seeds

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "simulation"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--seeds", "0"], "argument --seeds: expected a whole number from 1 on, found '0'"),
        (["--workers", "0"], "argument --workers: expected a whole number from 1 on, found '0'"),
        (["--seed", "-1"], "argument --seed: expected a whole number from 0 on, found '-1'"),
        (["--first", "a"], "argument --first: expected a whole number from 0 on, found 'a'"),
        (["--seed", "1", "--seeds", "5"], "--seed runs one history; leave out --seeds"),
        (["--seed", "0", "--first", "0", "--terse"], "--seed runs one history; leave out --first and --terse"),
        (["--trace", "--large"], "--trace and --large: only for one history; add --seed"),
        (["--plant", "no receipt"], "no planted fault has the name 'no receipt'; did you mean 'no receipts'"),
        (["--planted", "x"], "no planted fault has the name 'x'; simulation/planted.py lists the names"),
        (["--planted", "--seed", "0"], "--planted knows its seeds; leave out --seed"),
        (["--planted", "--plant", "no receipts"], "--planted knows its seeds; leave out --plant"),
    ],
)
def test_wrong_arguments(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err


def test_a_broken_law_is_printed_with_the_shortest_history_that_breaks_it() -> None:
    fault = "half of what is booked counts as free"
    found = find(planted_fault(fault), 1)
    assert found is not None
    command = [*COMMAND, "--plant", fault, "--seed", str(found.seed)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (1, "")
    assert f"\nbroken {found.seed} {found.law}: {found.sentence}\n" in run.stdout
    assert 1 <= run.stdout.count(" plan: ") <= 5
    assert f" LAW: {found.law}: " in run.stdout


@contextmanager
def _running(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """Yield a run and its processes, once each of them has begun."""
    with subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as run:
        try:
            until = time.monotonic() + 60
            while len(started := _workers(run.pid)) < 2 and time.monotonic() < until:
                time.sleep(0.05)
            yield run, started
        finally:
            os.killpg(run.pid, signal.SIGKILL)


def _workers(pid: int) -> list[int]:
    """Return the processes of a run that are ready: those with a second thread."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(each) for each in children if len(list(Path(f"/proc/{each}/task").glob("*"))) > 1]


def _have_ended(pids: list[int]) -> bool:
    """Wait until processes have ended, for some seconds."""
    until = time.monotonic() + 20
    while alive := any(_is_alive(pid) for pid in pids):
        if time.monotonic() > until:
            break
        time.sleep(0.05)
    return not alive


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_ends_at_once_with_one_line(number: signal.Signals) -> None:
    with _running("--seeds", "1000", "--workers", "2") as (run, workers):
        for pid in workers:
            os.kill(pid, signal.SIGSTOP)  # it would take them a while to end by themselves
        os.kill(run.pid, number)
        output, errors = run.communicate(timeout=20)
        assert run.returncode == 130
        assert output == ""
        assert errors.startswith("python -m simulation: interrupted after 0 histories, 0 of them broken, in ")
        assert len(errors.splitlines()) == 1
        assert _have_ended(workers)


def test_ctrl_c_is_left_to_the_process_that_reports_it() -> None:
    with _running("--seeds", "1000", "--workers", "2") as (_, workers):
        for pid in workers:
            status = Path(f"/proc/{pid}/status").read_text().splitlines()
            blocked = next(int(line.split()[1], 16) for line in status if line.startswith("SigBlk"))
            assert blocked & 1 << signal.SIGINT - 1


def test_no_process_outlives_a_run_that_is_killed() -> None:
    with _running("--seeds", "1000", "--workers", "2") as (run, workers):
        os.kill(run.pid, signal.SIGKILL)
        assert _have_ended(workers)


def test_a_process_that_is_killed_is_reported_with_its_seeds() -> None:
    with _running("--seeds", "1000", "--workers", "2", "--first", "7") as (run, workers):
        os.kill(workers[0], signal.SIGKILL)
        _, errors = run.communicate(timeout=20)
        assert run.returncode == 1
        assert "a process that ran histories was killed, so those from seed 7 on are unknown" in errors
        assert len(errors.splitlines()) == 1


def test_an_exception_says_in_which_history_it_was_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_seed: int) -> Outcome:
        raise KeyError("n0")

    monkeypatch.setattr("simulation.run.run_seed", fail)
    with pytest.raises(KeyError) as raised:
        run_noted(7)
    assert raised.value.__notes__ == ["in the history of seed 7"]


def test_the_outcomes_of_many_seeds_come_in_order() -> None:
    assert [outcome.seed for outcome in run_seeds(range(3, 8), 2)] == [3, 4, 5, 6, 7]


def test_a_reader_that_goes_away_ends_the_run_without_a_word() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [*COMMAND, "--seed", "2", "--trace"]
    found = subprocess.run(command, cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (found.returncode, found.stderr) == (141, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written_is_reported() -> None:
    with Path("/dev/full").open("w") as full:
        command = [*COMMAND, "--seed", "2"]
        found = subprocess.run(command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert found.returncode == 1
    assert found.stderr.startswith("python -m simulation: cannot write to standard output: No space left on device")
    assert len(found.stderr.splitlines()) == 1


def test_a_printed_history_says_what_kind_it_is_and_leaves_repeated_lines_out() -> None:
    plan = Plan(seed=1, nodes=((0, 1), (0,)), webhooks=True, steps=(), page=3, scenario="late_events")
    trace = [
        "    0.0000 api: lease of extender-a-1",
        "    6.0000 api: lease of extender-a-1",
        "    7.0000 world: extender-a is killed",
        "   12.0000 api: lease of extender-a-1",
        "   22.0000 api: lease of extender-a-1",
    ]
    assert list(readable(plan, trace)) == [
        "nodes: n0 (card0, card1), n1 (card0)",
        "with: webhooks, pages of 3 objects, the scenario late_events",
        trace[0],
        trace[2],
        trace[4],
        "2 lines that say the same as one in the 10 s before are left out",
    ]
