from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from gas.plugin.kept_file import KeptFile
from gas.plugin.nfd_file import write_feature_file
from tests.plugin.scripted_kubelet import eventually


def test_a_wanted_text_is_there_at_once(tmp_path: Path) -> None:
    file = tmp_path / "file"
    kept = KeptFile(file, write_feature_file)
    kept.want("one\n")
    assert file.read_text() == "one\n"
    kept.want("two\n")
    assert file.read_text() == "two\n"
    assert kept.trouble is None


def test_an_equal_text_is_not_written_again(tmp_path: Path) -> None:
    file = tmp_path / "file"
    kept = KeptFile(file, write_feature_file)
    kept.want("one\n")
    before = file.stat().st_ino
    kept.want("one\n")
    assert file.stat().st_ino == before


async def test_a_file_that_could_not_be_written_or_was_taken_away_is_put_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    directory = tmp_path / "features"
    file = directory / "file"
    kept = KeptFile(file, write_feature_file, retry=0.01)
    kept.want("one\n")
    assert kept.trouble is not None
    task = asyncio.create_task(kept.run())
    try:
        await asyncio.sleep(0.05)
        assert [record.getMessage() for record in caplog.records] == [kept.trouble]
        directory.mkdir()
        await eventually(file.exists)
        await eventually(lambda: kept.trouble is None)
        file.unlink()
        await eventually(file.exists)
    finally:
        task.cancel()
