"""All files or none: a fault at any step, and a kill at any step."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from configurator import transaction
from configurator.backup import UNFINISHED, Backup, backups
from configurator.errors import ConfiguratorError, FileTrouble, NotPutBack
from configurator.files import Change, FileState, read_state
from configurator.transaction import STAGED, commit, missing_directories
from tests.configurator.control_plane_files import NOW, ControlPlaneFiles

STEPS = {"write": (os, "write"), "fsync": (os, "fsync"), "rename": (Path, "rename"), "mkdir": (Path, "mkdir")}

DEADLY = {"rename": (Path, "rename"), "fsync": (os, "fsync"), "unlink": (os, "unlink"), "rmdir": (os, "rmdir")}


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
                finish=partial(backup.mark, complete=True),
            )
        except (ConfiguratorError, KeyboardInterrupt):
            backup.remove()
            assert files.state() == before, f"call {faults.at} of {step}"
        else:
            break
    assert faults.at > 3, "the fault never struck"
    assert (new.read_bytes(), files.configuration.read_bytes(), files.manifest.read_bytes()) == (b"new",) * 3
    assert not (files.etc / "gone").exists()


@pytest.mark.parametrize("at", [3, 13])
def test_fault_at_a_rename_stops_the_whole_run(
    files: ControlPlaneFiles, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    before = files.state()
    Faults(monkeypatch, "rename", disk_is_full).at = at
    with pytest.raises(ConfiguratorError, match="No space left on device; nothing was changed"):
        files.run()
    assert files.state() == before


def dies(files: ControlPlaneFiles, step: str, at: int, *flags: str) -> bool:
    """Run in another process that is killed at this call of the step. Returns False if it ended before."""
    child = os.fork()
    if child == 0:
        calls = 0
        owner, name = DEADLY[step]
        real = getattr(owner, name)

        def deadly(*arguments: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == at:
                os._exit(9)
            return real(*arguments, **named)

        setattr(owner, name, deadly)
        try:
            files.run(*flags)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == 9


@pytest.mark.parametrize("backup", [(), ("-b=/dev/null",)], ids=["with a backup", "without a backup"])
@pytest.mark.parametrize("at", [1, 2, 3, 4, 8, 13, 14])
def test_run_killed_at_any_rename_is_taken_back_by_the_next(
    files: ControlPlaneFiles, at: int, backup: tuple[str, ...]
) -> None:
    before = files.state()
    assert dies(files, "rename", at, *backup) == (at <= 13)
    said = files.run(*backup)
    assert ("did not finish" in said) == (3 <= at <= 13)
    assert not list(files.root.rglob(STAGED + "*"))
    assert files.run(*backup) == "nothing to change"
    if backup:
        assert files.backups() == []
        return
    files.run("--undo")
    assert files.state() == before


@pytest.mark.parametrize("backup", [(), ("-b=/dev/null",)], ids=["with a backup", "without a backup"])
def test_killed_run_can_be_taken_back(files: ControlPlaneFiles, backup: tuple[str, ...]) -> None:
    before = files.state()
    assert dies(files, "rename", 8, *backup)
    files.run("--undo")
    assert files.state() == before


@pytest.mark.parametrize("at", range(1, 17))
def test_killed_run_with_another_backup_directory_is_noticed_without_it(files: ControlPlaneFiles, at: int) -> None:
    before = files.state()
    elsewhere = f"-b={files.root}/elsewhere"
    assert dies(files, "rename", at, elsewhere) == (at <= 15)
    if at > 15:
        return
    complete = at == 15  # only what would have taken it back was still there
    said = files.run()
    assert ("did not finish" in said) == (at >= 3)
    files.run("--undo")
    assert {path: state for path, state in files.state().items() if not path.startswith("elsewhere")} == before
    left = list((files.root / "elsewhere").glob("backup_*"))
    assert len(left) == complete
    if complete:  # everything is restored already, so there is nothing to do, which is not a fault
        files.run("--undo", elsewhere)
    files.run(elsewhere)
    files.run("--undo", elsewhere)
    assert list((files.root / "elsewhere").iterdir()) == []
    assert {path: state for path, state in files.state().items() if path != "elsewhere"} == before


def test_backup_in_another_place_that_cannot_be_written_changes_nothing(files: ControlPlaneFiles) -> None:
    (files.root / "elsewhere").write_text("a file")
    before = files.state()
    with pytest.raises(ConfiguratorError, match=r"no backup can be written to .*/elsewhere/x: .*; nothing was changed"):
        files.run(f"-b={files.root}/elsewhere/x")
    assert files.state() == before


def test_run_that_fails_leaves_no_backup_in_another_place(
    files: ControlPlaneFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = files.root / "elsewhere"
    place.mkdir()
    before = files.state()
    refuse_renames_to(monkeypatch, "kube-scheduler.yaml")
    with pytest.raises(ConfiguratorError, match="nothing was changed"):
        files.run(f"-b={place}")
    assert files.state() == before


@pytest.mark.parametrize(
    ("step", "at"), [("rename", 1), ("unlink", 1), ("unlink", 5), ("rmdir", 1), ("rmdir", 3), ("rename", 2)]
)
def test_killed_undo_is_finished_by_the_next_undo(files: ControlPlaneFiles, step: str, at: int) -> None:
    before = files.state()
    files.run()
    assert dies(files, step, at, "--undo")
    files.run("--undo")
    assert files.state() == before


def test_killed_undo_is_finished_by_the_next_run(files: ControlPlaneFiles) -> None:
    """Killed around the removal of the authority, also between its key and its certificate."""
    origin = files.settings()
    certificate, key = files.own / "ca.crt", files.own / "ca.key"
    halves = 0
    for at in range(8, 11):
        files.run()
        assert dies(files, "unlink", at, "--undo")
        halves += certificate.exists() and not key.exists()
        said = files.run()
        assert "did not finish; its changes were undone first" in said
        assert certificate.exists()
        assert key.exists()
        files.run("--undo")
        assert files.settings() == origin
    assert halves == 1


@pytest.mark.parametrize("at", [1, 2], ids=["at the record", "at the manifest"])
@pytest.mark.parametrize("fault", [disk_is_full, interrupt])
def test_an_undo_that_fails_leaves_the_backup_of_a_complete_run(
    files: ControlPlaneFiles, monkeypatch: pytest.MonkeyPatch, fault: Callable[[], None], at: int
) -> None:
    files.run()
    before = files.settings()
    with monkeypatch.context() as patched:
        Faults(patched, "rename", fault).at = at
        with pytest.raises((ConfiguratorError, KeyboardInterrupt)):
            files.run("--undo")
    assert files.settings() == before
    assert files.run() == "nothing to change"


@pytest.mark.parametrize(("step", "at"), [("unlink", 21), ("unlink", 22), ("rmdir", 4), ("rmdir", 10)])
def test_undo_killed_while_it_removes_the_backup_does_not_disturb_the_next_run(
    files: ControlPlaneFiles, step: str, at: int
) -> None:
    before = files.settings()
    files.run()
    assert dies(files, step, at, "--undo")
    assert files.settings().items() >= before.items()
    assert (files.backups(), len(list(files.etc.glob(UNFINISHED + "*")))) == ([], 1)
    said = files.run()
    assert "did not finish" not in said
    assert not list(files.root.rglob(STAGED + "*"))


@pytest.mark.parametrize(("step", "at"), [("unlink", 8), ("unlink", 10), ("rmdir", 1), ("rmdir", 5)])
def test_undo_after_one_killed_while_it_removed_the_backup_takes_back_no_run_more(
    files: ControlPlaneFiles, step: str, at: int
) -> None:
    before = files.settings()
    files.run()
    first = files.settings()
    files.run("--san=a.example", now=NOW + timedelta(minutes=1))
    newest = max(files.backups()).name
    assert dies(files, step, at, "--undo")
    assert len(files.backups()) == 1
    assert f"the last --undo had already undone {newest}; run --undo again" in files.run("--undo")
    assert files.settings() == first
    assert "undid" in files.run("--undo")
    assert files.settings() == before


def test_undo_after_one_killed_while_it_removed_the_last_backup_succeeds(files: ControlPlaneFiles) -> None:
    before = files.settings()
    files.run()
    assert dies(files, "unlink", 22, "--undo")
    assert "the last --undo had already undone" in files.run("--undo")
    assert files.settings() == before
    with pytest.raises(ConfiguratorError, match="nothing to undo"):
        files.run("--undo")


def test_undo_says_what_it_has_undone_before_the_last_sign_of_it_is_removed(
    files: ControlPlaneFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.run()
    newest = max(files.backups()).name
    said: list[str] = []
    before_each: list[str] = []
    real = os.rmdir

    def rmdir(*arguments: Any, **named: Any) -> None:
        before_each.append("\n".join(said))
        real(*arguments, **named)

    monkeypatch.setattr(os, "rmdir", rmdir)
    files.run("--undo", said=said)
    assert not list(files.etc.glob(UNFINISHED + "*"))
    assert f"undid {newest}" in before_each[-1]


@pytest.mark.parametrize("at", [1, 2, 3])
def test_copies_of_a_run_killed_while_it_wrote_the_backup_are_removed(files: ControlPlaneFiles, at: int) -> None:
    """The copies may be private keys."""
    assert dies(files, "fsync", at)
    files.run()
    assert len(files.backups()) == 1
    assert not list(files.root.rglob(STAGED + "*"))


@pytest.mark.parametrize("at", [2, 3, 5])
def test_copies_of_a_killed_undo_are_removed_by_a_run_that_changes_nothing(files: ControlPlaneFiles, at: int) -> None:
    files.run()
    before = files.settings()
    assert dies(files, "fsync", at, "--undo")
    assert list(files.root.rglob(STAGED + "*"))
    assert files.run() == "nothing to change"
    assert files.settings() == before


def test_copies_of_a_killed_run_without_a_backup_are_removed(files: ControlPlaneFiles) -> None:
    """Killed at each removal of its end: of what would have taken it back, and of the staged files."""
    files.run("-b=/dev/null")
    at = 1
    while dies(files, "unlink", at, "-b=/dev/null", f"--url=https://127.0.0.1:{9000 + at}"):
        assert list(files.root.rglob(STAGED + "*"))
        files.run("-b=/dev/null")
        assert not list(files.root.rglob(STAGED + "*"))
        assert files.backups() == []
        at += 1
    assert at > 5


def refuse_renames_to(monkeypatch: pytest.MonkeyPatch, *names: str, from_call: int = 1) -> None:
    """Files with these names cannot be replaced, from this call of each on; nor can they be removed."""
    rename, unlink = Path.rename, Path.unlink
    calls = dict.fromkeys(names, 0)

    def refuse(path: Path) -> None:
        calls[path.name] += 1
        if calls[path.name] >= from_call:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM), str(path))

    def refusing_rename(path: Path, target: Path) -> Path:
        if target.name in calls:
            refuse(target)
        return rename(path, target)

    def refusing_unlink(path: Path, missing_ok: bool = False) -> None:
        if path.name in calls:
            refuse(path)
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "rename", refusing_rename)
    monkeypatch.setattr(Path, "unlink", refusing_unlink)


@pytest.mark.parametrize("name", ["ca.key", "client.crt", "scheduler-config.yaml", "kube-scheduler.yaml"])
def test_file_that_cannot_be_replaced_leaves_the_others_as_they_were(
    files: ControlPlaneFiles, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """As one that is immutable, or the place of a mount: the second attempt fails like the first."""
    before = files.state()
    refuse_renames_to(monkeypatch, name)
    with pytest.raises(ConfiguratorError, match=rf"/{name}: Operation not permitted; nothing was changed"):
        files.run()
    assert files.state() == before


def test_file_that_cannot_be_taken_back_leaves_the_others_as_the_run_left_them(
    files: ControlPlaneFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = files.state()
    files.run()
    before = files.state()
    with monkeypatch.context() as patched:
        refuse_renames_to(patched, "client.crt")
        with pytest.raises(ConfiguratorError, match=r"/client.crt: Operation not permitted; nothing was changed"):
            files.run("--undo")
    assert files.state() == before
    files.run("--undo")
    assert files.state() == origin


@pytest.mark.parametrize("backup", [(), ("-b=/dev/null",)], ids=["with a backup", "without a backup"])
def test_file_that_cannot_be_put_back_is_named_and_the_next_run_takes_it_back(
    files: ControlPlaneFiles, monkeypatch: pytest.MonkeyPatch, backup: tuple[str, ...]
) -> None:
    files.configuration.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nparallelism: 4\n"
    )
    before = files.state()
    with monkeypatch.context() as patched:
        refuse_renames_to(patched, "kube-scheduler.yaml")
        refuse_renames_to(patched, "scheduler-config.yaml", "server.crt", from_call=2)
        with pytest.raises(NotPutBack) as refused:
            files.run(*backup)
    kept = files.backups()[0]
    sentence = str(refused.value)
    assert "nothing was changed" not in sentence
    for part in (
        f"{files.manifest}: Operation not permitted; and these files could not be put back: ",
        f"{files.configuration} (Operation not permitted), {files.own}/server.crt (Operation not permitted). ",
        f"The earlier files are in {kept}:",
    ):
        assert part in sentence
    changed = {
        str(files.configuration.relative_to(files.root)),
        str((files.own / "server.crt").relative_to(files.root)),
    }
    found = files.settings()
    directories = {path for path, state in found.items() if state[0] == "d"}
    assert {path for path in found if found[path] != before.get(path)} - directories == changed
    files.run("--undo")
    assert files.state() == before


def test_undo_that_cannot_be_put_back_is_finished_by_the_next(
    files: ControlPlaneFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files.state()
    files.run()
    with monkeypatch.context() as patched:
        refuse_renames_to(patched, "client.crt")
        refuse_renames_to(patched, "kube-scheduler.yaml", from_call=2)
        with pytest.raises(NotPutBack, match=r"kube-scheduler\.yaml \(Operation not .*They are as they were"):
            files.run("--undo")
    assert files.manifest.read_bytes() == before["etc/kubernetes/manifests/kube-scheduler.yaml"][4]
    files.run("--undo")
    assert files.state() == before


def test_backup_that_cannot_be_removed_is_named_after_everything_was_taken_back(
    files: ControlPlaneFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files.settings()
    files.run()
    rename = Path.rename

    def refuse(path: Path, target: Path) -> Path:
        if target.name.startswith(UNFINISHED):
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        return rename(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", refuse)
        with pytest.raises(ConfiguratorError, match="is no longer needed, but cannot be removed: Operation not"):
            files.run("--undo")
    assert files.settings() == before
    files.run("--undo")
    assert files.backups() == []


def test_newest_backup_is_the_last_runs_also_when_the_clock_was_set_back(files: ControlPlaneFiles) -> None:
    files.run()
    first = files.settings()
    files.run("--url=https://127.0.0.1:9001", now=NOW - timedelta(hours=1))
    old, new = backups(files.etc)[::-1]
    for path in new.directory.rglob("*"):
        os.utime(path, (0, 0))
    assert (old.number, new.number) == (1, 2)
    files.run("--undo")
    assert files.settings() == first


def test_directory_of_another_program_with_such_a_name_stays(files: ControlPlaneFiles) -> None:
    """One without a record is none of the configurator's."""
    other = files.etc / "backup_2026-05-04_mine"
    other.mkdir()
    (other / "x").write_text("x")
    files.run()
    files.run("--undo")
    assert (other / "x").exists()


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, also if the tests were started with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_signal_during_the_renames_waits_for_their_end(
    files: ControlPlaneFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.rename

    def interrupted(path: Path, target: Path) -> Path:
        os.kill(os.getpid(), signal.SIGINT)
        return real(path, target)

    # The first renames are those of the backup, which are outside.
    def later(path: Path, target: Path) -> Path:
        if path.name.startswith(STAGED) and not path.name.startswith(UNFINISHED):
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
