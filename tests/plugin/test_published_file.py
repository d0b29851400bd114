from __future__ import annotations

import asyncio
import logging
import os
import resource
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from gas.plugin import published_file
from gas.plugin.published_file import FileFault, FileKind, PublishedFile, replace_file
from tests.background import eventually, in_background

PATIENCE = 20


KIND = FileKind(name="file", unwritten="no program reads it")


@asynccontextmanager
async def running(published: PublishedFile) -> AsyncIterator[PublishedFile]:
    async with in_background(published.run()):
        yield published


async def publishes(published: PublishedFile, text: str) -> None:
    """Wait until the file has this text."""
    published.want(text)
    await published.first_check(PATIENCE)


async def test_a_wanted_text_is_written_at_the_first_check(tmp_path: Path) -> None:
    file = tmp_path / "file"
    async with running(PublishedFile(file, KIND)) as published:
        await publishes(published, "one\n")
        assert file.read_text() == "one\n"
        published.want("two\n")
        await eventually(lambda: file.read_text() == "two\n")
        assert published.trouble is None


async def test_waiting_for_the_first_check_has_a_limit(tmp_path: Path) -> None:
    published = PublishedFile(tmp_path / "file", KIND)
    began = time.monotonic()
    await published.first_check(0.05)
    assert time.monotonic() - began < PATIENCE


async def test_an_equal_text_is_not_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []

    def write(path: Path, text: str) -> None:
        written.append(text)
        replace_file(path, text)

    monkeypatch.setattr(published_file, "replace_file", write)
    async with running(PublishedFile(tmp_path / "file", KIND, retry=0.01)) as published:
        await publishes(published, "one\n")
        await asyncio.sleep(0.1)
        published.want("two\n")
        await eventually(lambda: "two\n" in written)
    assert written == ["one\n", "two\n"]


async def test_a_file_that_could_not_be_written_or_was_removed_is_written_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    directory = tmp_path / "features"
    file = directory / "file"
    async with running(PublishedFile(file, KIND, retry=0.01)) as published:
        await publishes(published, "one\n")
        assert published.trouble is not None
        await asyncio.sleep(0.05)
        assert [record.getMessage() for record in caplog.records] == [published.trouble]
        directory.mkdir()
        await eventually(file.exists)
        await eventually(lambda: published.trouble is None)
        file.unlink()
        await eventually(file.exists)


@pytest.mark.parametrize("what", ["pipe", "directory", "device"])
async def test_other_than_plain_files_stay_and_block_nothing(tmp_path: Path, what: str) -> None:
    file = tmp_path / "file"
    {"pipe": os.mkfifo, "directory": os.mkdir, "device": lambda path: path.symlink_to("/dev/null")}[what](file)
    before = file.lstat()
    async with running(PublishedFile(file, KIND, retry=0.01)) as published:
        await publishes(published, "one\n")
        assert published.trouble is not None
        assert "not a plain file" in published.trouble
        await published.end()
    after = file.lstat()  # reading through a link changes the time of its last access
    assert (after.st_ino, after.st_mode, after.st_mtime_ns) == (before.st_ino, before.st_mode, before.st_mtime_ns)


async def test_a_disk_that_hangs_is_reported_and_stops_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published_file, "LAST_CHECK", 0.05)
    answers = threading.Event()
    file = tmp_path / "file"

    def write(path: Path, text: str) -> None:
        answers.wait(PATIENCE)
        replace_file(path, text)

    monkeypatch.setattr(published_file, "replace_file", write)
    async with running(PublishedFile(file, KIND, slow=0.01)) as published:
        published.want("one\n")
        await eventually(lambda: published.trouble is not None)
        assert published.trouble == f"writing {file} has taken over 0.01 s; its disk does not respond"
        answers.set()
        await eventually(lambda: published.trouble is None)
        assert file.read_text() == "one\n"
        answers.clear()
        published.want("two\n")
        await eventually(lambda: published.trouble is not None)
        await published.end()
        assert caplog.messages[-1] == f"cannot remove {file}: its disk does not respond; remove it by hand"
    answers.set()


