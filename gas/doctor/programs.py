"""Which program a container runs: by its command, and by its image's name where only that tells."""

from __future__ import annotations

import re
from enum import StrEnum
from posixpath import basename

from gas.doctor.objects import Container, Details

_VERSION = re.compile(r"v?([0-9]{1,4})\.([0-9]{1,4})(?:[.\-+].*)?", re.ASCII)
_FIRST_WORDS = 3
"""The program stands among these: ``gas-extender``, ``python3 -m gas.extender``."""

LAST_THAT_OBEYS = (0, 32)
"""Release of Intel's GPU device plugin; the next one, v0.34.0, reads no annotations and writes no labels."""


class Program(StrEnum):
    EXTENDER = "gas-extender"
    PLUGIN = "gas-plugin"
    ORIGINAL_EXTENDER = "Intel's GPU Aware Scheduling"
    INTEL_PLUGIN = "Intel's GPU device plugin"
    NFD = "Node Feature Discovery"
    SCHEDULER = "kube-scheduler"


def program_of(container: Container) -> Program | None:
    """The program of a container, if it is one that matters here."""
    words = [*(container.command or ()), *(container.args or ())]
    heads = {basename(word) for word in words[:_FIRST_WORDS]}
    image = image_name(container)
    if image == "gpu-extender":
        return Program.ORIGINAL_EXTENDER
    if image == "intel-gpu-plugin":
        return Program.INTEL_PLUGIN
    if not heads.isdisjoint(("gas-extender", "gas.extender")) or "/extender" in words[:1]:
        return Program.EXTENDER
    if not heads.isdisjoint(("gas-plugin", "gas.plugin")):
        return Program.PLUGIN
    if "kube-scheduler" in heads or (not container.command and image == "kube-scheduler"):
        return Program.SCHEDULER
    if (image is not None and image.startswith("node-feature-discovery")) or not heads.isdisjoint(("nfd-master",)):
        return Program.NFD
    return None


def containers_with(details: Details, program: Program) -> list[Container]:
    """The containers of a pod that run the program."""
    return [container for container in details.spec.containers or () if program_of(container) is program]


def image_name(container: Container) -> str | None:
    """``intel/intel-gpu-plugin:0.32.1`` -> ``intel-gpu-plugin``."""
    if not container.image:
        return None
    return basename(container.image.partition("@")[0]).partition(":")[0]


def image_version(container: Container) -> tuple[int, int] | None:
    """``…:v0.34.1-ubi`` -> (0, 34); None when the tag says no release."""
    tag = basename((container.image or "").partition("@")[0]).partition(":")[2]
    match = _VERSION.fullmatch(tag)
    return (int(match[1]), int(match[2])) if match is not None else None


def flag_value(container: Container, name: str) -> str | None:
    """The last value of a flag on a container's command line, in Go's spelling; a flag alone is ``true``."""
    value = None
    words = [*(container.command or ()), *(container.args or ())]
    for at, word in enumerate(words):
        flag, equals, text = word.partition("=")
        if flag not in (f"-{name}", f"--{name}"):
            continue
        following = words[at + 1] if at + 1 < len(words) else "-"
        value = text if equals else ("true" if following.startswith("-") else following)
    return value


def is_on(container: Container, name: str, *, default: bool) -> bool:
    """The value of a boolean flag, which takes a value only after ``=``."""
    value = flag_value(container, name)
    return default if value is None else value.lower() not in ("0", "f", "false")
