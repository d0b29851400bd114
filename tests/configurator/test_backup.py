"""All files or none: a fault at any step, and a kill at any step, are undone by the run itself or by the next."""

from __future__ import annotations

import errno
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from configurator import files as configurator_files
from configurator.backup import MARKER, backups
from configurator.certificate_plan import CertificatePlan
from configurator.errors import ConfiguratorError, FileTrouble, NotPutBack
from configurator.files import (
    STAGED,
    Change,
    FileState,
    WantedFile,
    changes,
    missing_directories,
    read_state,
    replace_files,
    signals_delayed,
)
from configurator.flags import Flags
from configurator.plan import Plan
from tests.configurator.control_plane_files import NEWEST, NOW, ControlPlaneFiles, State, kubeadm_manifest

STEPS = {
    "write": (os, "write"),
    "fsync": (os, "fsync"),
    "replace": (Path, "replace"),
    "mkdir": (Path, "mkdir"),
    "unlink": (Path, "unlink"),
    "rmdir": (os, "rmdir"),
}

KILLS = ("fsync", "replace", "unlink", "rmdir")


@pytest.fixture
def quick(files: ControlPlaneFiles, monkeypatch: pytest.MonkeyPatch) -> ControlPlaneFiles:
    """Replace the plan by one of five files, so that a run takes a millisecond. ``--url`` changes their content."""

    def plan(flags: Flags, _: datetime) -> Plan:
        content = (flags.url or "new").encode()
        wanted = [
            WantedFile(path=files.own / "ca.crt", content=content),
            WantedFile(path=files.own / "ca.key", content=content, mode=0o600, secret=True),
            WantedFile(path=files.certificates / "client.crt", content=content),
            WantedFile(path=files.configuration, content=content),
            WantedFile(path=files.manifest, content=content),
        ]
        made = changes(wanted, read_state)
        return Plan(made, CertificatePlan(flags, files.certificates, read_state, NOW), ())

    monkeypatch.setattr("configurator.program.make_plan", plan)
    return files


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, also if the tests were started with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def break_call(patched: pytest.MonkeyPatch, step: str, at: int, fault: Callable[[], None]) -> Callable[[], bool]:
    """Let one call of a step fail; all others work. Return whether it has been made."""
    calls = 0
    owner, name = STEPS[step]
    real = getattr(owner, name)

    def counted(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at:
            fault()
        return real(*arguments, **named)

    patched.setattr(owner, name, counted)
    return lambda: calls >= at


def fill_disk() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def dies(files: ControlPlaneFiles, step: str, at: int, *flags: str) -> bool:
    """Run in another process that is killed at this call of the step. Return False if it ended before."""
    child = os.fork()
    if child == 0:
        try:
            break_call(pytest.MonkeyPatch(), step, at, lambda: os._exit(9))
            files.run(*flags)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == 9


def settings_of(files: ControlPlaneFiles) -> State:
    """Everything but backups, wherever they are."""
    return {path: state for path, state in files.settings().items() if not path.startswith("other")}


def assert_completes_and_undoes(files: ControlPlaneFiles, flags: tuple[str, ...], origin: State) -> None:
    """Run until all is done, and undo it. Without a backup, a second run with one makes that possible."""
    files.run(*flags)
    assert files.run(*flags) == "nothing to change"
    assert not [*files.root.rglob(STAGED + "*"), *files.root.rglob(MARKER + "*")]
    if "-b=/dev/null" in flags:
        assert backups(files.etc) == []
        for path, state in files.state().items():
            if path not in origin:
                (files.root / path).unlink() if state[0] == "-" else None
        for directory in (files.own, files.own.parent, files.certificates):
            directory.rmdir()
        files.manifest.write_bytes(origin["etc/kubernetes/manifests/kube-scheduler.yaml"][4])
    else:
        files.run("--undo", *flags)
    assert settings_of(files) == origin
    assert not [*files.root.rglob("record.json"), *files.root.rglob(MARKER + "*")]


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(("step", "fault"), [*((step, fill_disk) for step in STEPS), ("fsync", interrupt)])
def test_fault_at_any_call_of_a_run(
    quick: ControlPlaneFiles,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    fault: Callable[[], None],
) -> None:
    origin = settings_of(quick)
    for at in range(1, 100):
        with monkeypatch.context() as patched:
            struck = break_call(patched, step, at, fault)
            try:
                quick.run()
            except (ConfiguratorError, KeyboardInterrupt) as error:
                if "nothing was changed" in str(error):
                    assert settings_of(quick) == origin, f"call {at} of {step}"
        assert_completes_and_undoes(quick, (), origin)
        if not struck():
            break
    assert at > 1 or step == "rmdir"


@pytest.mark.parametrize(
    ("step", "flag"),
    [
        *((step, "-b={etc}") for step in KILLS),
        ("fsync", "-b=/dev/null"),
        ("unlink", "-b=/dev/null"),
        ("replace", "-b={root}/other"),
    ],
)
def test_run_killed_at_any_call_is_undone_by_the_next(quick: ControlPlaneFiles, step: str, flag: str) -> None:
    flags = (flag.format(root=quick.root, etc=quick.etc),)
    origin = settings_of(quick)
    at = 1
    while dies(quick, step, at, *flags):
        assert_completes_and_undoes(quick, flags, origin)
        at += 1
    assert at > 1 or step == "rmdir"


@pytest.mark.parametrize(
    ("step", "finisher"),
    [*((step, "--undo") for step in KILLS), ("replace", "--color=auto"), ("unlink", "--color=auto")],
)
def test_undo_killed_at_any_call_is_finished_by_the_next(quick: ControlPlaneFiles, step: str, finisher: str) -> None:
    """It undoes that run and none before it, and says so."""
    first = (quick.run("--url=https://127.0.0.1:1"), settings_of(quick))[1]
    for at in range(1, 100):
        quick.run("--url=https://127.0.0.1:2")
        newest = backups(quick.etc)[0].directory.name
        if not dies(quick, step, at, "--undo"):
            break
        if not (quick.etc / newest / "record.json").exists():
            assert settings_of(quick) == first
            continue  # killed when all was done
        said = quick.run(finisher, "--url=https://127.0.0.1:1")
        assert settings_of(quick) == first, f"call {at} of {step}"
        if finisher == "--undo":
            assert f"undid {newest}" in said
    assert at > 1
    assert not [*quick.root.rglob(STAGED + "*"), *quick.root.rglob(MARKER + "*")]


def test_killed_run_with_another_backup_directory_is_noticed_without_it(quick: ControlPlaneFiles) -> None:
    before = settings_of(quick)
    assert dies(quick, "replace", 4, f"-b={quick.root}/other")
    assert "an earlier run did not finish; its changes were undone first (backup_" in quick.run()
    quick.run("--undo")
    assert settings_of(quick) == before
    assert list((quick.root / "other").iterdir()) == []


def test_killed_run_can_be_undone_at_once(quick: ControlPlaneFiles) -> None:
    before = quick.state()
    assert dies(quick, "replace", 4)
    assert "undid backup_" in quick.run("--undo")
    assert quick.state() == before
    with pytest.raises(ConfiguratorError, match="nothing to undo"):
        quick.run("--undo")


def refuse_to_replace(monkeypatch: pytest.MonkeyPatch, *names: str, from_call: int = 1) -> None:
    """Files with these names cannot be replaced, from this call of each on; nor can they be removed."""
    replace, unlink = Path.replace, Path.unlink
    calls = dict.fromkeys(names, 0)

    def refuse(path: Path) -> None:
        if path.name in calls and not path.parent.name.startswith("backup_"):
            calls[path.name] += 1
            if calls[path.name] >= from_call:
                raise OSError(errno.EPERM, os.strerror(errno.EPERM), str(path))

    def refusing_replace(path: Path, target: Path) -> Path:
        refuse(target)
        return replace(path, target)

    def refusing_unlink(path: Path, missing_ok: bool = False) -> None:
        refuse(path)
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "replace", refusing_replace)
    monkeypatch.setattr(Path, "unlink", refusing_unlink)


