"""Readiness: whether kubelet can allocate every card of this node, and if not, why."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gas.plugin.discovery.scanner import Scanner
from gas.plugin.kubelet.device_server import DeviceServer
from gas.plugin.kubelet.registration import Registration, State


class Readiness:
    """The plugin's state for ``/readyz``. A DaemonSet continues with its next node when this plugin is ready.

    The plugin is ready once it has scanned its cards and kubelet watches every resource that has, or had, a card. A
    node without cards is ready, since there is nothing to allocate. The cluster's API does not matter, since cards are
    allocated without it.

    stopping  set when the program is to stop
    """

    def __init__(self, scanner: Scanner, resources: Mapping[DeviceServer, Registration]) -> None:
        self.stopping = False
        self._scanner = scanner
        self._resources = resources

    def why_not(self) -> str | None:
        """Return why the plugin is not ready, as a sentence; None if it is."""
        if self.stopping:
            return "the plugin is stopping"
        if self._scanner.stuck is not None:
            return self._scanner.stuck
        if not self._scanner.finished:
            return "the cards of this node have not been scanned yet"
        missing = self._missing()
        return "; ".join(missing) if missing else None

    def _missing(self) -> Collection[str]:
        return [
            registration.trouble or f"kubelet does not watch {server.resource} yet"
            for server, registration in self._resources.items()
            if server.devices is not None and registration.state is not State.WATCHED
        ]
