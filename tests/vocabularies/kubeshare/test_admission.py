"""Defaults and warnings of new pods in KubeShare's words."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gas.objects.json_patch import applied
from gas.objects.stored import NewPod
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.pod_checks import PodChecks
from gas.vocabularies.protocol import NeedOptions
from gas.vocabularies.selection import parse_vocabularies
from tests.builders import pod_json
from tests.extender.decider import as_pod
from tests.kubeshare_words import GIB, VGPU, share, sharing, with_card

CHECKS = PodChecks(Vocabularies(parse_vocabularies("intel,kubeshare")), NeedOptions())
AMOUNTS = {"kubeshare/millicores": "500", "kubeshare/memory.max": str(GIB)}
WANTED = share("0.5", "1.0", str(GIB))


def new(pod: dict[str, Any]) -> NewPod:
    return msgspec.convert(pod, NewPod)


def completed(pod: dict[str, Any], checks: PodChecks = CHECKS) -> dict[str, Any]:
    return applied(checks.complete(new(pod)), pod)


def resources_of(pod: dict[str, Any], field: str = "containers") -> list[dict[str, Any]]:
    return [each.get("resources", {}) for each in pod["spec"].get(field, [])]


# contract S1.22
def test_a_plain_pod_gets_a_card_for_each_container_and_its_amounts_once() -> None:
    plain = sharing("pod", WANTED, with_card("a", None), with_card("b", None), init=(with_card("i", None),))
    got = completed(plain)
    card = {VGPU: "1"}
    both = [{"limits": card | AMOUNTS, "requests": card | AMOUNTS}, {"limits": card, "requests": card}]
    assert resources_of(got) == both
    assert resources_of(got, "initContainers") == [{"limits": card, "requests": card}]
    need = CHECKS.vocabularies.need(as_pod(got), NeedOptions())
    assert CHECKS.vocabularies.booked_need(as_pod(got)).containers == need.containers


# contract S1.22
def test_other_requests_stay_and_limits_alone_become_requests_as_well() -> None:
    pod = sharing("pod", WANTED, {"name": "a", "resources": {"limits": {"cpu": "2"}}})
    (resources,) = resources_of(completed(pod))
    assert resources == {"limits": {"cpu": "2", VGPU: "1"} | AMOUNTS, "requests": {VGPU: "1"} | AMOUNTS}


def test_containers_that_name_their_cards_decide_which_of_them_get_one() -> None:
    got = completed(sharing("pod", WANTED, with_card("a", None), with_card("b", 2)))
    doubled = {VGPU: "2", "kubeshare/millicores": "1000", "kubeshare/memory.max": str(2 * GIB)}
    assert resources_of(got) == [{}, {"limits": doubled, "requests": doubled}]


CONTAINERS = st.sampled_from(
    (with_card("a", None), with_card("a"), with_card("a", 2), {"name": "a", "resources": {"limits": {"cpu": 1}}})
)


@given(st.lists(CONTAINERS, min_size=1, max_size=3), st.lists(CONTAINERS, max_size=2), st.booleans())
def test_completing_twice_changes_nothing(
    containers: list[dict[str, Any]], init: list[dict[str, Any]], has_node: bool
) -> None:
    renamed = [each | {"name": f"c{at}"} for at, each in enumerate(containers)]
    first = [each | {"name": f"i{at}"} for at, each in enumerate(init)]
    pod = sharing("pod", WANTED, *renamed, init=tuple(first), node="n1" if has_node else None)
    once = completed(pod)
    assert completed(once) == once
    assert "nodeName" not in once["spec"]


@pytest.mark.parametrize("annotations", [share("0.6", "0.5"), share(memory=None), {}])
def test_a_pod_that_will_be_refused_stays_as_it_is(annotations: dict[str, str]) -> None:
    assert CHECKS.complete(new(sharing("pod", annotations))) == ()
    assert CHECKS.pod(new(sharing("pod", annotations))).bad_need


def test_other_pods_stay_as_they_are() -> None:
    assert CHECKS.complete(new(pod_json(with_card("a", None), node="n1"))) == ()


NODE = {"key": "metadata.name", "operator": "In", "values": ["node01"]}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


# contract S1.6
def test_the_node_that_a_user_chose_is_left_to_the_scheduler_with_the_name_of_the_card() -> None:
    got = completed(sharing("pod", WANTED | {"kubeshare/GPUID": "abcde"}, node="node01"))
    assert "nodeName" not in got["spec"]
    assert got["spec"]["affinity"] == {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [NODE]}]}}}
    assert got["metadata"]["annotations"]["kubeshare/GPUID"] == "abcde"


# contract S1.6
def test_the_affinity_that_a_pod_has_holds_as_well() -> None:
    pod = sharing("pod", WANTED, node="node01")
    expressions = [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}, {"matchFields": [{"key": "b"}]}]
    own = {"podAffinity": {"x": 1}, "nodeAffinity": {"preferred": [], REQUIRED: {"nodeSelectorTerms": expressions}}}
    got = completed(pod | {"spec": pod["spec"] | {"affinity": own}})["spec"]["affinity"]
    assert got["podAffinity"] == {"x": 1}
    assert got["nodeAffinity"]["preferred"] == []
    assert got["nodeAffinity"][REQUIRED]["nodeSelectorTerms"] == [
        expressions[0] | {"matchFields": [NODE]},
        {"matchFields": [{"key": "b"}, NODE]},
    ]


@pytest.mark.parametrize("given", [" ", {REQUIRED: {"nodeSelectorTerms": [" "]}}], ids=["affinity", "term"])
def test_a_pod_with_an_affinity_that_is_not_one_is_left_to_the_api_server(given: object) -> None:
    pod = sharing("pod", WANTED, node="node01")
    assert CHECKS.complete(new(pod | {"spec": pod["spec"] | {"affinity": {"nodeAffinity": given}}})) == ()


def test_a_pod_that_is_scheduled_after_all_gets_the_scheduler_of_gpu_pods() -> None:
    checks = PodChecks(CHECKS.vocabularies, NeedOptions(), "gpu-scheduler")
    assert completed(sharing("pod", WANTED, node="node01"), checks)["spec"]["schedulerName"] == "gpu-scheduler"


def test_a_static_pod_stays_on_its_node() -> None:
    mirror = WANTED | {"kubernetes.io/config.mirror": "x"}
    assert CHECKS.complete(new(sharing("pod", mirror, node="node01"))) == ()


def test_misspelt_annotations_are_reported() -> None:
    found = CHECKS.pod(new(sharing("pod", WANTED | {"kubeshare/gpu_memory": "1", "kubeshare/x": "1"})))
    assert found.warnings == (
        "annotation 'kubeshare/gpu_memory' is not known and has no effect; did you mean kubeshare/gpu_mem?",
        "annotation 'kubeshare/x' is not known and has no effect; docs/from-kubeshare.md lists those that have one",
    )


# contract S1.23
def test_an_edit_of_a_bound_pod_is_warned_of() -> None:
    old = sharing("pod", WANTED, node="n1")
    edited = sharing("pod", WANTED | {"kubeshare/gpu_request": "0.1"}, node="n1")
    (warning,) = CHECKS.change(new(old), new(edited))
    assert warning.startswith("'kubeshare/gpu_request' says what the bound pod holds; undo the change")
