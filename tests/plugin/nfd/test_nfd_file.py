from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gas.plugin.nfd.nfd_file import FEATURE_FILE, feature_text
from gas.plugin.published_file import FileFault

GPU = "gpu.intel.com/"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "features.d").mkdir()
    return tmp_path / "features.d/gpus.txt"


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
def test_labels_and_resources_are_lines_of_name_and_value() -> None:
    text = feature_text(
        {GPU + "gpu-numbers": "0.1", GPU + "gpu-numbers2": "Z2"}, {GPU + "tiles": 2, GPU + "memory.max": 5}
    )
    assert text == (
        "gpu.intel.com/gpu-numbers=0.1\n"
        "gpu.intel.com/gpu-numbers2=Z2\n"
        "gpu.intel.com/memory.max=5\n"
        "gpu.intel.com/tiles=2\n"
    )
    assert feature_text({}, {}) == ""


def test_the_file_is_replaced_and_nothing_else_is_left(path: Path) -> None:
    for text in ("a=1\n", "b=2\n"):
        FEATURE_FILE.write(path, text)
        assert path.read_text() == text
        assert list(path.parent.iterdir()) == [path]


# contract P5.6
def test_a_reader_sees_the_old_or_the_new_file(path: Path) -> None:
    FEATURE_FILE.write(path, "old\n")
    with path.open() as reader:
        FEATURE_FILE.write(path, "new\n")
        assert reader.read() == "old\n"
    assert path.read_text() == "new\n"


def test_files_left_by_a_killed_program_do_not_matter(path: Path) -> None:
    aside = path.parent / ".gpus.txt.new"
    aside.mkdir()
    (aside / "gpus.txt").write_text("half of i")
    FEATURE_FILE.write(path, "a=1\n")
    assert path.read_text() == "a=1\n"
    assert list(path.parent.iterdir()) == [path]


def test_a_full_disk_keeps_the_old_file(path: Path) -> None:
    FEATURE_FILE.write(path, "old\n")
    with full_disk(), pytest.raises(FileFault) as error:
        FEATURE_FILE.write(path, "something longer\n")
    assert str(error.value) == (
        f"cannot write the NFD feature file {path}: File too large; NFD keeps what it read before."
        f" {path.parent} must be a directory of the node that this program may write to"
    )
    assert path.read_text() == "old\n"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("folder", "why"),
    [
        pytest.param("nowhere", "No such file or directory", id="no-directory"),
        pytest.param("file", "Not a directory", id="a-file-in-its-place"),
        pytest.param("loop", "Too many levels of symbolic links", id="a-link-to-itself"),
    ],
)
def test_a_directory_that_cannot_be_written_is_an_error(tmp_path: Path, folder: str, why: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(FileFault, match=why):
        FEATURE_FILE.write(tmp_path / folder / "gpus.txt", "a=1\n")


# contract P5.6
def test_the_file_is_removed_when_the_program_ends(path: Path) -> None:
    FEATURE_FILE.write(path, "a=1\n")
    FEATURE_FILE.remove(path)
    assert list(path.parent.iterdir()) == []
    FEATURE_FILE.remove(path)


def test_a_file_that_cannot_be_removed_is_an_error(path: Path) -> None:
    path.mkdir()
    with pytest.raises(FileFault, match="cannot remove the NFD feature file"):
        FEATURE_FILE.remove(path)
