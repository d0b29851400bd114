"""The requests and responses of the verb preempt, as JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gas.extender.preemption.wire import Proposal, decode_preempt, encode_preempt_result
from gas.extender.wire import BadRequest, Unreadable

POD = {"metadata": {"name": "p", "namespace": "default", "uid": "u-1"}, "spec": {"containers": [{"name": "c"}]}}


def as_json(**members: Any) -> bytes:
    return json.dumps(members).encode()


def test_victims_as_uids() -> None:
    victims = {"n1": {"Pods": [{"UID": "a"}, {"UID": "b"}], "NumPDBViolations": 1}, "n2": {"Pods": None}}
    args = decode_preempt(as_json(Pod=POD, NodeNameToVictims=None, NodeNameToMetaVictims=victims))
    assert args.pod.key == "default/p"
    assert args.proposals == {"n1": Proposal(("a", "b"), 1), "n2": Proposal(())}


def test_victims_as_whole_pods() -> None:
    pods = [{"metadata": {"name": "a", "uid": "u-a"}, "spec": {"nodeName": "n1"}}, {"metadata": {"uid": "u-b"}}]
    victims = {"n1": {"Pods": pods, "NumPDBViolations": 2}}
    args = decode_preempt(as_json(Pod=POD, NodeNameToVictims=victims, NodeNameToMetaVictims=None))
    assert args.proposals == {"n1": Proposal(("u-a", "u-b"), 2)}


def test_uids_win_over_whole_pods() -> None:
    args = decode_preempt(as_json(Pod=POD, NodeNameToVictims={"n1": {}}, NodeNameToMetaVictims={"n2": {}}))
    assert set(args.proposals) == {"n2"}


def test_nulls_are_left_out() -> None:
    victims = {"n1": None, "n2": {"Pods": [None, {"UID": "a"}]}}
    assert decode_preempt(as_json(Pod=POD, NodeNameToMetaVictims=victims)).proposals == {"n2": Proposal(("a",))}


@pytest.mark.parametrize(
    ("pod", "victims"),
    [("pod", "NodeNameToMetaVictims"), ("POD", "NODENAMETOMETAVICTIMS"), ("Pod", "nodeNameToMetaVictims")],
)
def test_names_of_the_request_are_read_in_any_case(pod: str, victims: str) -> None:
    members = {pod: POD, victims: {"n": {"Pods": [{"UID": "a"}]}}}
    assert decode_preempt(as_json(**members)).proposals == {"n": Proposal(("a",))}


@pytest.mark.parametrize(
    ("members", "sentence"),
    [
        ({"NodeNameToMetaVictims": {}}, "names no pod"),
        ({"Pod": POD}, "names no victims"),
        ({"Pod": POD, "NodeNameToMetaVictims": []}, "not a valid ExtenderPreemptionArgs"),
        ({"Pod": [], "NodeNameToMetaVictims": {}}, "not a valid ExtenderPreemptionArgs.Pod"),
        ({"Pod": POD, "NodeNameToMetaVictims": {"n": {"Pods": [{"UID": 1}]}}}, "not a valid"),
        ({"Pod": POD, "NodeNameToMetaVictims": {str(at): None for at in range(100_001)}}, "names 100001 nodes"),
    ],
)
def test_an_invalid_request_is_refused(members: Any, sentence: str) -> None:
    with pytest.raises(BadRequest, match=sentence):
        decode_preempt(as_json(**members))


def test_a_body_that_is_not_json_is_unreadable() -> None:
    with pytest.raises(Unreadable):
        decode_preempt(b"{")


def test_the_response_has_uids_by_node() -> None:
    response = encode_preempt_result({"n1": Proposal(("a", "b"), 1)})
    expected = {"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "a"}, {"UID": "b"}], "NumPDBViolations": 1}}}
    assert json.loads(response) == expected
    assert json.loads(encode_preempt_result({})) == {"NodeNameToMetaVictims": {}}
