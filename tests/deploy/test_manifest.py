"""The files that `make manifest` writes are current, and deploy/gas.yaml holds all objects."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.manifest import MANIFEST, ROOT, manifest, written
from tests.deploy.manifests import BASE, read

WRITTEN = written()


@pytest.mark.parametrize("file", WRITTEN, ids=lambda file: str(file.relative_to(ROOT)))
def test_the_file_is_current(file: Path) -> None:
    assert file.read_text(encoding="utf-8") == WRITTEN[file], "run `make manifest`"


def test_the_file_holds_every_object_of_both_bases() -> None:
    files = [file for base in ("extender", "plugin") for file in (BASE / base).glob("*.yaml")]
    wanted = [each for file in files if file.name != "kustomization.yaml" for each in read(file)]
    found = read(MANIFEST)
    assert len(found) == len(wanted)
    assert all(each in found for each in wanted)


def test_a_kustomization_that_changes_objects_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kustomization.yaml").write_text("resources: []\nnamePrefix: my-\n")
    with pytest.raises(ValueError, match="namePrefix: only resources can be written into one file"):
        manifest(tmp_path)
