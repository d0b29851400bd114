from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gas.plugin.kept_file import KeptFile
from gas.plugin.nfd.nfd_file import remove_feature_file, write_feature_file
from tests.plugin.scripted_kubelet import eventually

PATIENCE = 20


@asynccontextmanager
async def running(kept: KeptFile) -> AsyncIterator[KeptFile]:
    task = asyncio.create_task(kept.run())
    try:
        yield kept
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def keeps(kept: KeptFile, text: str) -> None:
    """Wait until the file has this text."""
    kept.want(text)
    await kept.first_check(PATIENCE)


async def test_a_wanted_text_is_written_at_the_first_check(tmp_path: Path) -> None:
    file = tmp_path / "file"
    async with running(KeptFile(file, write_feature_file)) as kept:
        await keeps(kept, "one\n")
        assert file.read_text() == "one\n"
        kept.want("two\n")
        await eventually(lambda: file.read_text() == "two\n")
        assert kept.trouble is None


async def test_waiting_for_the_first_check_has_a_limit(tmp_path: Path) -> None:
    kept = KeptFile(tmp_path / "file", write_feature_file)
    began = time.monotonic()
    await kept.first_check(0.05)
    assert time.monotonic() - began < PATIENCE


async def test_an_equal_text_is_not_written_again(tmp_path: Path) -> None:
    written: list[str] = []

    def write(path: Path, text: str) -> None:
        written.append(text)
        write_feature_file(path, text)

    async with running(KeptFile(tmp_path / "file", write, retry=0.01)) as kept:
        await keeps(kept, "one\n")
        await asyncio.sleep(0.1)
        kept.want("two\n")
        await eventually(lambda: "two\n" in written)
    assert written == ["one\n", "two\n"]


async def test_a_file_that_could_not_be_written_or_was_removed_is_written_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    directory = tmp_path / "features"
    file = directory / "file"
    async with running(KeptFile(file, write_feature_file, retry=0.01)) as kept:
        await keeps(kept, "one\n")
        assert kept.trouble is not None
        await asyncio.sleep(0.05)
        assert [record.getMessage() for record in caplog.records] == [kept.trouble]
        directory.mkdir()
        await eventually(file.exists)
        await eventually(lambda: kept.trouble is None)
        file.unlink()
        await eventually(file.exists)


@pytest.mark.parametrize("what", ["pipe", "directory", "device"])
async def test_other_than_plain_files_stay_and_block_nothing(tmp_path: Path, what: str) -> None:
    file = tmp_path / "file"
    {"pipe": os.mkfifo, "directory": os.mkdir, "device": lambda path: path.symlink_to("/dev/null")}[what](file)
    before = file.lstat()
    async with running(KeptFile(file, write_feature_file, retry=0.01)) as kept:
        await keeps(kept, "one\n")
        assert kept.trouble is not None
        assert "not a plain file" in kept.trouble
        await kept.end(remove_feature_file)
    after = file.lstat()  # reading through a link changes the time of its last access
    assert (after.st_ino, after.st_mode, after.st_mtime_ns) == (before.st_ino, before.st_mode, before.st_mtime_ns)


async def test_a_disk_that_hangs_is_reported_and_stops_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gas.plugin.kept_file.LAST_CHECK", 0.05)
    answers = threading.Event()
    file = tmp_path / "file"

    def write(path: Path, text: str) -> None:
        answers.wait(PATIENCE)
        write_feature_file(path, text)

    async with running(KeptFile(file, write, slow=0.01)) as kept:
        kept.want("one\n")
        await eventually(lambda: kept.trouble is not None)
        assert kept.trouble == f"writing {file} has taken over 0.01 s; its disk does not respond"
        answers.set()
        await eventually(lambda: kept.trouble is None)
        assert file.read_text() == "one\n"
        answers.clear()
        kept.want("two\n")
        await eventually(lambda: kept.trouble is not None)
        await kept.end(remove_feature_file)
        assert caplog.messages[-1] == f"cannot remove {file}: its disk does not respond; remove it by hand"
    answers.set()


class TestTwoThatKeepTheSameFile:
    """As in a rolling update: the new one starts before the old one ends."""

    async def test_the_later_program_owns_the_file_and_the_earlier_one_leaves_it(self, tmp_path: Path) -> None:
        file = tmp_path / "file"
        async with running(KeptFile(file, write_feature_file)) as old:
            await keeps(old, "one\n")
            async with running(KeptFile(file, write_feature_file)) as new:
                await keeps(new, "one\n")
                await old.end(remove_feature_file)
                assert file.read_text() == "one\n"
                await new.end(remove_feature_file)
                assert not file.exists()

    async def test_a_held_file_is_written_again_once_it_resumes(self, tmp_path: Path) -> None:
        file = tmp_path / "file"
        async with running(KeptFile(file, write_feature_file, retry=0.01)) as kept:
            await keeps(kept, "one\n")
            kept.hold()
            write_feature_file(file, "another's\n")
            kept.want("two\n")
            await asyncio.sleep(0.1)
            assert file.read_text() == "another's\n"
            kept.resume()
            await eventually(lambda: file.read_text() == "two\n")

    async def test_an_ended_file_is_not_written_any_more(self, tmp_path: Path) -> None:
        file = tmp_path / "file"
        async with running(KeptFile(file, write_feature_file, retry=0.01)) as kept:
            await keeps(kept, "one\n")
            await kept.end(remove_feature_file)
            kept.want("two\n")
            await asyncio.sleep(0.05)
        assert not file.exists()

    async def test_a_program_that_never_wrote_removes_nothing(self, tmp_path: Path) -> None:
        file = tmp_path / "file"
        file.write_text("another's\n")
        await KeptFile(file, write_feature_file).end(remove_feature_file)
        assert file.exists()
