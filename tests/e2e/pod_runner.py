"""The part of kubelets that the API shows: pods start, end and go away."""

from __future__ import annotations

import time

from tests.e2e.kube_api import KubeApi, Object, RefusedError
from tests.e2e.pods import OVER, PODS
from tests.e2e.repeated import Repeated

RUNS_FOR = "runs-for"
"""A pod's label: the seconds after which it has Succeeded. Without it the pod runs until it is deleted."""
ENDS_IN = "ends-in"
"""A pod's label: the seconds that its containers take to end when it is deleted; 0 by default."""

_MINE = ",".join(("spec.nodeName!=", *(f"status.phase!={phase}" for phase in OVER)))


class PodRunner(Repeated):
    """Run the bound pods of the namespace `default` on a thread of its own. A context manager."""

    def __init__(self, api: KubeApi, *, every: float = 0.25) -> None:
        super().__init__("pod-runner", every=every)
        self._api = api
        self._started: dict[str, float] = {}
        self._told_to_end: dict[str, float] = {}

    def step(self) -> None:
        for pod in self._api.items(PODS, resourceVersion="0", fieldSelector=_MINE):
            self._look_after(pod)

    def _look_after(self, pod: Object) -> None:
        now = time.monotonic()
        metadata, uid = pod["metadata"], pod["metadata"]["uid"]
        labels = metadata.get("labels", {})
        try:
            if "deletionTimestamp" in metadata:
                if now - self._told_to_end.setdefault(uid, now) >= float(labels.get(ENDS_IN, 0)):
                    self._api.delete(f"{PODS}/{metadata['name']}", gracePeriodSeconds="0")
            elif uid not in self._started:
                self._set_phase(pod, "Running")
                self._started[uid] = now
            elif RUNS_FOR in labels and now - self._started[uid] >= float(labels[RUNS_FOR]):
                self._set_phase(pod, "Succeeded")
        except RefusedError as refused:
            if refused.status not in (404, 409, 500, 503):  # gone meanwhile, or the API server starts or ends
                raise

    def _set_phase(self, pod: Object, phase: str) -> None:
        # With the UID: a pod of the same name that came meanwhile is another one.
        patch = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": {"phase": phase}}
        self._api.merge(f"{PODS}/{pod['metadata']['name']}/status", patch)
