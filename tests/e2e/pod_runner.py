"""The part of kubelets that the API shows: pods start, end and go away."""

from __future__ import annotations

import contextlib
import http.client
import threading
import time

from tests.e2e.kube_api import KubeApi, Object, RefusedError
from tests.e2e.pods import OVER, PODS

RUNS_FOR = "runs-for"
"""A pod's label: the seconds after which it has Succeeded. Without it the pod runs until it is deleted."""
ENDS_IN = "ends-in"
"""A pod's label: the seconds that its containers take to end when it is deleted; 0 by default."""

_MINE = ",".join(("spec.nodeName!=", *(f"status.phase!={phase}" for phase in OVER)))


class PodRunner:
    """Run the bound pods of the namespace `default` on a thread of its own. A context manager.

    It waits for an API server that is away. Any other failure is raised at the end.
    """

    def __init__(self, api: KubeApi, *, every: float = 0.25) -> None:
        self._api = api
        self._every = every
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pod-runner", daemon=True)
        self._started: dict[str, float] = {}
        self._told_to_end: dict[str, float] = {}
        self._failure: Exception | None = None

    def __enter__(self) -> PodRunner:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(30)
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._stopping.wait(self._every):
                with contextlib.suppress(OSError, http.client.HTTPException):
                    for pod in self._api.items(PODS, resourceVersion="0", fieldSelector=_MINE):
                        self._look_after(pod)
        except Exception as error:  # noqa: BLE001 -- the thread that made the runner raises it
            self._failure = error

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
