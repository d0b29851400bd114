"""SharePods and their pods: what is made, what is copied, and what a SharePod says. On the sandbox's API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gas.cluster.connection import connect
from gas.cluster.events import Events
from gas.extender.sharepods.controller import SharePods
from gas.values.cards import Card
from gas.vocabularies.kubeshare.sharepod import (
    MadePod,
    MalformedSharePod,
    SharePod,
    choice_patch,
    merge_patch,
    pod_of,
    status_of,
)
from sandbox.api.failure import ApiFailure
from sandbox.api.kinds import PODS, SHAREPODS, Kind
from sandbox.api.patches import merge_patched
from sandbox.api.routes import Access, Settings
from sandbox.api.server import ApiServer
from sandbox.programs import write_kubeconfig
from tests.background import soon
from tests.builders import pod_json
from tests.kubeshare_words import GIB, GPUID, of_the_original, share, with_card

MERGE = "application/merge-patch+json"
WANTED = share("0.5", "1.0", str(GIB))
NODES = "requiredDuringSchedulingIgnoredDuringExecution"
OWNER = {
    "apiVersion": "kubeshare.nthu/v1",
    "kind": "SharePod",
    "name": "s",
    "uid": "u1",
    "controller": True,
    "blockOwnerDeletion": True,
}


def sharepod(name: str = "s", annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kubeshare.nthu/v1",
        "kind": "SharePod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "annotations": WANTED if annotations is None else annotations,
        },
        "spec": {"containers": [with_card("main", None)], "restartPolicy": "Never", **spec},
    }


def as_share(obj: dict[str, Any], **metadata: Any) -> SharePod:
    return msgspec.convert(obj | {"metadata": obj["metadata"] | metadata}, SharePod)


# contract S1.16
def test_the_pod_has_the_name_the_annotations_and_the_spec_and_belongs_to_the_sharepod() -> None:
    annotations = WANTED | {"note": "mine", "kubectl.kubernetes.io/last-applied-configuration": "{}"}
    pod = pod_of(as_share(sharepod(annotations=annotations), uid="u1", labels={"app": "x"}))
    assert pod["metadata"] == {
        "name": "s",
        "namespace": "default",
        "labels": {"app": "x", "kubeshare/sharepod": "true"},
        "annotations": WANTED | {"note": "mine"},
        "ownerReferences": [OWNER],
    }
    amounts = {"kubeshare/vgpu": "1", "kubeshare/millicores": "500", "kubeshare/memory.max": str(GIB)}
    (container,) = pod["spec"]["containers"]
    assert container["resources"] == {"limits": amounts, "requests": amounts}
    assert pod["spec"]["restartPolicy"] == "Never"


# contract S1.6
def test_a_node_that_the_user_chose_is_left_to_the_scheduler() -> None:
    pod = pod_of(as_share(sharepod(annotations=WANTED | {GPUID: "abcde"}, nodeName="node01"), uid="u1"))
    assert "nodeName" not in pod["spec"]
    (term,) = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert term == {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node01"]}]}
    assert pod["metadata"]["annotations"][GPUID] == "abcde"


def test_a_spec_that_is_not_that_of_a_pod_is_refused_with_a_sentence() -> None:
    with pytest.raises(MalformedSharePod, match=r"^spec: expected that of a pod: .*; correct it$"):
        pod_of(as_share(sharepod(containers="many"), uid="u1"))


@pytest.mark.parametrize("node_affinity", ["many", {NODES: {"nodeSelectorTerms": "many"}}, {NODES: 5}])
def test_an_affinity_that_is_none_is_refused_with_a_sentence(node_affinity: object) -> None:
    broken = sharepod(annotations=WANTED, nodeName="node01", affinity={"nodeAffinity": node_affinity})
    with pytest.raises(MalformedSharePod, match=r"^spec\.affinity: expected that of a pod; correct it$"):
        pod_of(as_share(broken, uid="u1"))


@pytest.mark.parametrize("shown", ["many", 5, ["phase"], None])
def test_a_status_that_is_not_that_of_a_pod_has_no_phase(shown: object) -> None:
    assert as_share(sharepod() | {"status": {"PodStatus": shown}}).phase == ""


# contract S1.1, S1.2
@pytest.mark.parametrize(
    ("annotations", "sentence"),
    [
        (share("0.6", "0.5"), "kubeshare/gpu_request: expected at most kubeshare/gpu_limit, 0.5, found 0.6"),
        (share(memory=None), "kubeshare/gpu_mem: expected a number of bytes, found none"),
        (share(affinity="a\nb"), "kubeshare/sched_affinity: expected at most 253 printable characters"),
        ({"kubeshare/GPUID": "abcde"}, "kubeshare/gpu_request: expected a number from 0 to 1, found none"),
    ],
)
def test_a_share_that_cannot_be_is_refused_without_the_webhooks(annotations: dict[str, str], sentence: str) -> None:
    with pytest.raises(MalformedSharePod) as refused:
        pod_of(as_share(sharepod(annotations=annotations), uid="u1"))
    assert str(refused.value).startswith(sentence)


def test_a_sharepod_without_a_share_becomes_a_pod_without_a_card() -> None:
    pod = pod_of(as_share(sharepod(annotations={}), uid="u1"))
    assert "resources" not in pod["spec"]["containers"][0]


# contract S1.21
def test_limits_alone_say_which_containers_get_cards_as_in_a_pod() -> None:
    with_two: dict[str, Any] = {"name": "two", "image": "none", "resources": {"limits": {"kubeshare/vgpu": 2}}}
    written = sharepod(containers=[with_card("none", None), with_two], initContainers=[with_card("init", None)])
    pod = pod_of(as_share(written, uid="u1"))
    without, two = pod["spec"]["containers"]
    doubled = {"kubeshare/vgpu": 2, "kubeshare/millicores": "1000", "kubeshare/memory.max": str(2 * GIB)}
    assert two["resources"] == {"limits": doubled, "requests": doubled}
    assert "resources" not in without
    assert "resources" not in pod["spec"]["initContainers"][0]
    assert with_two["resources"] == {"limits": {"kubeshare/vgpu": 2}}


# contract S1.16
def test_status_and_metadata_of_the_pod_are_copied_in_the_originals_names() -> None:
    metadata = {"name": "s", "namespace": "default", "uid": "p1", "resourceVersion": "7", "ownerReferences": [OWNER]}
    annotations = {GPUID: "abcde", "gas-container-cards": "|card1", "gas-init-container-cards": "card1"}
    status = {"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [{"name": "main", "ready": True}]}
    pod = msgspec.convert(
        {"metadata": metadata | {"annotations": annotations}, "spec": {"nodeName": "n1"}, "status": status}, MadePod
    )
    del metadata["resourceVersion"]
    shown = {"PodStatus": status, "PodObjectMeta": metadata | {"annotations": annotations}}
    share = as_share(sharepod())
    assert status_of(share, pod, {}) == shown | {"BoundDeviceID": "card1"}
    assert status_of(share, pod, {"GPU-0": Card(0), "GPU-1": Card(1)}) == shown | {"BoundDeviceID": "GPU-1"}
    assert choice_patch(share, pod) == {
        "spec": {"nodeName": "n1"},
        "metadata": {"annotations": {GPUID: "abcde", "kubeshare/chosen-node": "n1"}},
    }
    has_both = sharepod(annotations=WANTED | {GPUID: "abcde"}, nodeName="n1")
    assert choice_patch(as_share(has_both), pod) is None


# contract S1.16
def test_what_only_the_original_writes_stays_as_long_as_its_pod_runs() -> None:
    share = as_share(sharepod() | {"status": {"BoundDeviceID": "GPU-1", "PodManagerPort": 50051, "message": "x"}})
    meta = {"name": "s", "namespace": "default", "uid": "p1"}
    runs, waits = (msgspec.convert({"metadata": meta, "spec": spec}, MadePod) for spec in ({"nodeName": "n"}, {}))
    shown = {"PodStatus": {}, "PodObjectMeta": meta}
    assert status_of(share, runs, {}) == shown | {"BoundDeviceID": "GPU-1", "PodManagerPort": 50051}
    assert status_of(share, waits, {}) == shown


# contract S1.25
@pytest.mark.parametrize(("node", "is_pinned"), [("n1", False), ("n2", True)])
def test_the_next_pod_is_bound_to_the_node_only_if_the_user_chose_it(node: str, *, is_pinned: bool) -> None:
    annotations = WANTED | {GPUID: "abcde", "kubeshare/chosen-node": "n1"}
    pod = pod_of(as_share(sharepod(annotations=annotations, nodeName=node), uid="u1"))
    assert pod["metadata"]["annotations"] == WANTED | {GPUID: "abcde"}
    assert "nodeName" not in pod["spec"]
    assert ("affinity" in pod["spec"]) == is_pinned


# contract S1.25
@pytest.mark.parametrize(
    ("policy", "ends"),
    [("Always", ""), (None, ""), ("OnFailure", "Succeeded"), ("Never", "Succeeded"), ("Never", "Failed")],
)
def test_the_rule_of_restart_policies_is_the_originals(policy: str | None, ends: str) -> None:
    share = as_share(sharepod(restartPolicy=policy))
    for phase in ("", "Pending", "Running", "Succeeded", "Failed"):
        assert share.restarts_after(phase) or (policy, phase) in {
            ("OnFailure", "Succeeded"),
            ("Never", "Succeeded"),
            ("Never", "Failed"),
        }
    assert not ends or not share.restarts_after(ends)


VALUES = st.recursive(
    st.sampled_from((1, "a", True, [1], [{"a": 1}])),
    lambda inner: st.dictionaries(st.sampled_from(("a", "b", "c")), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from(("a", "b", "c")), VALUES, max_size=3)


@given(OBJECTS, OBJECTS)
def test_a_merge_patch_turns_one_object_into_the_other(old: dict[str, Any], new: dict[str, Any]) -> None:
    patch = merge_patch(old, new)
    assert merge_patched(old, patch) == new
    assert (patch == {}) == (old == new)


class Running:
    """A controller on the sandbox's API server."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.leads = True
        self.controller: SharePods

    def create(self, obj: dict[str, Any]) -> dict[str, Any]:
        return dict(self.server.api.create(SHAREPODS, "default", obj).value)

    def pod(self, name: str = "s") -> dict[str, Any] | None:
        try:
            return dict(self.server.api.get(PODS, "default", name).value)
        except ApiFailure:
            return None

    def bind(self) -> dict[str, Any]:
        """Bind the pod as the extender does, and return it."""
        annotations = {GPUID: "abcde", "gas-container-cards": "card1"}
        binding = {"metadata": {"name": "s", "annotations": annotations}, "target": {"kind": "Node", "name": "n1"}}
        self.server.api.bind("default", "s", binding)
        return dict(self.server.api.get(PODS, "default", "s").value)

    def share(self, name: str = "s") -> dict[str, Any]:
        return dict(self.server.api.get(SHAREPODS, "default", name).value)

    async def shown(self, *names: str) -> None:
        """Wait until SharePods show their pods."""
        await soon(lambda: all(self.share(name).get("status", {}).get("PodObjectMeta") for name in names or ("s",)))

    def message(self, name: str = "s") -> str:
        return str(self.share(name).get("status", {}).get("message", ""))

    def events(self) -> list[tuple[str, str, str]]:
        """Return (name of the SharePod, reason, message) of all events, oldest first."""
        written = [each.value for each in self.server.api.storage.objects("events")]
        about = [(each, each["involvedObject"]) for each in written]
        assert {of["kind"] + of["apiVersion"] for _, of in about} <= {"SharePodkubeshare.nthu/v1"}
        return [(of["name"], each["reason"], each["message"]) for each, of in about]

    def set_status(self, kind: Kind, name: str, status: dict[str, Any]) -> None:
        body = msgspec.json.encode({"status": status})
        self.server.api.patch(kind, "default", name, (MERGE, body), "status")