class TestTwoThatPublishTheSameFile:
    """As in a rolling update: the new one starts before the old one ends."""

    async def test_the_later_program_owns_the_file_and_the_earlier_one_leaves_it(self, tmp_path: Path) -> None:
        file = tmp_path / "file"
        async with running(PublishedFile(file, KIND)) as old:
            await publishes(old, "one\n")
            async with running(PublishedFile(file, KIND)) as new:
                await publishes(new, "one\n")
                await old.end()
                assert file.read_text() == "one\n"
                await new.end()
                assert not file.exists()

    async def test_a_held_file_is_written_again_once_it_resumes(self, tmp_path: Path) -> None:
        file = tmp_path / "file"
        async with running(PublishedFile(file, KIND, retry=0.01)) as published:
            await publishes(published, "one\n")
            published.hold()
            replace_file(file, "another's\n")
            published.want("two\n")
            await asyncio.sleep(0.1)
            assert file.read_text() == "another's\n"
            published.resume()
            await eventually(lambda: file.read_text() == "two\n")

    async def test_an_ended_file_is_not_written_any_more(self, tmp_path: Path) -> None:
        file = tmp_path / "file"
        async with running(PublishedFile(file, KIND, retry=0.01)) as published:
            await publishes(published, "one\n")
            await published.end()
            published.want("two\n")
            await asyncio.sleep(0.05)
        assert not file.exists()

    async def test_a_program_that_never_wrote_removes_nothing(self, tmp_path: Path) -> None:
        file = tmp_path / "file"
        file.write_text("another's\n")
        await PublishedFile(file, KIND).end()
        assert file.exists()


class TestWriting:
    @staticmethod
    @contextmanager
    def full_disk() -> Iterator[None]:
        """Limit the size of files that this process writes to a few bytes."""
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4, limits[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    # contract P5.6
    def test_a_reader_sees_the_old_or_the_new_file(self, tmp_path: Path) -> None:
        path = tmp_path / "made" / "file"
        kind = FileKind(name="file", unwritten="", makes_directory=True)
        kind.write(path, "old\n")
        with path.open() as reader:
            kind.write(path, "new\n")
            assert reader.read() == "old\n"
        assert path.read_text() == "new\n"
        assert list(path.parent.iterdir()) == [path], "nothing else is left"

    def test_files_left_by_a_killed_program_do_not_matter(self, tmp_path: Path) -> None:
        path = tmp_path / "file"
        aside = tmp_path / ".file.unfinished"
        aside.mkdir()
        (aside / "file").write_text("half of i")
        KIND.write(path, "a=1\n")
        assert path.read_text() == "a=1\n"
        assert list(tmp_path.iterdir()) == [path]

    def test_a_full_disk_keeps_the_old_file(self, tmp_path: Path) -> None:
        path = tmp_path / "file"
        KIND.write(path, "old\n")
        with self.full_disk(), pytest.raises(FileFault) as error:
            KIND.write(path, "something longer\n")
        assert str(error.value) == (
            f"cannot write the file {path}: File too large; no program reads it."
            f" {tmp_path} must be a directory of the node that this program may write to"
        )
        assert path.read_text() == "old\n"
        assert list(tmp_path.iterdir()) == [path]

    @pytest.mark.parametrize(
        ("folder", "makes_directory", "why"),
        [
            pytest.param("nowhere", False, "No such file or directory", id="no-directory"),
            pytest.param("file", False, "Not a directory", id="a-file-in-its-place"),
            pytest.param("file", True, "must be a directory of the node", id="a-file-where-it-would-be-made"),
            pytest.param("loop", False, "Too many levels of symbolic links", id="a-link-to-itself"),
        ],
    )
    def test_a_directory_that_cannot_be_written_is_an_error(
        self, tmp_path: Path, folder: str, makes_directory: bool, why: str
    ) -> None:
        (tmp_path / "file").touch()
        (tmp_path / "loop").symlink_to("loop")
        kind = FileKind(name="file", unwritten="", makes_directory=makes_directory)
        with pytest.raises(FileFault, match=why):
            kind.write(tmp_path / folder / "gpus.txt", "a=1\n")

    # contract P5.6
    def test_a_file_is_removed_once(self, tmp_path: Path) -> None:
        path = tmp_path / "file"
        KIND.write(path, "a=1\n")
        for _ in range(2):
            KIND.remove(path)
        assert list(tmp_path.iterdir()) == []
