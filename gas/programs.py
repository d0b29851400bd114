"""Recognise the program that a container runs, by its command or the name of its image, and read its flags."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from posixpath import basename

from gas.daemon.flags import flags_in
from gas.objects.stored import DetailedContainer, DetailedPod
from gas.vocabularies.selection import DEFAULT_NAMES, VOCABULARY_FLAGS

_VERSION = re.compile(r"v?([0-9]{1,4})\.([0-9]{1,4})(?:[.\-+].*)?", re.ASCII)
_FIRST_WORDS = 3  # first words of a command line that may be the program: ``gas-extender``, ``python3 -m gas.extender``

LAST_WITH_ANNOTATIONS = (0, 32)
"""Last release of Intel's GPU device plugin that obeys annotations. The next, v0.34.0, also writes no labels."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program that the checks know, by its name for people."""

    name: str
    runs_in: Callable[[DetailedContainer], bool]

    def __str__(self) -> str:
        return self.name


def starts(container: DetailedContainer, *names: str) -> bool:
    """Return whether one of the first words of a container's command line is one of these programs."""
    return any(basename(word) in names for word in _words(container)[:_FIRST_WORDS])


def _is_extender(container: DetailedContainer) -> bool:
    return not ORIGINAL_EXTENDER.runs_in(container) and (
        starts(container, "gas-extender", "gas.extender") or "/extender" in _words(container)[:1]
    )


def _is_of_control_plane(*names: str) -> Callable[[DetailedContainer], bool]:
    return lambda each: starts(each, *names) or (not each.command and image_name(each) in names)


EXTENDER = Program("gas-extender", _is_extender)
PLUGIN = Program("gas-plugin", lambda each: starts(each, "gas-plugin", "gas.plugin"))
ORIGINAL_EXTENDER = Program("Intel's GPU Aware Scheduling", lambda each: image_name(each) == "gpu-extender")
INTEL_PLUGIN = Program("Intel's GPU device plugin", lambda each: image_name(each) == "intel-gpu-plugin")
SCHEDULER = Program("kube-scheduler", _is_of_control_plane("kube-scheduler", "koord-scheduler"))
API_SERVER = Program("kube-apiserver", _is_of_control_plane("kube-apiserver"))
PROGRAMS = (EXTENDER, PLUGIN, ORIGINAL_EXTENDER, INTEL_PLUGIN, SCHEDULER, API_SERVER)


def containers_with(pod: DetailedPod, program: Program) -> list[DetailedContainer]:
    return [container for container in pod.spec.containers or () if program.runs_in(container)]


def image_name(container: DetailedContainer) -> str:
    """Return the last part of the image's name: ``intel/intel-gpu-plugin:0.32.1`` -> ``intel-gpu-plugin``."""
    return basename((container.image or "").partition("@")[0]).partition(":")[0]


def image_version(container: DetailedContainer) -> tuple[int, int] | None:
    """Return the release in the tag: ``…:v0.34.1-ubi`` -> (0, 34); None if it has none."""
    tag = basename((container.image or "").partition("@")[0]).partition(":")[2]
    match = _VERSION.fullmatch(tag)
    return (int(match[1]), int(match[2])) if match is not None else None


def flag_value(container: DetailedContainer, name: str) -> str | None:
    """Return the last value that `flag_values` returns for a flag; None without the flag."""
    return next(reversed(flag_values(container, name)), None)


def flag_values(container: DetailedContainer, name: str) -> list[str]:
    """Return all values of a flag, in Go's spelling, on a container's command line; ``true`` for a flag alone."""
    values: list[str] = []
    words = _words(container)
    for at, word in enumerate(words):
        flag, equals, text = word.partition("=")
        if flag not in (f"-{name}", f"--{name}"):
            continue
        following = words[at + 1] if at + 1 < len(words) else "-"
        values.append(text if equals else ("true" if following.startswith("-") else following))
    return values


def is_on(container: DetailedContainer, name: str, *, default: bool = False) -> bool:
    """Return the value of a boolean flag, which takes a value only after ``=``."""
    value = flag_value(container, name)
    return default if value is None else value.lower() not in ("0", "f", "false")


def vocabulary_flags(container: DetailedContainer) -> dict[str, str]:
    """Return the flags that decide which vocabularies a program understands, or their defaults."""
    of_vocabularies = {each.name: each.default or "" for kind in VOCABULARY_FLAGS for each in flags_in(kind)}
    return {
        "vocabularies": ",".join(flag_values(container, "vocabularies")) or DEFAULT_NAMES,
        **{name: flag_value(container, name) or default for name, default in of_vocabularies.items()},
    }


def _words(container: DetailedContainer) -> list[str]:
    return [*(container.command or ()), *(container.args or ())]
