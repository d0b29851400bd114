"""The pods that can be bound, by name, as the watch has shown them."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from gas.extender.binding_reviews.unbound_pods import UnboundPod, UnboundPods
from gas.objects.stored import Pod
from gas.vocabularies.known import DEFAULT
from tests.builders import container, pod_json
from tests.extender.decider import as_pod
from tests.listed import list_all

NAMES = ("a", "b")


def pods() -> UnboundPods:
    return UnboundPods(DEFAULT.is_gpu_pod)


def made(name: str = "a", uid: str = "u1", *, gpus: int = 0, **fields: Any) -> Pod:
    return as_pod(pod_json(container(i915=gpus) if gpus else container(), name=name, uid=uid, **fields))


def test_a_pod_is_known_by_name_until_it_is_bound() -> None:
    known = pods()
    known.changed(made(gpus=1))
    assert known.find("default/a") == UnboundPod("default/a", "u1", wants_cards=True)
    assert known.find("default/a", "u1") == UnboundPod("default/a", "u1", wants_cards=True)
    assert known.find("default/a", "u2") is None
    assert known.needs(made(node="n1"))
    known.changed(made(node="n1"))
    assert known.find("default/a") is None
    assert not known.needs(made(node="n1"))


@pytest.mark.parametrize(("gone", "left"), [("u1", "u2"), ("u2", "")])
def test_late_news_of_an_earlier_pod_of_the_name_does_not_hide_the_later_one(gone: str, left: str) -> None:
    known = pods()
    known.changed(made(uid="u1"))
    known.changed(made(uid="u2", gpus=1))
    known.deleted(made(uid=gone))
    assert known.find("default/a") == (UnboundPod("default/a", left, wants_cards=True) if left else None)
    list_all(known, [])
    assert known.find("default/a") is None


def test_a_complete_list_forgets_the_others() -> None:
    known = pods()
    known.changed(made())
    list_all(known, [made("b", "u2")])
    assert known.find("default/a") is None
    assert known.find("default/b") == UnboundPod("default/b", "u2", wants_cards=False)


EVENTS = st.lists(
    st.tuples(st.sampled_from(["created", "bound", "over", "deleted", "recreated", "listed"]), st.sampled_from(NAMES)),
    max_size=30,
)


@given(EVENTS)
def test_the_pods_are_those_that_exist_without_a_node(events: list[tuple[str, str]]) -> None:
    known, there, count = pods(), dict[str, Pod](), 0
    for event, name in events:
        if event in ("created", "recreated"):
            if event == "recreated" and name in there:
                known.deleted(there.pop(name))
            if name in there:
                continue
            count += 1
            there[name] = made(name, f"u{count}", gpus=count % 2)
            known.changed(there[name])
        elif event == "listed":
            list_all(known, [pod for pod in there.values() if known.needs(pod)])
        elif name in there:
            if event == "deleted":
                known.deleted(there.pop(name))
                continue
            fields: dict[str, Any] = {"node": "n1"} if event == "bound" else {"phase": "Failed"}
            there[name] = made(name, there[name].uid, **fields)
            if known.needs(there[name]):
                known.changed(there[name])
    for name in NAMES:
        pod = there.get(name)
        can_be_bound = pod is not None and not pod.node_name and not pod.is_over
        found = known.find(f"default/{name}")
        assert (found.uid if found else None) == (pod.uid if pod is not None and can_be_bound else None)
        if found and pod is not None:
            assert found.wants_cards == DEFAULT.is_gpu_pod(pod)