@pytest.mark.parametrize("undo", [False, True], ids=["run", "undo"])
@pytest.mark.parametrize("name", ["ca.key", "client.crt", "scheduler-config.yaml", "kube-scheduler.yaml"])
def test_file_that_cannot_be_replaced_leaves_the_others_as_they_were(
    quick: ControlPlaneFiles, monkeypatch: pytest.MonkeyPatch, name: str, undo: bool
) -> None:
    """As one that is immutable, or the place of a mount: the second attempt fails like the first."""
    if undo:
        quick.run()
    before = quick.state()
    refuse_to_replace(monkeypatch, name)
    with pytest.raises(ConfiguratorError, match=rf"/{name}: Operation not permitted; nothing was changed"):
        quick.run(*["--undo"] * undo)
    assert quick.state() == before


@pytest.mark.parametrize("flags", [(), ("-b=/dev/null",)], ids=["with a backup", "without a backup"])
def test_file_that_cannot_be_put_back_is_named_and_the_next_run_restores_it(
    quick: ControlPlaneFiles, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...]
) -> None:
    quick.configuration.write_text("parallelism: 4\n")
    before = quick.state()
    with monkeypatch.context() as patched:
        refuse_to_replace(patched, "kube-scheduler.yaml")
        refuse_to_replace(patched, "scheduler-config.yaml", "ca.crt", from_call=2)
        with pytest.raises(NotPutBack) as refused:
            quick.run(*flags)
    sentence = str(refused.value)
    assert "nothing was changed" not in sentence
    for part in (
        f"{quick.manifest}: Operation not permitted; and these files could not be put back: ",
        f"{quick.configuration} (Operation not permitted), {quick.own}/ca.crt (Operation not permitted). ",
        f"The earlier files are in {quick.backups()[0]}:",
    ):
        assert part in sentence
    found = quick.settings()
    changed = {path for path, state in found.items() if state != before.get(path) and state[0] != "d"}
    assert changed == {f"etc/kubernetes/{name}" for name in ("scheduler-config.yaml", "pki/gas/ca.crt", MARKER)}
    quick.run("--undo")
    assert quick.state() == before


