"""Recognise the program that a container runs: by its command, or by the name of its image."""

from __future__ import annotations

import re
from enum import StrEnum
from posixpath import basename

from gas.objects.stored import DetailedContainer, DetailedPod

_VERSION = re.compile(r"v?([0-9]{1,4})\.([0-9]{1,4})(?:[.\-+].*)?", re.ASCII)
_FIRST_WORDS = 3
"""The program is one of the first words: ``gas-extender``, ``python3 -m gas.extender``."""

LAST_WITH_ANNOTATIONS = (0, 32)
"""Last release of Intel's GPU device plugin that obeys annotations. The next, v0.34.0, also writes no labels."""


class Program(StrEnum):
    """A program that the checks know."""

    EXTENDER = "gas-extender"
    PLUGIN = "gas-plugin"
    ORIGINAL_EXTENDER = "Intel's GPU Aware Scheduling"
    INTEL_PLUGIN = "Intel's GPU device plugin"
    NVIDIA_PLUGIN = "NVIDIA's GPU device plugin"
    NFD = "Node Feature Discovery"
    SCHEDULER = "kube-scheduler"
    API_SERVER = "kube-apiserver"


def program_of(container: DetailedContainer) -> Program | None:
    """Return the program of a container; None if it is another one."""
    words = [*(container.command or ()), *(container.args or ())]
    heads = {basename(word) for word in words[:_FIRST_WORDS]}
    image = image_name(container)
    if image == "gpu-extender":
        return Program.ORIGINAL_EXTENDER
    if image == "intel-gpu-plugin":
        return Program.INTEL_PLUGIN
    if image == "k8s-device-plugin" or "nvidia-device-plugin" in heads:
        return Program.NVIDIA_PLUGIN
    if not heads.isdisjoint(("gas-extender", "gas.extender")) or "/extender" in words[:1]:
        return Program.EXTENDER
    if not heads.isdisjoint(("gas-plugin", "gas.plugin")):
        return Program.PLUGIN
    if "kube-scheduler" in heads or (not container.command and image == "kube-scheduler"):
        return Program.SCHEDULER
    if "kube-apiserver" in heads or (not container.command and image == "kube-apiserver"):
        return Program.API_SERVER
    if (image is not None and image.startswith("node-feature-discovery")) or not heads.isdisjoint(("nfd-master",)):
        return Program.NFD
    return None


def containers_with(pod: DetailedPod, program: Program) -> list[DetailedContainer]:
    """Return the containers of a pod that run the program."""
    return [container for container in pod.spec.containers or () if program_of(container) is program]


def image_name(container: DetailedContainer) -> str | None:
    """Return the last part of the image's name: ``intel/intel-gpu-plugin:0.32.1`` -> ``intel-gpu-plugin``."""
    if not container.image:
        return None
    return basename(container.image.partition("@")[0]).partition(":")[0]


def image_version(container: DetailedContainer) -> tuple[int, int] | None:
    """Return the release in the tag: ``…:v0.34.1-ubi`` -> (0, 34); None if it has none."""
    tag = basename((container.image or "").partition("@")[0]).partition(":")[2]
    match = _VERSION.fullmatch(tag)
    return (int(match[1]), int(match[2])) if match is not None else None


def flag_value(container: DetailedContainer, name: str) -> str | None:
    """Return the last value of a flag on a container's command line, as `flag_values` does; None without the flag."""
    return next(reversed(flag_values(container, name)), None)


def flag_values(container: DetailedContainer, name: str) -> list[str]:
    """Return all values of a flag, in Go's spelling, on a container's command line; ``true`` for a flag alone."""
    values: list[str] = []
    words = [*(container.command or ()), *(container.args or ())]
    for at, word in enumerate(words):
        flag, equals, text = word.partition("=")
        if flag not in (f"-{name}", f"--{name}"):
            continue
        following = words[at + 1] if at + 1 < len(words) else "-"
        values.append(text if equals else ("true" if following.startswith("-") else following))
    return values


def is_on(container: DetailedContainer, name: str, *, default: bool) -> bool:
    """Return the value of a boolean flag, which takes a value only after ``=``."""
    value = flag_value(container, name)
    return default if value is None else value.lower() not in ("0", "f", "false")
