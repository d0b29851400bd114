"""Scans for NVIDIA's cards in a process of their own, because a process loads their driver's library only once."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_REPOSITORY = str(Path(__file__).parents[2])
_SCANS = """
import json, sys
from dataclasses import asdict
from pathlib import Path
from gas.plugin.nvml.nvml_cards import NvmlCards
from gas.plugin.nvml.nvml_library import Nvml
from gas.plugin.nvml.part import CATALOGUE, parse_xids
cards = NvmlCards(Path(sys.argv[1]), Nvml(), within=float(sys.argv[2]), ignored_xids=parse_xids(CATALOGUE))
for _ in sys.stdin:
    found = cards.read()
    processes, problems = cards.processes()
    said = {"gpus": [asdict(gpu) for gpu in found.gpus], "problems": [*found.problems, *problems]}
    said |= {"broken": sorted(found.broken), "processes": processes, "container_fault": found.container_fault}
    print(json.dumps(said, default=sorted), flush=True)
"""


def has_library() -> bool:
    """Return whether this machine has NVIDIA's library."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


class Scans:
    """A process that scans whenever it is asked to. It is a context manager.

    environment  variables beside those of this process
    root         the directory of ``/sys`` and ``/dev``
    within       seconds to wait for the cards
    under        a command that starts the process, such as one that takes rights away
    """

    def __init__(
        self,
        environment: Mapping[str, str] | None = None,
        *,
        root: Path = Path("/nowhere"),
        within: float = 30,
        under: Sequence[str] = (),
    ) -> None:
        self._process = subprocess.Popen(
            [*under, sys.executable, "-c", _SCANS, str(root), str(within)],
            env={**os.environ, "PYTHONPATH": _REPOSITORY, **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def scan(self) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return dict(json.loads(self._process.stdout.readline()))

    def __enter__(self) -> Scans:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