def test_undo_that_cannot_be_put_back_is_finished_by_the_next(
    quick: ControlPlaneFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = quick.state()
    quick.run()
    with monkeypatch.context() as patched:
        refuse_to_replace(patched, "client.crt")
        refuse_to_replace(patched, "kube-scheduler.yaml", from_call=2)
        with pytest.raises(NotPutBack, match=r"kube-scheduler\.yaml \(Operation not .*They are as they were"):
            quick.run("--undo")
    assert quick.manifest.read_bytes() == before["etc/kubernetes/manifests/kube-scheduler.yaml"][4]
    quick.run("--undo")
    assert quick.state() == before


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("record.json", "is no longer needed, but cannot be removed: Operation not"), (MARKER, "cannot be removed")],
)
def test_backup_or_marker_that_cannot_be_removed_is_named(
    quick: ControlPlaneFiles, monkeypatch: pytest.MonkeyPatch, name: str, sentence: str
) -> None:
    before = quick.settings()
    quick.run()
    with monkeypatch.context() as patched:
        unlink = Path.unlink

        def refuse(path: Path, missing_ok: bool = False) -> None:
            if path.name == name:
                raise OSError(errno.EPERM, os.strerror(errno.EPERM))
            unlink(path, missing_ok=missing_ok)

        patched.setattr(Path, "unlink", refuse)
        with pytest.raises(ConfiguratorError, match=sentence):
            quick.run("--undo")
    quick.run("--undo")
    assert quick.state() == before


@pytest.mark.parametrize("path", ["{root}/file", "{root}/file/below"])
def test_backup_that_cannot_be_written_changes_nothing(quick: ControlPlaneFiles, path: str) -> None:
    (quick.root / "file").write_text("x")
    before = quick.state()
    with pytest.raises(ConfiguratorError, match=r"no backup can be written to .*/file.*; nothing was changed"):
        quick.run(f"-b={path.format(root=quick.root)}")
    assert quick.state() == before


