"""All files or none: a fault at any step, and death at any step."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from configurator import transaction
from configurator.backup import Backup
from configurator.errors import ConfiguratorError, FileTrouble
from configurator.files import Change, FileState, read_state
from configurator.transaction import STAGED, commit, missing_directories
from tests.configurator.control_plane_files import NOW, ControlPlaneFiles

STEPS = {"write": (os, "write"), "fsync": (os, "fsync"), "rename": (Path, "rename"), "mkdir": (Path, "mkdir")}


class Faults:
    """The step that is counted fails at one of its calls, and works at all others."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, step: str, fault: Callable[[], None]) -> None:
        self.calls = 0
        self.at = -1
        owner, name = STEPS[step]
        real = getattr(owner, name)

        def counted(*arguments: Any, **named: Any) -> Any:
            self.calls += 1
            if self.calls == self.at:
                fault()
            return real(*arguments, **named)

        monkeypatch.setattr(owner, name, counted)


def disk_is_full() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def interrupt() -> None:
    raise KeyboardInterrupt


def change(path: Path, content: bytes | None = b"new", *, mode: int = 0o644) -> Change:
    """From what is there now to the content; None takes the file away."""
    after = None if content is None else FileState(content, mode, os.geteuid(), os.getegid())
    return Change(path, read_state(path), after, secret=False)


@pytest.mark.parametrize("fault", [disk_is_full, interrupt])
@pytest.mark.parametrize("step", STEPS)
def test_fault_at_any_step_leaves_everything_as_it_was(
    files: ControlPlaneFiles, monkeypatch: pytest.MonkeyPatch, step: str, fault: Callable[[], None]
) -> None:
    files.configuration.write_text("old")
    (files.etc / "gone").write_text("old")
    new = files.certificates / "client.crt"
    changes = [change(new), change(files.configuration), change(files.etc / "gone", None), change(files.manifest)]
    before = files.state()
    faults = Faults(monkeypatch, step, fault)
    faults.at = 0
    while True:
        faults.calls, faults.at = 0, faults.at + 1
        try:
            backup = Backup.write(files.etc, changes, missing_directories(changes), NOW)
        except (ConfiguratorError, KeyboardInterrupt):
            assert files.state() == before, f"call {faults.at} of {step}, in the backup"
            continue
        try:
            commit(
                changes,
                manifests=files.manifests,
                directories=missing_directories(changes),
                finish=backup.mark_complete,
            )
        except (ConfiguratorError, KeyboardInterrupt):
            backup.remove()
            assert files.state() == before, f"call {faults.at} of {step}"
        else:
            break
    assert faults.at > 3, "the fault never struck"
    assert (new.read_bytes(), files.configuration.read_bytes(), files.manifest.read_bytes()) == (b"new",) * 3
    assert not (files.etc / "gone").exists()


@pytest.mark.parametrize("at", [2, 12])
def test_fault_at_a_rename_stops_the_whole_run(
    files: ControlPlaneFiles, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    before = files.state()
    Faults(monkeypatch, "rename", disk_is_full).at = at
    with pytest.raises(ConfiguratorError, match="No space left on device; nothing was changed"):
        files.run()
    assert files.state() == before


@pytest.mark.parametrize("at", [1, 2, 7, 12, 13])
def test_death_at_any_rename_is_mended_by_the_next_run(files: ControlPlaneFiles, at: int) -> None:
    before = files.state()
    child = os.fork()
    if child == 0:
        calls = 0
        real = Path.rename

        def deadly(path: Path, target: Path) -> Path:
            nonlocal calls
            calls += 1
            if calls == at:
                os._exit(9)
            return real(path, target)

        Path.rename = deadly  # type: ignore[method-assign, assignment]
        try:
            files.run()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    died = os.waitstatus_to_exitcode(status) == 9
    assert died == (at <= 12)
    said = files.run()
    assert ("cut short" in said) == (2 <= at <= 12)
    assert not list(files.root.rglob(STAGED + "*"))
    assert files.run() == "nothing to change"
    files.run("--undo")
    assert {path: state for path, state in files.state().items() if path in before} == before
    assert files.settings() == before


def test_signal_during_the_renames_waits_for_their_end(
    files: ControlPlaneFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.rename

    def interrupted(path: Path, target: Path) -> Path:
        os.kill(os.getpid(), signal.SIGINT)
        return real(path, target)

    # The first rename is the backup's own record, which is outside.
    def later(path: Path, target: Path) -> Path:
        if path.name.startswith(STAGED):
            return interrupted(path, target)
        return real(path, target)

    monkeypatch.setattr(Path, "rename", later)
    with pytest.raises(KeyboardInterrupt):
        files.run()
    monkeypatch.setattr(Path, "rename", real)
    assert files.run() == "nothing to change"


def test_manifests_on_a_file_system_of_their_own_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifests = tmp_path / "manifests"
    manifests.mkdir()
    real = Path.stat

    def other_device(path: Path, **named: Any) -> os.stat_result:
        found = real(path, **named)
        return os.stat_result((found[0], found[1], 99, *found[3:10])) if path == manifests else found

    monkeypatch.setattr(Path, "stat", other_device)
    with pytest.raises(FileTrouble, match="is on another file system than"):
        commit([change(manifests / "x.yaml")], manifests=manifests)


def test_last_step_that_fails_puts_everything_back(tmp_path: Path) -> None:
    def fail() -> None:
        raise ConfiguratorError("no")

    with pytest.raises(ConfiguratorError):
        commit([change(tmp_path / "a"), change(tmp_path / "b")], manifests=tmp_path / "none", finish=fail)
    assert list(tmp_path.iterdir()) == []


def test_directories_are_private_where_only_secrets_go(tmp_path: Path) -> None:
    changes = [change(tmp_path / "s/k", mode=0o600), change(tmp_path / "p/q/c")]
    directories = missing_directories(changes)
    assert directories == [tmp_path / "s", tmp_path / "p", tmp_path / "p/q"]
    commit(changes, manifests=tmp_path / "none", directories=directories)
    assert [oct(directory.stat().st_mode & 0o777) for directory in directories] == ["0o700", "0o755", "0o755"]


def test_module_names_the_signals_that_stop_a_program() -> None:
    assert {signal.SIGINT, signal.SIGTERM, signal.SIGHUP} == set(transaction._STOPPING)
