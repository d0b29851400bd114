"""``python -m tests.e2e.stand_in_driver``: the plugin, with a double of the cards' render nodes.

No machine of these tests has a card, so each driver replies with the regions that are in the environment, in bytes and
divided by commas. All else is real.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path

from gas.daemon.command import own_version, quiet_end_on_signals, run_command, run_daemon
from gas.plugin.assembly import NodeInterfaces, sysfs_cards
from gas.plugin.environment import Environment
from gas.plugin.flags import COMMAND_LINE, Flags, parse_flags
from gas.plugin.program import run_plugin

REGIONS = "GAS_E2E_REGIONS"


def regions(_node: Path, _driver: str) -> tuple[int, ...]:
    return tuple(map(int, os.environ[REGIONS].split(",")))


def main() -> int:
    def run(flags: Flags) -> int:
        interfaces = NodeInterfaces(cards=partial(sysfs_cards, query=regions))
        return run_daemon(flags, partial(run_plugin, flags, Environment(), own_version(), interfaces=interfaces))

    with quiet_end_on_signals():
        return run_command(COMMAND_LINE, sys.argv[1:], parse=parse_flags, run=run)


if __name__ == "__main__":
    sys.exit(main())
