"""The names that the extender's serving certificate has to have."""

from __future__ import annotations

from collections.abc import Iterable

SERVICE = "gas-service.default.svc.cluster.local"
_LOCAL = ("localhost", "127.0.0.1", "::1")


def serving_names(host: str, more: Iterable[str] = ()) -> list[str]:
    """Without doubles, the host by which kube-scheduler calls first.

    A Service goes by shorter names as well; those of this machine are for who looks whether the extender answers.
    """
    names = [host, *_short_forms(host), SERVICE, *_short_forms(SERVICE), *_LOCAL, *more]
    return list(dict.fromkeys(names))


def _short_forms(host: str) -> list[str]:
    name, dot, rest = host.partition(".svc")
    parts = name.split(".")
    if not dot or (rest and not rest.startswith(".")) or len(parts) != 2:
        return []
    return [f"{name}.svc", name, parts[0]]
