"""The two extenders that are compared, each in its own process on loopback."""

import sys
from pathlib import Path

from gas.daemon.flags import flags_of
from gas.extender.command_line import COMMAND_LINE
from sandbox.certificates import Authority
from tests.e2e.extender import Extender
from tests.e2e.ports import free_port
from tests.e2e.programs import Program

ALL_VERBS_FLAGS = tuple(
    f"--{flag.name}{value}"
    for flag in flags_of(COMMAND_LINE)
    if (value := {"preemption": "", "node-score": "=balance"}.get(flag.name)) is not None
)
"""The flags with which the extender serves all the verbs that it has; the manifests set only --node-score."""


class BareExtender:
    """The extender that decides nothing."""

    def __init__(self, directory: Path, authority: Authority, kubeconfig: Path) -> None:
        self.port = free_port()
        serving = authority.server("bare-extender")
        options = {"cert": serving.certificate, "key": serving.key, "cacert": authority.certificate, "port": self.port}
        options["kubeconfig"] = kubeconfig
        command = [sys.executable, "-m", "benchmarks.bare_extender"]
        command += [f"--{name}={value}" for name, value in options.items()]
        self.program = Program("bare extender", command, log=directory / "bare-extender.log")

    def start(self) -> None:
        self.program.start()
        self.program.wait_until_healthy(self.port, lambda: True)


def our_extender(directory: Path, authority: Authority, kubeconfig: Path, *flags: str) -> Extender:
    """Return our extender, not started yet."""
    return Extender(
        "gas-extender",
        directory,
        kubeconfig=kubeconfig,
        serving=authority.server("gas-extender"),
        authority=authority,
        flags=flags,
    )
