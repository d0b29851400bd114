"""The laws of a change-over, tried without a cluster: what must not be is found."""

from __future__ import annotations

import threading
import urllib.request
from random import Random
from typing import Any

import pytest

from tests.e2e.change_over import Load, Witness
from tests.e2e.koordinator_original import MEMORY as GPU_MEMORY
from tests.e2e.koordinator_original import SHARED, DeviceShare, requested
from tests.e2e.kube_api import Object
from tests.e2e.pods import asking, pod

MEMORY = {"a": 9, "b": 9}


def seen(
    name: str, card: str = "", size: int = 0, *, started: str = "x", phase: str = "Running", **spec: Any
) -> Object:
    """Return a pod on a card, as the API shows it."""
    container = {"name": "main", "containerID": started, "restartCount": 0, "state": {"running": {}}}
    written = pod(name, asking({"size": size}), annotations={"card": card} if card else {})
    written["spec"] |= {"nodeName": "n1", **spec}
    return written | {"status": {"phase": phase, "containerStatuses": [container] if phase == "Running" else []}}


def taken(written: Object) -> dict[str, int]:
    if "card" not in written["metadata"]["annotations"]:
        raise ValueError("no card is written")
    return {
        written["metadata"]["annotations"]["card"]: int(written["spec"]["containers"][0]["resources"]["limits"]["size"])
    }


@pytest.mark.parametrize(
    ("writes", "sentence"),
    [
        ([("ADDED", seen("new", "b", 9))], ""),
        ([("ADDED", seen("new", "a", 4))], "card a has 9 bytes, and these take 10: {'old': 6, 'new': 4}"),
        ([("ADDED", seen("new", phase="Pending"))], "pod new is bound, and no card is written"),
        ([("MODIFIED", seen("old", "b", 6))], "pod old ran as"),
        ([("MODIFIED", seen("old", "a", 6, started="y"))], "pod old ran as"),
        ([("MODIFIED", seen("old", "a", 6, nodeName="n2"))], "pod old ran as"),
        ([("DELETED", seen("old", "a", 6))], "pod old ends"),
        ([("ADDED", seen("new", "b", 1, phase="Failed"))], "pod new ends"),
    ],
    ids=["fits", "too-full", "no-card", "another-card", "another-container", "another-node", "gone", "failed"],
)
def test_a_write_that_breaks_a_law_is_a_sentence(writes: list[tuple[str, Object]], sentence: str) -> None:
    witness = Witness(None, MEMORY, taken)  # type: ignore[arg-type]  # the API is for watching
    for kind, written in [("ADDED", seen("old", "a", 6)), *writes]:
        witness.see(kind, written)
    assert len(witness.broken) == bool(sentence)
    assert all(each.startswith(sentence) for each in witness.broken)


def test_an_exception_in_a_double_ends_its_thread_which_pytest_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", ended.append)
    share = DeviceShare(None, 1, 2**30)  # type: ignore[arg-type]  # a request without a pod comes first
    share.start()
    with pytest.raises(ConnectionError):
        urllib.request.urlopen(f"{share.entry['urlPrefix']}/filter", b"{}", timeout=10)
    share.stop()
    assert [each.exc_type for each in ended] == [KeyError]


def test_doubles_read_amounts_as_kubernetes_writes_them() -> None:
    share = {"resources": {"limits": {SHARED: "2", GPU_MEMORY: "1048576k"}}}
    assert requested({"spec": {"containers": [share]}}) == (2, {GPU_MEMORY: 524_288_000})


def test_the_load_replaces_pods_that_the_test_deletes_itself() -> None:
    witness = Witness(None, MEMORY, taken)  # type: ignore[arg-type]
    created: list[str] = []
    load = Load(witness, Random(1), lambda name, _: created.append(name), most=2)
    for _ in range(3):
        load._step()
    assert created == ["load-0", "load-1"]
    witness.delete("load-0", lambda _: None)
    load._step()
    assert created == ["load-0", "load-1", "load-2"]