@asynccontextmanager
async def running(tmp_path: Path, *before: dict[str, Any]) -> AsyncIterator[Running]:
    server = ApiServer(Settings(tokens={"t": "admin"}))
    async with server:
        for each in before:
            server.api.create(PODS if each["kind"] == "Pod" else SHAREPODS, "default", each)
        api = await connect(str(write_kubeconfig(tmp_path / "c.conf", server.url, token="t")))
        run = Running(server)
        events = Events(api, per_second=1000)
        run.controller = SharePods(
            api,
            events=events,
            acts=lambda: run.leads,
            uuids=lambda node: {"GPU-of-card1": Card(1)} if node == "n1" else {},
            retry_pause=0.1,
        )
        watches = run.controller.share_watch.run(), run.controller.pod_watch.run()
        task = asyncio.ensure_future(asyncio.gather(*watches, run.controller.run(), events.run()))
        try:
            yield run
            assert not task.done()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await api.close()


def fixed(name: str = "s", **labels: str) -> dict[str, Any]:
    """Return a pod that was not made for a SharePod."""
    pod = pod_json(with_card("main"), name=name, labels=labels)
    del pod["metadata"]["uid"]
    return pod


# contract S1.16
async def test_a_sharepod_gets_a_pod_and_shows_what_becomes_of_it(tmp_path: Path) -> None:
    async with running(tmp_path) as run:
        created = run.create(sharepod())
        await soon(lambda: run.pod() is not None)
        pod = run.pod()
        assert pod is not None
        (owner,) = pod["metadata"]["ownerReferences"]
        assert owner == OWNER | {"uid": created["metadata"]["uid"]}
        run.bind()
        run.set_status(PODS, "s", {"phase": "Running", "podIP": "10.0.0.1"})
        await soon(lambda: run.share().get("status", {}).get("PodStatus", {}).get("phase") == "Running")
        await soon(lambda: run.share()["metadata"]["annotations"].get(GPUID) == "abcde")
        shown = run.share()
        assert shown["spec"]["nodeName"] == "n1"
        assert shown["status"]["BoundDeviceID"] == "GPU-of-card1"
        assert shown["status"]["PodStatus"]["podIP"] == "10.0.0.1"
        assert shown["status"]["PodObjectMeta"]["uid"] == pod["metadata"]["uid"]
        run.set_status(PODS, "s", {"phase": "Succeeded", "podIP": None})
        await soon(lambda: run.share()["status"]["PodStatus"]["phase"] == "Succeeded")
        assert "podIP" not in run.share()["status"]["PodStatus"]


