"""Keep the map of the page: a compact record of each node, and which of them a browser has not seen yet.

A browser first gets all records, then those that have changed since the version that it has. Each change of a record
has a version of its own, so that a browser which cannot keep up is sent the changes in parts, and each part once.
"""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import msgspec

from gas.extender.hooks import Change, Observer
from gas.inspection.cluster import Cluster, natural
from gas.inspection.report import Booked
from gas.inspection.rows import card_rows, column_of, resources
from gas.values.quoted import escaped

HEALTHS = ("ok", "unhealthy", "gone", "disabled", "descheduled")
STATES = ("ready", "not ready", "cordoned")

MOST_MODELS = 256  # most different models on the map; all further ones are `OTHER_MODELS`
OTHER_MODELS = "other models"
LONGEST_MODEL = 80

FIELDS = 6  # fields of a card's record before the amounts of its resources
STEPS = 100  # use is sent in hundredths of what a card has, so that it does not change with every measurement
MOST_GONE = 5000  # most nodes that are gone and may still be on the map of a browser
MOST_IN_PART = 100_000  # Bytes of JSON in a part. Compressed it is about a quarter of that; a part is sent each second.

Record = list[Any]


class Changes(Observer):
    def __init__(self) -> None:
        self._names: dict[str, None] = {}

    def node_changed(self, node: str, _change: Change) -> None:
        self._names[node] = None

    def take(self) -> list[str]:
        """Return the names of changed nodes, and forget them."""
        names = list(self._names)
        self._names.clear()
        return names


class Board:
    """The records of all nodes with cards. ``version`` rises with each change of a record.

    ``epoch`` differs for each board: versions of different boards are not compared.
    """

    def __init__(self, epoch: str) -> None:
        self.epoch = epoch
        self.version = 0
        self._resources: tuple[str, ...] = ()
        self._layout = 0
        self._models: dict[str, int] = {"": 0}
        self._models_at = 0
        self._records: dict[str, bytes] = {}
        self._states: dict[str, int] = {}
        self._changed: OrderedDict[str, int] = OrderedDict()  # version of the last change of each node, the latest last
        self._gone: OrderedDict[str, int] = OrderedDict()
        self._forgotten = 0  # version up to which nodes that are gone are no longer known

    @property
    def name(self) -> str:
        """The epoch with the layout of records, which changes if cards get another resource."""
        return f"{self.epoch}.{self._layout}"

    def booked_shares(self) -> dict[str, float]:
        """Return the booked part of each resource over all cards."""
        sums = [0] * (2 * len(self._resources))
        for record in self._records.values():
            amounts = zip(sums, *(card[FIELDS:] for card in msgspec.json.decode(record)[2]), strict=True)
            sums = list(map(sum, amounts))
        of_resources = zip(map(column_of, self._resources), sums[::2], sums[1::2], strict=True)
        return {name: booked / capacity for name, booked, capacity in of_resources if capacity}

    def changed_states(self, cluster: Cluster) -> list[str]:
        """Return the nodes whose readiness has changed, which does not concern placement."""
        found = []
        for name, node in cluster.nodes.records.items():
            state = 2 if node.spec.unschedulable else int(not node.is_ready)
            if self._states.get(name) != state:
                self._states[name] = state
                found.append(name)
        return found

    def update(self, cluster: Cluster, names: list[str]) -> Iterator[None]:
        """Make the records of these nodes again. Yields after each node, so that other tasks can run."""
        known = resources(cluster)
        if known != self._resources:
            self._resources = known
            self._layout += 1
            names = list(dict.fromkeys([*names, *self._records, *cluster.nodes.records]))
        for name in names:
            self._set(name, self._record(cluster, name))
            yield

    def _record(self, cluster: Cluster, name: str) -> bytes | None:
        if name not in cluster.nodes.records:
            return None
        cards: list[Record] = []
        for row in card_rows(cluster, name, self._resources):
            gauges = [row.get(column_of(each)) for each in self._resources]
            memory = next((gauge.capacity for gauge in gauges if isinstance(gauge, Booked)), 0)
            used, busy = row["used"], row["busy"]
            step = max(memory // STEPS, 1)
            card: Record = [
                int(str(row["card"]).removeprefix("card")),
                HEALTHS.index(str(row["health"])),
                self._model(str(row["model"] or "")),
                row["pods"],
                round(used / step) * step if isinstance(used, int | float) else -1,
                round(busy * 20) * 5 if isinstance(busy, int | float) else -1,
            ]
            for gauge in gauges:
                card += (gauge.booked, gauge.capacity) if isinstance(gauge, Booked) else (0, 0)
            cards.append(card)
        if not cards:
            return None
        return msgspec.json.encode([escaped(name), self._states.get(name, 0), cards])

    def _model(self, model: str) -> int:
        text = escaped(model)[:LONGEST_MODEL]
        if text not in self._models:
            if len(self._models) >= MOST_MODELS:
                text = OTHER_MODELS
            if text not in self._models:
                self._models[text] = len(self._models)
                self._models_at = self.version + 1
        return self._models[text]

    def _set(self, name: str, record: bytes | None) -> None:
        if self._records.get(name) == record:
            return
        self.version += 1
        if record is None:
            del self._records[name]
            self._changed.pop(name, None)
            self._states.pop(name, None)
            self._gone[name] = self.version
            if len(self._gone) > MOST_GONE:
                self._forgotten = self._gone.popitem(last=False)[1]
            return
        self._gone.pop(name, None)
        self._records[name] = record
        self._changed[name] = self.version
        self._changed.move_to_end(name)

    def whole(self) -> bytes:
        records = b",".join(self._records[name] for name in sorted(self._records, key=natural))
        head = self._head(self.version) | {
            "healths": HEALTHS,
            "states": STATES,
            "resources": list(map(column_of, self._resources)),
            "models": list(self._models),
        }
        return _with_nodes(head, records)

    def part_after(self, name: str, version: int, most: int = MOST_IN_PART) -> tuple[int, bytes] | None:
        """Return the next changes after a version as JSON, with the version that the browser has then.

        None if a browser must get everything again: it has another board, or a version that is too old. The part is
        empty if there is nothing new.
        """
        if name != self.name or not self._forgotten <= version <= self.version:
            return None
        changes = sorted([*_since(self._changed, version), *_since(self._gone, version)])
        size, nodes, gone, reached = 0, [], [], version
        for at, node in changes:
            record = self._records.get(node)
            size += len(record or node) + 1
            if size > most and reached > version:
                break
            if record is None:
                gone.append(escaped(node))
            else:
                nodes.append(record)
            reached = at
        if reached == version:
            return version, b""
        head = self._head(reached) | {"gone": gone}
        if self._models_at > version:
            head["models"] = list(self._models)
        return reached, _with_nodes(head, b",".join(nodes))

    def _head(self, version: int) -> dict[str, object]:
        return {"board": self.name, "version": version}


def _since(versions: OrderedDict[str, int], version: int) -> Iterator[tuple[int, str]]:
    """Yield (version, name) of everything that is later than a version."""
    for name in reversed(versions):
        if versions[name] <= version:
            return
        yield versions[name], name


def _with_nodes(head: dict[str, object], records: bytes) -> bytes:
    return msgspec.json.encode(head)[:-1] + b',"nodes":[' + records + b"]}"
