"""A library in place of NVIDIA's, built from C source: the plugin loads it through the real Python bindings."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

SOURCE = Path(__file__).parent / "nvml/nvml.c"
GIB = 2**30


def uuid(number: int) -> str:
    return f"GPU-00000000-0000-4000-8000-{number:012x}"


def mig_uuid(minor: int, gi: int, ci: int) -> str:
    return f"MIG-00000000-0000-4000-8000-{minor:04x}{gi:04x}{ci:04x}"


class FakeNvml:
    """The library in a directory of its own, and the file from which it reads the cards at every call."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._file = directory / "cards"
        self._directory = directory
        library = directory / "libnvidia-ml.so.1"
        command = ["cc", "-shared", "-fPIC", "-Wall", "-Werror", "-o", str(library), str(SOURCE)]
        subprocess.run(command, check=True, capture_output=True, text=True)
        self.write([])

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which a program finds the library."""
        return {"LD_LIBRARY_PATH": str(self._directory), "GAS_FAKE_NVML": str(self._file)}

    def write(self, lines: Iterable[str]) -> None:
        """Let the library return this from now on."""
        unfinished = self._file.with_suffix(".new")
        unfinished.write_text("".join(f"{line}\n" for line in lines), encoding="ascii")
        unfinished.replace(self._file)


def instance(minor: int, *, gi: int, ci: int, **fields: int | str) -> str:
    """Return the line of an instance of a card, of 40 GiB."""
    described: dict[str, int | str] = {"of": uuid(minor), "uuid": mig_uuid(minor, gi, ci), "gi": gi, "ci": ci}
    described |= {"name": "NVIDIA_H100_MIG_3g.40gb", "total": 40 * GIB}
    return "instance " + " ".join(f"{name}={value}" for name, value in (described | fields).items())


def card(minor: int, **fields: int | str) -> str:
    """Return the line of a card of 80 GiB, 1 GiB of it reserved."""
    described: dict[str, int | str] = {
        "uuid": uuid(minor),
        "minor": minor,
        "bus": 16 + minor,
        "id": 0x233010DE,
        "name": "NVIDIA_H100",
        "total": 80 * GIB,
        "reserved": GIB,
    }
    return "card " + " ".join(f"{name}={value}" for name, value in (described | fields).items())