# contract S1.25
@pytest.mark.parametrize("phase", ["Running", "Pending"])
async def test_a_pod_that_is_lost_is_made_again_with_its_gpu_id(phase: str, tmp_path: Path) -> None:
    async with running(tmp_path) as run:
        run.create(sharepod())
        await run.shown()
        first = run.bind()
        run.set_status(PODS, "s", {"phase": phase})
        await soon(lambda: run.share()["metadata"]["annotations"].get(GPUID) == "abcde")
        run.server.api.delete(PODS, "default", "s", {}, 0)
        await soon(lambda: (run.pod() or first)["metadata"]["uid"] != first["metadata"]["uid"])
        again = run.pod()
        assert again is not None
        assert again["metadata"]["annotations"] == WANTED | {GPUID: "abcde"}
        assert "nodeName" not in again["spec"]
        await soon(lambda: run.share()["status"]["PodObjectMeta"]["uid"] == again["metadata"]["uid"])
        assert "BoundDeviceID" not in run.share()["status"]
        await soon(lambda: ("s", "Synced", "made pod default/s again") in run.events())


# contract S1.25
async def test_a_pod_that_had_ended_is_not_made_again_and_the_sharepod_says_so(tmp_path: Path) -> None:
    async with running(tmp_path) as run:
        run.create(sharepod())
        await run.shown()
        run.set_status(PODS, "s", {"phase": "Failed"})
        await soon(lambda: run.share()["status"]["PodStatus"].get("phase") == "Failed")
        run.server.api.delete(PODS, "default", "s", {}, 0)
        await soon(run.message)
        assert run.message() == (
            "pod default/s ended (Failed) and was deleted; it is not made again, by its restartPolicy. To run it again,"
            " delete this SharePod and create it again"
        )
        assert run.share()["status"]["PodObjectMeta"]["name"] == "s"
        await soon(lambda: ("s", "PodNotMadeAgain", run.message()) in run.events())
        await asyncio.sleep(0.3)
        assert run.pod() is None