def test_newest_backup_is_the_last_runs_also_when_the_clock_was_set_back(quick: ControlPlaneFiles) -> None:
    quick.run()
    first = quick.settings()
    quick.run("--url=https://127.0.0.1:9001", now=NOW - timedelta(hours=1))
    new, old = backups(quick.etc)
    for path in new.directory.rglob("*"):
        os.utime(path, (0, 0))
    assert (old.record.number, new.record.number) == (1, 2)
    quick.run("--undo")
    assert quick.settings() == first


def test_directory_of_another_program_with_such_a_name_stays(quick: ControlPlaneFiles) -> None:
    other = quick.etc / "backup_2026-05-04_mine"
    other.mkdir()
    (other / "x").write_text("x")
    quick.run()
    quick.run("--undo")
    assert (other / "x").exists()


@pytest.mark.parametrize(("mode", "text", "sentence"), [(0o666, "{}", "another user"), (0o600, "{}", "it is damaged")])
def test_marker_that_is_not_ours_is_not_used(quick: ControlPlaneFiles, mode: int, text: str, sentence: str) -> None:
    marker = quick.etc / MARKER
    marker.write_text(text)
    marker.chmod(mode)
    with pytest.raises(FileTrouble, match=rf"{MARKER}.*{sentence}"):
        quick.run()


@pytest.mark.usefixtures("interruptible")
def test_signal_while_files_are_replaced_waits_for_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.replace

    def interrupted(path: Path, target: Path) -> Path:
        os.kill(os.getpid(), signal.SIGINT)
        return real(path, target)

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt), signals_delayed():
        replace_files([change(tmp_path / "a"), change(tmp_path / "b")])
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b"}
    assert {signal.SIGINT, signal.SIGTERM, signal.SIGHUP} == set(configurator_files._STOPPING)


def change(path: Path, content: bytes | None = b"new", *, mode: int = 0o644) -> Change:
    """From what is there now to the content; None takes the file away."""
    after = None if content is None else FileState(content, mode, os.geteuid(), os.getegid())
    return Change(path, read_state(path), after, secret=False)


def test_directories_are_private_where_only_secrets_go(tmp_path: Path) -> None:
    made = [change(tmp_path / "s/k", mode=0o600), change(tmp_path / "p/q/c")]
    directories = missing_directories(made)
    assert directories == [tmp_path / "s", tmp_path / "p", tmp_path / "p/q"]
    replace_files(made, directories)
    assert [oct(directory.stat().st_mode & 0o777) for directory in directories] == ["0o700", "0o755", "0o755"]


LINES = kubeadm_manifest(NEWEST).splitlines()
_edits = st.lists(
    st.tuples(
        st.integers(0, len(LINES) - 1),
        st.sampled_from(
            [
                lambda line: f"{line}  # a comment",
                lambda line: f"# é\t\n{line}",
                lambda line: f"\n\n{line}",
                lambda line: line.replace(": ", ':   "', 1) + '"' if line.count(": ") == 1 else line,
                lambda line: line.replace("- ", "- '", 1) + "'" if line.startswith("    - --") else line,
                lambda line: line.replace(": ", ": &anchor ", 1),
                lambda line: line.replace(": ", ": *anchor # ", 1),
                lambda line: f"{line}   ",
                lambda line: line[: len(line) // 2],
            ]
        ),
    ),
    max_size=6,
)


@settings(max_examples=25, deadline=None)
@given(edits=_edits, newline=st.sampled_from(["\n", "\r\n"]), end=st.sampled_from(["", "\n", "\n\n# end\n"]))
def test_undo_restores_the_bytes_of_any_manifest(
    edits: list[tuple[int, Callable[[str], str]]], newline: str, end: str
) -> None:
    """A manifest that the run refuses is not changed either."""
    lines = list(LINES)
    for index, edit in edits:
        lines[index] = edit(lines[index])
    with tempfile.TemporaryDirectory() as root:
        files = ControlPlaneFiles(Path(root))
        files.write_manifest(("\n".join(lines) + end).replace("\n", newline))
        before = files.state()
        try:
            files.run()
        except ConfiguratorError:
            assert files.state() == before
            return
        assert files.run() == "nothing to change"
        files.run("--undo")
        assert files.state() == before
