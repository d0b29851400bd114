"""How the tests run: in how many processes, and how properties are searched.

Properties are searched without a clock, since machines are noisy; in CI always with the same examples.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return one process more than there are cores: a third of the time, tests wait for sockets and programs."""
    return len(os.sched_getaffinity(0)) + 1