# contract S1.25
@pytest.mark.parametrize(
    ("policy", "condition", "is_made_again"),
    [("Always", "DisruptionTarget", True), ("Always", "Ready", False), ("Never", "DisruptionTarget", False)],
)
async def test_a_pod_that_kubelet_evicted_is_deleted_and_made_again(
    policy: str, condition: str, tmp_path: Path, *, is_made_again: bool
) -> None:
    async with running(tmp_path) as run:
        run.create(sharepod(restartPolicy=policy))
        await run.shown()
        evicted = {"phase": "Failed", "reason": "Evicted", "conditions": [{"type": condition, "status": "True"}]}
        first = run.pod()
        assert first is not None
        run.set_status(PODS, "s", evicted)
        await soon(lambda: run.share()["status"]["PodStatus"].get("phase") == "Failed" or run.pod() != first)
        await asyncio.sleep(0.3)
        pod = run.pod()
        assert pod is not None
        assert (pod["metadata"]["uid"] != first["metadata"]["uid"]) == is_made_again


# contract S1.16
async def test_a_pod_without_the_label_by_which_it_is_watched_gets_it_again(tmp_path: Path) -> None:
    async with running(tmp_path) as run:
        run.create(sharepod())
        await run.shown()
        removed = msgspec.json.encode({"metadata": {"labels": {"kubeshare/sharepod": None}}})
        run.server.api.patch(PODS, "default", "s", (MERGE, removed))
        await soon(lambda: "kubeshare/sharepod" in (run.pod() or {"metadata": {}})["metadata"].get("labels", {}))
        run.set_status(PODS, "s", {"phase": "Running"})
        await soon(lambda: run.share()["status"].get("PodStatus", {}).get("phase") == "Running")
        assert not run.message()


