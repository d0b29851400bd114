"""kube-scheduler's own command line, as a manifest gives it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from configurator.errors import ConfiguratorError

CONFIG = "config"

POLICY_FLAGS = ("policy-config-file", "policy-configmap", "policy-configmap-namespace", "use-legacy-policy-config")
"""How kube-scheduler was told of extenders until 1.22; in later releases they keep it from starting."""

ORIGINAL_POLICY = "scheduler-extender-policy"
"""The policy that the original's users were told to make. Its extenders are what the configuration holds now."""

_SWITCH = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}
"""Every way in which Go's flags write a boolean; a configuration knows only two of them."""

_NUMBER = re.compile(r"[-+]?([0-9]{1,17}\.?[0-9]{0,17}|\.[0-9]{1,17})([eE][-+]?[0-9]{1,2})?", re.ASCII)
_INTEGER = re.compile(r"[-+]?([1-9][0-9]{0,9}|0|0[xX][0-9a-fA-F]{1,8}|0[bB][01]{1,31}|0[oO][0-7]{1,11})", re.ASCII)


def _switch(text: str) -> bool:
    if text not in _SWITCH:
        raise ValueError("true or false")
    return _SWITCH[text]


def _number(text: str) -> int | float:
    found = float(text) if _NUMBER.fullmatch(text) else None
    if found is not None and found.is_integer() and abs(found) < 1e17:
        return int(found)
    if found is None or "e" in repr(found):
        raise ValueError("a number such as 50")
    return found


def _integer(text: str) -> int:
    found = int(text, 0) if _INTEGER.fullmatch(text) else None
    if found is None or not -(2**31) <= found < 2**31:
        raise ValueError("a whole number such as 100")
    return found


_CARRIED: Mapping[str, tuple[tuple[str, ...], Callable[[str], object]]] = {
    "kubeconfig": (("clientConnection", "kubeconfig"), str),
    "kube-api-content-type": (("clientConnection", "contentType"), str),
    "kube-api-qps": (("clientConnection", "qps"), _number),
    "kube-api-burst": (("clientConnection", "burst"), _integer),
    "profiling": (("enableProfiling",), _switch),
    "contention-profiling": (("enableContentionProfiling",), _switch),
    "lock-object-namespace": (("leaderElection", "resourceNamespace"), str),
    "lock-object-name": (("leaderElection", "resourceName"), str),
}
"""Flag -> its place in a configuration, and what kind of value has to be there."""


@dataclass(frozen=True, slots=True)
class SchedulerFlags:
    """The flags of a command line.

    values  name without dashes -> value; of several the last. A boolean without a value is ``true``
    places  name -> the indices of the words that say it, among all words
    """

    values: Mapping[str, str]
    places: Mapping[str, tuple[int, ...]]

    @classmethod
    def read(cls, words: Sequence[str]) -> SchedulerFlags:
        """From a container's ``command`` and then its ``args``; words that are no flags are passed over."""
        values: dict[str, str] = {}
        places: dict[str, tuple[int, ...]] = {}
        index = 0
        while index < len(words):
            word = words[index]
            used: tuple[int, ...] = (index,)
            if word.startswith("--") and len(word) > 2:
                name, equals, value = word[2:].partition("=")
                if not equals:
                    value = "true"
                    if index + 1 < len(words) and _takes(name, words[index + 1]):
                        value = words[index + 1]
                        used = (index, index + 1)
                values[name] = value
                places[name] = places.get(name, ()) + used
            index = used[-1] + 1
        return cls(values, places)

    def configuration(self, *, minor: int) -> dict[tuple[str, ...], object]:
        """Path in a configuration -> value, for the flags that kube-scheduler ignores once it is given a file.

        Without them a scheduler that was told ``--profiling=false`` would serve profiles again, and 1.22 would open the
        port without TLS that ``--port=0`` had closed. Raises ConfiguratorError for a value that kube-scheduler itself
        could not read.
        """
        found: dict[tuple[str, ...], object] = {}
        for name, (path, typed) in _CARRIED.items():
            if name not in self.values:
                continue
            try:
                found[path] = typed(self.values[name])
            except ValueError as expected:
                raise ConfiguratorError(
                    f"kube-scheduler is told --{name}={self.values[name][:200]}, and its configuration has to say the "
                    f"same; expected {expected}"
                ) from None
        if minor <= 22 and self.values.get("port") == "0":
            found["healthzBindAddress",] = ""
            found["metricsBindAddress",] = ""
        return found


def _takes(name: str, following: str) -> bool:
    """Whether the word after a flag without ``=`` is its value. A boolean's never is."""
    if name in _CARRIED:
        return _CARRIED[name][1] is not _switch
    return name == CONFIG or not following.startswith("-")
