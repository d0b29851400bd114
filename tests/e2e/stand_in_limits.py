"""``python -m tests.e2e.stand_in_limits``: the plugin, with ``pids`` in place of the cgroup controller ``dmem``.

The order of kubelet's calls, the cgroups and the writes are real. N MiB become a limit of N processes, which the kernel
accepts without a card. The node must have one card, whose PCI address is in the environment.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from gas.daemon.command import own_version, quiet_end_on_signals, run_command, run_daemon
from gas.plugin.flags import COMMAND_LINE, Environment, Flags, parse_flags
from gas.plugin.limits.limit_files import Dmem, Limits
from gas.plugin.limits.part import MEMORY_LIMITS, build_limits
from gas.plugin.program import run_plugin

CARD = "GAS_E2E_CARD"
MIB = 2**20


class Pids(Dmem):
    """The controller ``pids`` under the interface of ``dmem``. Its root has no capacity, so another file stands in."""

    name = "pids"
    capacity = "cgroup.procs"
    limits = "pids.max"
    region = f"drm/{os.environ.get(CARD, '')}/vram0"

    def parse_capacity(self, text: str) -> Mapping[str, int]:
        return {self.region: 2**40}

    def parse_limits(self, text: str) -> Limits:
        return {self.region: None if text.strip() == "max" else int(text) * MIB}

    def format_limit(self, region: str, limit: int | None) -> str:
        return "max" if limit is None else str(limit // MIB)


def main() -> int:
    def run(flags: Flags) -> int:
        limits = replace(MEMORY_LIMITS, build=partial(build_limits, controller=Pids()))
        return run_daemon(flags, lambda: run_plugin(flags, Environment(), own_version(), parts=[limits]))

    with quiet_end_on_signals():
        return run_command(COMMAND_LINE, sys.argv[1:], parse=parse_flags, run=run)


if __name__ == "__main__":
    sys.exit(main())