# contract S1.24
async def test_the_pod_of_the_original_is_followed_and_made_again_by_its_rule(tmp_path: Path) -> None:
    async with running(tmp_path) as run:
        run.leads = False
        created = run.create(sharepod(annotations=WANTED | {GPUID: "zxcvb"}, nodeName="n1", restartPolicy="Always"))
        old = of_the_original("s", WANTED | {GPUID: "zxcvb"}, "GPU-of-card1")
        del old["metadata"]["uid"]
        old["metadata"]["ownerReferences"] = [OWNER | {"uid": created["metadata"]["uid"]}]
        run.server.api.create(PODS, "default", old)
        status = {"PodObjectMeta": {"name": "s"}, "BoundDeviceID": "GPU-of-card1", "PodManagerPort": 50051}
        run.set_status(SHAREPODS, "s", status)
        run.leads = True
        run.controller.look_at_all()
        run.set_status(PODS, "s", {"phase": "Running"})
        await soon(lambda: run.share()["status"].get("PodStatus", {}).get("phase") == "Running")
        assert {name: run.share()["status"][name] for name in ("BoundDeviceID", "PodManagerPort")} == {
            "BoundDeviceID": "GPU-of-card1",
            "PodManagerPort": 50051,
        }
        assert (run.pod() or {})["spec"]["nodeName"] == "n1"
        run.server.api.delete(PODS, "default", "s", {}, 0)
        await soon(lambda: run.pod() is not None)
        again = run.pod()
        assert again is not None
        assert again["metadata"]["annotations"][GPUID] == "zxcvb"
        assert "affinity" in again["spec"]


# contract S1.25
async def test_a_replica_that_begins_to_decide_makes_what_was_missed_and_nothing_twice(tmp_path: Path) -> None:
    async with running(tmp_path) as run:
        run.leads = False
        for name, phase in {"lost": "Running", "ended": "Succeeded", "missed": ""}.items():
            run.create(sharepod(name))
            status = {"PodObjectMeta": {"name": name}, "PodStatus": {"phase": phase}} if phase else {}
            run.set_status(SHAREPODS, name, status)
        run.leads = True
        run.controller.look_at_all()
        await soon(lambda: run.pod("lost") is not None and run.pod("missed") is not None)
        before = run.pod("lost")
        run.controller.look_at_all()
        await soon(lambda: run.message("ended"))
        assert (run.pod("lost"), run.pod("ended")) == (before, None)


