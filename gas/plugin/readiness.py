"""Whether kubelet can give away every card that this node has, and why not."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gas.plugin.discovery.rescan import Scanner
from gas.plugin.kubelet.device_server import DeviceServer
from gas.plugin.kubelet.registration import Registration, State


class Readiness:
    """Asked from outside: a DaemonSet goes on to its next node when this plugin is ready.

    Ready is a plugin that has looked at its cards once, with kubelet watching every resource of which there is, or
    was, a card. A node without cards is ready: there is nothing to hand out. The cluster's API has no say, as cards
    are given out without it.

    stopping  set when the program was told to end
    """

    def __init__(self, scanner: Scanner, resources: Mapping[DeviceServer, Registration]) -> None:
        self.stopping = False
        self._scanner = scanner
        self._resources = resources

    def why_not(self) -> str | None:
        """A sentence while it is not ready, else None."""
        if self.stopping:
            return "the plugin is stopping"
        if self._scanner.stuck is not None:
            return self._scanner.stuck
        if not self._scanner.finished:
            return "the cards of this node have not been looked at yet"
        missing = self._missing()
        return "; ".join(missing) if missing else None

    def _missing(self) -> Collection[str]:
        return [
            registration.trouble or f"kubelet does not watch {server.resource} yet"
            for server, registration in self._resources.items()
            if server.devices is not None and registration.state is not State.WATCHED
        ]
