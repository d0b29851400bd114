"""kube-scheduler's own command line, as a manifest gives it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

CONFIG = "config"

POLICY_FLAGS = ("policy-config-file", "policy-configmap", "policy-configmap-namespace", "use-legacy-policy-config")
"""How kube-scheduler was told of extenders until 1.22; in later releases they keep it from starting."""

ORIGINAL_POLICY = "scheduler-extender-policy"
"""The policy that the original's users were told to make. Its extenders are what the configuration holds now."""

_CARRIED: Mapping[str, tuple[str, ...]] = {
    "kubeconfig": ("clientConnection", "kubeconfig"),
    "kube-api-content-type": ("clientConnection", "contentType"),
    "kube-api-qps": ("clientConnection", "qps"),
    "kube-api-burst": ("clientConnection", "burst"),
    "profiling": ("enableProfiling",),
    "contention-profiling": ("enableContentionProfiling",),
    "lock-object-namespace": ("leaderElection", "resourceNamespace"),
    "lock-object-name": ("leaderElection", "resourceName"),
}


@dataclass(frozen=True, slots=True)
class SchedulerFlags:
    """The flags of a command line.

    values  name without dashes -> value; of several the last. A boolean without a value is ``true``
    places  name -> the indices of the words that say it, in the list of words
    """

    values: Mapping[str, str]
    places: Mapping[str, tuple[int, ...]]

    @classmethod
    def read(cls, words: Sequence[str]) -> SchedulerFlags:
        """From the words of a container's ``command`` or ``args``; those that are no flags are passed over."""
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
                    if index + 1 < len(words) and not words[index + 1].startswith("-"):
                        value = words[index + 1]
                        used = (index, index + 1)
                values[name] = value
                places[name] = places.get(name, ()) + used
            index = used[-1] + 1
        return cls(values, places)

    def configuration(self, *, minor: int) -> dict[tuple[str, ...], object]:
        """Path in a configuration -> value, for the flags that kube-scheduler ignores once it is given a file.

        Without them a scheduler that was told ``--profiling=false`` would serve profiles again, and 1.22 would open the
        port without TLS that ``--port=0`` had closed.
        """
        found: dict[tuple[str, ...], object] = {}
        for name, path in _CARRIED.items():
            if name in self.values:
                found[path] = _typed(self.values[name])
        if minor <= 22 and self.values.get("port") == "0":
            found["healthzBindAddress",] = ""
            found["metricsBindAddress",] = ""
        return found


def _typed(text: str) -> object:
    if text in ("true", "false"):
        return text == "true"
    if text.isascii() and text.isdigit() and len(text) < 18:
        return int(text)
    return text