async def test_a_pod_of_the_same_name_is_left_alone_until_it_goes(tmp_path: Path) -> None:
    async with running(tmp_path, fixed()) as run:
        run.create(sharepod())
        await soon(run.message)
        assert run.message() == (
            "pod default/s exists and does not belong to this SharePod; delete the pod, or choose another name"
        )
        await soon(lambda: ("s", "ErrResourceExists", run.message()) in run.events())
        pod = run.pod()
        assert pod is not None
        assert "ownerReferences" not in pod["metadata"]
        run.server.api.delete(PODS, "default", "s", {}, 0)
        await soon(lambda: (run.pod() or {"metadata": {}})["metadata"].get("ownerReferences"))
        await soon(lambda: not run.message())


async def test_a_sharepod_that_is_created_again_waits_for_the_end_of_its_earlier_pod(tmp_path: Path) -> None:
    async with running(tmp_path) as run:
        run.create(sharepod())
        await run.shown()
        first = run.pod()
        run.server.api.delete(SHAREPODS, "default", "s", {})
        created = run.create(sharepod())
        await soon(lambda: "does not belong" in run.message())
        run.server.api.delete(PODS, "default", "s", {}, 0)  # as the garbage collector does
        await soon(lambda: run.pod() is not None)
        second = run.pod()
        assert first is not None
        assert second is not None
        assert second["metadata"]["ownerReferences"][0]["uid"] == created["metadata"]["uid"]
        assert second["metadata"]["uid"] != first["metadata"]["uid"]


async def test_why_a_pod_cannot_be_made_is_in_the_status_until_it_can(tmp_path: Path) -> None:
    async with running(tmp_path) as run:
        run.create(sharepod("malformed", containers="many"))
        run.create(sharepod("without", containers=[]))
        await soon(lambda: run.message("malformed") and run.message("without"))
        assert run.message("malformed").startswith("the pod cannot be made: spec: expected that of a pod")
        assert run.message("without").startswith("the pod cannot be made: ")
        await soon(lambda: ("malformed", "ErrValueError", run.message("malformed")) in run.events())
        spec = {"spec": {"containers": [with_card("main", None)]}}
        run.server.api.patch(SHAREPODS, "default", "malformed", (MERGE, msgspec.json.encode(spec)))
        await soon(lambda: run.pod("malformed") is not None)
        await soon(lambda: not run.message("malformed"))


async def test_a_sharepod_that_changes_often_is_tried_no_more_often(tmp_path: Path) -> None:
    async with running(tmp_path, fixed()) as run:
        run.create(sharepod())
        await soon(run.message)
        for number in range(50):
            body = msgspec.json.encode({"metadata": {"annotations": {"note": str(number)}}})
            run.server.api.patch(SHAREPODS, "default", "s", (MERGE, body))
            await asyncio.sleep(0.01)
        tried = 0
        compare = run.controller._reconcile

        async def count(key: str) -> None:
            nonlocal tried
            tried += 1
            await compare(key)

        run.controller._reconcile = count  # type: ignore[method-assign]
        await asyncio.sleep(1)
        assert 0 < tried <= 12


async def test_a_sharepod_whose_status_is_never_stored_does_not_flood_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Users can write so much into a status that no more can be stored."""
    tried = 0

    async def too_large(access: Access) -> ApiFailure | None:
        nonlocal tried
        tried += access.subresource == "status"
        return ApiFailure(500, "InternalError", "too large") if access.subresource == "status" else None

    async with running(tmp_path) as run:
        run.server.settings.intercept = too_large
        run.create(sharepod())
        await soon(lambda: tried > 15)
    assert sum("is tried again later" in each for each in caplog.messages) == 10


async def test_only_the_replica_that_decides_makes_pods(tmp_path: Path) -> None:
    async with running(tmp_path) as run:
        run.leads = False
        run.create(sharepod())
        await asyncio.sleep(0.3)
        assert run.pod() is None
        run.leads = True
        run.controller.look_at_all()
        await soon(lambda: run.pod() is not None)


async def test_a_sharepod_that_is_being_deleted_gets_no_pod(tmp_path: Path) -> None:
    deleted = sharepod()
    async with running(tmp_path) as run:
        run.controller._shares.changed(as_share(deleted, uid="u", deletionTimestamp="2026-01-01T00:00:00Z"))
        run.controller._shares.changed(as_share(sharepod("gone"), uid="u"))
        await asyncio.sleep(0.3)
        assert (run.pod(), run.pod("gone")) == (None, None)
