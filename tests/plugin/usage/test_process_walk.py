"""Which files of which processes are read, and what is made of them."""

from __future__ import annotations

import errno
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gas.plugin.usage import process_walk
from gas.plugin.usage.process_walk import MOST_FILES, RECHECK, CannotWalk, ProcessWalker, Walk
from tests.broken_files import BREAKS, break_file
from tests.plugin.pods_for_plugin import pod_uid
from tests.plugin.usage.processes import MIB, PLAIN_FILE, Processes, cgroup, xe

A, B = pod_uid(1), pod_uid(2)


@pytest.fixture
def processes(tmp_path: Path) -> Processes:
    return Processes(tmp_path / "proc")


def found(walk: Walk) -> list[tuple[str, int, int]]:
    """Return pod, client and MiB of each client that was found, sorted."""
    return sorted((seen.pod, seen.client.id, seen.client.memory // MIB) for seen in walk.clients)


@pytest.fixture
def touched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of paths whose content or status is read from now on, below the tree's root."""
    paths: list[str] = []
    real_open, real_stat = os.open, os.stat

    def record(path: str, dir_fd: int | None) -> None:
        parent = str(Path(f"/proc/self/fd/{dir_fd}").readlink()) if dir_fd is not None else ""
        paths.append(f"{parent}/{path}".partition("/proc/")[2])

    def recording_open(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        record(path, dir_fd)
        return real_open(path, flags, mode, dir_fd=dir_fd)

    def recording_stat(path: str, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> os.stat_result:
        record(path, dir_fd)
        return real_stat(path, dir_fd=dir_fd, follow_symlinks=follow_symlinks)

    monkeypatch.setattr(os, "open", recording_open)
    monkeypatch.setattr(os, "stat", recording_stat)
    return paths


def test_only_the_directory_of_all_processes_may_be_a_link(processes: Processes, tmp_path: Path) -> None:
    processes.add(10, 1, xe(1, vram=5))
    (processes.proc / "11").symlink_to(processes.proc / "10")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.symlink_to(processes.proc)
    walk = ProcessWalker(elsewhere).walk({A, B})
    assert (found(walk), walk.processes) == ([(A, 1, 5)], 1)


def test_clients_of_the_pods_are_found(processes: Processes) -> None:
    processes.add(10, 1, PLAIN_FILE, xe(1, vram=5), xe(2, vram=6))
    processes.add(11, 2, xe(3, vram=7))
    walk = ProcessWalker(processes.proc).walk({A, B})
    assert found(walk) == [(A, 1, 5), (A, 2, 6), (B, 3, 7)]
    assert (walk.processes, walk.problems) == (2, {})


def test_of_other_pods_and_the_node_only_the_cgroup_is_read(processes: Processes, touched: list[str]) -> None:
    processes.add(1, None, xe(1))
    processes.add(20, 2, xe(2))
    processes.add(30, 1, xe(3))
    walker = ProcessWalker(processes.proc)
    for _ in range(2 * RECHECK + 1):
        assert found(walker.walk({A})) == [(A, 3, 0)]
    read = {path for path in touched if "/" in path}
    assert {path for path in read if not path.startswith("30/")} == {"1/cgroup", "20/cgroup"}
    assert {path for path in read if path.startswith("30/")} == {"30/cgroup", "30/fd", "30/fdinfo", "30/fdinfo/3"}


def test_a_file_opened_later_is_found_at_once_in_a_new_process_and_within_some_walks_in_an_old_one(
    processes: Processes,
) -> None:
    processes.add(10, 1, PLAIN_FILE)
    walker = ProcessWalker(processes.proc)
    assert found(walker.walk({A})) == []
    processes.write(10, {3: xe(1, vram=1)})  # the same descriptor, for another file
    assert found(walker.walk({A})) == [(A, 1, 1)]
    for _ in range(RECHECK):
        walker.walk({A})
    processes.write(10, {4: xe(2, vram=2)})
    results = [found(walker.walk({A})) for _ in range(RECHECK)]
    assert results[-1] == [(A, 1, 1), (A, 2, 2)]
    assert all((A, 1, 1) in result for result in results)


def test_a_client_that_is_closed_disappears(processes: Processes) -> None:
    processes.add(10, 1, xe(1), xe(2))
    walker = ProcessWalker(processes.proc)
    for _ in range(RECHECK + 1):
        walker.walk({A})
    (processes.proc / "10/fdinfo/3").unlink()
    assert found(walker.walk({A})) == [(A, 2, 0)]
    processes.write(10, {4: PLAIN_FILE})
    assert found(walker.walk({A})) == []


@pytest.mark.parametrize("walks", [1, RECHECK, 3 * RECHECK])
def test_a_process_with_the_id_of_an_ended_one_is_another_process(processes: Processes, walks: int) -> None:
    walker = ProcessWalker(processes.proc)
    processes.add(10, 1, xe(1))
    for _ in range(walks):
        assert found(walker.walk({A, B})) == [(A, 1, 0)]
    processes.add(10, 2, xe(2))
    assert found(walker.walk({A, B})) == [(B, 2, 0)]
    processes.add(10, None, xe(3))
    assert found(walker.walk({A, B})) == []


def test_a_process_that_the_runtime_moves_into_its_pod_later(processes: Processes) -> None:
    """The runtime starts a container's process in its own group and moves it."""
    directory = processes.add(10, None, xe(1))
    walker = ProcessWalker(processes.proc)
    assert found(walker.walk({A})) == []
    (directory / "cgroup").write_text(cgroup(1))
    assert found(walker.walk({A})) == [(A, 1, 0)]


def test_a_pod_that_the_watch_shows_later(processes: Processes) -> None:
    processes.add(10, 1, xe(1))
    walker = ProcessWalker(processes.proc)
    for _ in range(RECHECK + 1):
        assert found(walker.walk({B})) == []
    assert found(walker.walk({A})) == [(A, 1, 0)]
    assert found(walker.walk({B})) == []
    assert found(walker.walk({A})) == [(A, 1, 0)]


def test_through_the_handle_of_an_ended_process_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real process that ends when its group has just been read: its id is free for a process of another pod."""
    victim = subprocess.Popen(["sleep", "60"])
    ended: list[int] = []
    scan = os.scandir

    @contextmanager
    def only_the_victim(directory: int) -> Iterator[list[os.DirEntry[str]]]:
        with scan(directory) as entries:
            yield [entry for entry in entries if entry.name == str(victim.pid) or "fdinfo" in entry.path]

    def end(content: bytes) -> str:
        assert content == Path(f"/proc/{victim.pid}/cgroup").read_bytes()
        victim.kill()
        ended.append(victim.wait())
        return A

    monkeypatch.setattr(os, "scandir", only_the_victim)
    monkeypatch.setattr(process_walk, "pod_of_process", end)
    walk = ProcessWalker(Path("/proc")).walk({A})
    assert ended
    assert walk == Walk()


@pytest.mark.parametrize("how", sorted(BREAKS))
@pytest.mark.parametrize("name", ["cgroup", "fdinfo", "fdinfo/3", "."])
def test_a_broken_file_affects_no_other_process(processes: Processes, name: str, how: str) -> None:
    processes.add(10, 1, xe(1, vram=1))
    processes.add(11, 1, xe(2, vram=2))
    break_file(processes.proc / "10" / name, how)
    walk = ProcessWalker(processes.proc).walk({A})
    assert found(walk) == [(A, 2, 2)]
    assert len(walk.problems) <= 1


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        pytest.param(errno.ENOENT, "", id="vanished"),
        pytest.param(errno.ESRCH, "", id="ended"),
        pytest.param(errno.EINVAL, "some processes of pods cannot be read: Invalid argument", id="EINVAL"),
        pytest.param(errno.ENODEV, "some processes of pods cannot be read: No such device", id="ENODEV"),
        pytest.param(errno.EIO, "some processes of pods cannot be read: Input/output error", id="EIO"),
        pytest.param(
            errno.EACCES,
            "the files of processes of pods cannot be read: Permission denied; give the plugin the capability "
            "SYS_PTRACE, and let AppArmor or SELinux permit it to read other processes",
            id="EACCES",
        ),
    ],
)
@pytest.mark.parametrize("name", ["cgroup", "fdinfo/3"])
def test_a_read_that_fails_is_one_sentence(
    processes: Processes, monkeypatch: pytest.MonkeyPatch, name: str, code: int, problem: str
) -> None:
    for pid in range(10, 30):
        processes.add(pid, 1, xe(pid))
    real_open = os.open

    def fail(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if path == name and not str(Path(f"/proc/self/fd/{dir_fd}").readlink()).endswith("/29"):
            raise OSError(code, os.strerror(code))
        return real_open(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", fail)
    walk = ProcessWalker(processes.proc).walk({A})
    assert found(walk) == [(A, 29, 0)]
    assert list(walk.problems) == ([problem] if problem else [])


def test_a_malformed_client_is_one_sentence_and_others_count(processes: Processes) -> None:
    processes.add(10, 1, xe(1).replace("xe\n", "xe\ndrm-client-id: 9\n"), xe(2))
    processes.add(11, 1, xe(3).replace("xe\n", "xe\ndrm-client-id: 9\n"))
    walk = ProcessWalker(processes.proc).walk({A})
    assert found(walk) == [(A, 2, 0)]
    assert list(walk.problems) == [f"a client of a card in pod {A} is left out: fdinfo states 'drm-client-id' twice"]


def test_a_process_with_very_many_files_is_read_up_to_a_limit(processes: Processes) -> None:
    processes.add(10, 1, *[PLAIN_FILE] * MOST_FILES)
    processes.write(10, {2: xe(1), MOST_FILES + 1000: xe(2)})
    assert found(ProcessWalker(processes.proc).walk({A})) == [(A, 1, 0)]


def test_ten_thousand_processes_of_the_node(processes: Processes) -> None:
    for pid in range(1, 10_001):
        (processes.proc / str(pid)).mkdir()
        (processes.proc / str(pid) / "cgroup").write_text(cgroup(None))
    processes.add(20_000, 1, xe(1))
    pauses: list[None] = []
    walk = ProcessWalker(processes.proc, pause=lambda: pauses.append(None)).walk({A})
    assert found(walk) == [(A, 1, 0)]
    assert len(pauses) == 20_003 // process_walk.SLICE, "other threads work in between"


def test_a_list_of_processes_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(CannotWalk) as raised:
        ProcessWalker(tmp_path / "nowhere").walk({A})
    assert str(raised.value) == (
        f"cannot list the processes of this node: {tmp_path}/nowhere: No such file or directory"
    )


def test_no_descriptor_is_left_open(processes: Processes) -> None:
    processes.add(10, 1, xe(1), PLAIN_FILE)
    processes.add(11, None)
    (processes.add(12, 1) / "cgroup").unlink()
    walker = ProcessWalker(processes.proc)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        walker.walk({A})
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_another_thread_works_during_a_walk(processes: Processes) -> None:
    """A slice of a walk is short even where all processes belong to pods."""
    for pid in range(10, 10 + 2 * process_walk.SLICE):
        processes.add(pid, 1, xe(pid))
    turns: list[int] = []
    main = threading.Event()

    def pause() -> None:
        turns.append(1)
        main.set()

    thread = threading.Thread(target=ProcessWalker(processes.proc, pause=pause).walk, args=({A},))
    thread.start()
    assert main.wait(10)
    thread.join(10)
    assert len(turns) == 6, "for each process, its cgroup and its file"
