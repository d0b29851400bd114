"""Derive what each pod uses of each card from walks over the processes, without counting anything twice.

Memory is a level: it is what the last walk found. Engine time is a counter that never falls: it grows by what each
client has used since the plugin saw it first.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from gas.plugin.usage.fdinfo import Client, EngineTime
from gas.plugin.usage.process_walk import SeenClient
from gas.values.card_facts import CardFacts
from gas.values.cards import Card

FORGET_AFTER = 300.0  # seconds for which an unseen client is remembered: its process may only have been unreadable

_TOLERANCE = 2.0
"""Factor on what is possible of engine time, because a walk does not read all clients at once, and of a client's
memory."""

ClientKey = tuple[str, int]  # PCI address of the card and id of the client


@dataclass(frozen=True, slots=True)
class EngineUse:
    seconds: float  # of one engine's time, since the plugin has seen the pod
    busy: float = 0.0  # share of all engines of the class between the last two walks, 0 to 1


@dataclass(frozen=True, slots=True)
class MeasuredUse:
    memory: int = 0  # bytes of the card's own memory, at most what the card has
    clients: int = 0  # number of clients of the card that the pod's processes have open
    engines: Mapping[str, EngineUse] = field(default_factory=dict)  # by the driver's name of the class


@dataclass(slots=True)
class _Progress:
    """The last reading of a client's engine that was not below an earlier one."""

    time: EngineTime
    at: float


@dataclass(slots=True)
class _Record:
    """A client: its pod, when it was last seen, and how far its engines have come."""

    pod: str
    seen: float
    engines: dict[str, _Progress] = field(default_factory=dict)


def _can_hold(gpu: CardFacts, client: Client) -> bool:
    """Return whether the memory of a client is possible. Buffers may count twice, and the size be a little low."""
    return gpu.memory_size is None or client.memory <= _TOLERANCE * gpu.memory_size


class PodUsages:
    """The use of every pod, updated by each walk.

    A client counts for one pod, even if processes of several have it open: for the pod that was seen with it first, and
    of several at once for the one with the smallest UID.
    """

    def __init__(self) -> None:
        self.pods: Mapping[str, Mapping[Card, MeasuredUse]] = {}
        """By UID and card, as of the last update. A pod without any client is left out."""
        self._records: dict[ClientKey, _Record] = {}
        self._seconds: dict[tuple[str, Card, str], float] = {}

    def update(
        self, seen: Iterable[SeenClient], *, pods: Collection[str], cards: Mapping[str, CardFacts], now: float
    ) -> None:
        """Update the use by one walk.

        pods   UIDs of the pods that exist, as in their cgroups; others are forgotten
        cards  of this node, by PCI address; clients of others, or with impossible memory, are ignored
        now    seconds of a monotonic clock
        """
        self._forget(pods, now)
        clients: dict[ClientKey, list[Client]] = {}
        owners: dict[ClientKey, set[str]] = {}
        for pod, client in seen:
            gpu = cards.get(client.pci_address)
            if pod in pods and gpu is not None and _can_hold(gpu, client):
                key = (client.pci_address, client.id)
                clients.setdefault(key, []).append(client)
                owners.setdefault(key, set()).add(pod)
        memory: dict[tuple[str, Card], int] = {}
        count: dict[tuple[str, Card], int] = {}
        busy: dict[tuple[str, Card, str], float] = {}
        for key, readings in clients.items():
            card = cards[key[0]].card
            record = self._record(key, owners[key], now)
            place = (record.pod, card)
            memory[place] = memory.get(place, 0) + max(reading.memory for reading in readings)
            count[place] = count.get(place, 0) + 1
            for name, time in _latest(readings).items():
                seconds, share = _advance(record.engines, name, time, now)
                engine = (record.pod, card, name)
                self._seconds[engine] = self._seconds.get(engine, 0.0) + seconds
                busy[engine] = min(busy.get(engine, 0.0) + share, 1.0)
        engines: dict[tuple[str, Card], dict[str, EngineUse]] = {}
        for (pod, card, name), seconds in sorted(self._seconds.items()):
            engines.setdefault((pod, card), {})[name] = EngineUse(seconds, busy.get((pod, card, name), 0.0))
        sizes = {gpu.card: gpu.memory_size for gpu in cards.values()}
        found: dict[str, dict[Card, MeasuredUse]] = {}
        for pod, card in sorted({*memory, *engines}):
            used = memory.get((pod, card), 0)
            size = sizes.get(card)
            found.setdefault(pod, {})[card] = MeasuredUse(
                memory=used if size is None else min(used, size),
                clients=count.get((pod, card), 0),
                engines=engines.get((pod, card), {}),
            )
        self.pods = found

    def _forget(self, pods: Collection[str], now: float) -> None:
        """Forget pods that are gone, and clients of them or not seen for long."""
        self._seconds = {engine: seconds for engine, seconds in self._seconds.items() if engine[0] in pods}
        self._records = {
            key: record
            for key, record in self._records.items()
            if record.pod in pods and now - record.seen < FORGET_AFTER
        }

    def _record(self, key: ClientKey, owners: Collection[str], now: float) -> _Record:
        """Return the record of a client that was seen, a new one if the client is new or its pod has lost it."""
        record = self._records.get(key)
        if record is None or record.pod not in owners:
            record = self._records[key] = _Record(min(owners), now)
        record.seen = now
        return record


def _latest(readings: Iterable[Client]) -> dict[str, EngineTime]:
    """Return the largest reading of each engine, since one walk may read the same client several times."""
    latest: dict[str, EngineTime] = {}
    for reading in readings:
        for name, time in reading.engines.items():
            if name not in latest or time.busy > latest[name].busy:
                latest[name] = time
    return latest


def _advance(engines: dict[str, _Progress], name: str, time: EngineTime, now: float) -> tuple[float, float]:
    """Note a reading. Return the engine seconds since the one before, and their share of what was possible.

    A reading below an earlier one is ignored until the counter has caught up, as the kernel's specification demands. A
    jump that no engine can have made counts for nothing.
    """
    before = engines.get(name)
    if before is None or (before.time.total is None) != (time.total is None):
        engines[name] = _Progress(time, now)
        return 0.0, 0.0
    elapsed = now - before.at
    used = time.busy - before.time.busy
    if used < 0 or elapsed <= 0:
        return 0.0, 0.0
    if time.total is None or before.time.total is None:
        seconds = used / 1e9
    elif (passed := time.total - before.time.total) > 0:
        seconds = min(used / passed, time.capacity) * elapsed
    else:
        return 0.0, 0.0
    engines[name] = _Progress(time, now)
    possible = elapsed * time.capacity
    return (seconds, min(seconds / possible, 1.0)) if seconds <= _TOLERANCE * possible else (0.0, 0.0)
