"""A user who creates pods of mixed shapes and deletes some of them, in the background."""

from __future__ import annotations

import contextlib
import time
from random import Random

from tests.e2e.kube_api import KubeApi, RefusedError
from tests.e2e.mixed_pods import mixed_pod
from tests.e2e.pods import PODS

_GRACES: tuple[dict[str, str], ...] = ({}, {"gracePeriodSeconds": "0"}, {"gracePeriodSeconds": "1"})


class ComingsAndGoings:
    """Create the pods one after the other over the given seconds, and delete about every fifth.

    created, deleted  names, to be read by another thread
    """

    def __init__(self, api: KubeApi, rng: Random, *, pods: int, seconds: float) -> None:
        self.created: set[str] = set()
        self.deleted: set[str] = set()
        self._api = api
        self._rng = rng
        self._pods = pods
        self._seconds = seconds

    def run(self) -> None:
        start = time.monotonic()
        for number in range(self._pods):
            due = start + self._seconds * number / self._pods
            time.sleep(max(0.0, due - time.monotonic()))
            name = f"mixed-{number}"
            self._api.create(PODS, mixed_pod(name, self._rng))
            self.created.add(name)
            if self._rng.random() < 0.2:
                self._delete_one_of_the_last(100)

    def _delete_one_of_the_last(self, pods: int) -> None:
        candidates = sorted(self.created - self.deleted, key=lambda name: int(name.removeprefix("mixed-")))
        name = self._rng.choice(candidates[-pods:])
        self.deleted.add(name)
        with contextlib.suppress(RefusedError):  # it is gone already
            self._api.delete(f"{PODS}/{name}", **self._rng.choice(_GRACES))
