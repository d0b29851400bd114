"""Faults on a real node, after which decision, receipts, kubelet, ledger and containers agree again."""

from __future__ import annotations

import time

import pytest

from sandbox.hardware.fake_sysfs import FLEX_170, MAX_1550_XE, add_gpu, device_directory, fake_gpus
from tests.broken_files import break_file
from tests.e2e.agreement import MASK
from tests.e2e.gpu_node import GpuNode
from tests.e2e.kube_api import Object
from tests.e2e.pod_resources import listed_ids
from tests.e2e.pods import PODS, container, delete_now, event_messages, get_pod, is_refused, pod
from tests.e2e.waiting import wait_for
from tests.e2e.written_cards import PREFIX, written_containers
from tests.fake_gpus import remove_gpu

pytestmark = pytest.mark.usefixtures("no_pods_after")

ORDINARY = fake_gpus(FLEX_170, 2)
TILED = fake_gpus(MAX_1550_XE, 2, first=2)
BOTH = (*ORDINARY, *TILED)
BROKEN = fake_gpus(FLEX_170, 2, first=4)


def test_a_forced_delete_frees_the_ids_at_once_and_the_next_pods_get_them(gpu_node: GpuNode) -> None:
    gpu_node.start(BOTH)
    for name in ("a", "b"):
        gpu_node.create(pod(name, container(i915=1, millicores=1000)))
    gpu_node.running(["a", "b"])
    gpu_node.settled()
    had = ids(gpu_node, "a")

    # Decided by the extender, while the old containers may still run.
    delete_now(gpu_node.api, "a")
    gpu_node.create(pod("c", container(i915=1, millicores=1000)))
    gpu_node.running(["c"])
    assert ids(gpu_node, "c") == had
    gpu_node.settled()

    # Nothing decided: the node is full, so kubelet refuses the first, and the second gets what has just come free.
    gpu_node.create(pod("early", container(i915=1)), node=gpu_node.node.name)
    refused = wait_for("kubelet's refusal", lambda: gone_wrong(gpu_node, "early"))
    assert refused["reason"] == "UnexpectedAdmissionError"
    delete_now(gpu_node.api, "c")
    gpu_node.create(pod("direct", container(i915=1)), node=gpu_node.node.name)
    gpu_node.running(["direct"])
    gpu_node.settled(receipts_expected=["direct"])
    assert ids(gpu_node, "direct") == had
    wait_for("its event", lambda: event_messages(gpu_node.api, "direct", "GPUCardsAdopted"))


def test_what_users_write_on_pods_that_name_their_node_is_not_believed_and_costs_no_other_pod_its_cards(
    gpu_node: GpuNode,
) -> None:
    gpu_node.start(BOTH, "--shared-dev-num=8")
    init = (container("prepare", xe=1), container("side", sidecar=True, xe=1, tiles=1))
    gpu_node.create(pod("tiles", container(xe=1, tiles=1), init=init), node=gpu_node.node.name)
    forged = {
        "not-there": "card9",
        "more-than-asked": "card0,card1",
        "no-card": "GPU zero",
        "too-many-places": "card0|card1",
        "of-the-other-driver": "card2",
        "binary": "\x00\x01",
    }
    for number, (name, cards) in enumerate(forged.items()):
        annotations = {"gas-container-cards": cards, "gas-ts": "1"}
        gpu_node.create(pod(name, container(i915=1), annotations=annotations), node=gpu_node.node.name)
        if number % 3 == 0:
            gpu_node.create(pod(f"honest-{number}", container(i915=1, millicores=800)))
    tiles, *_ = gpu_node.running(["tiles", *forged, "honest-0", "honest-3"])
    gpu_node.settled(receipts_expected=["tiles", *forged])
    assert MASK not in gpu_node.node.environment(tiles, "main"), "no tiles were decided"
    wait_for("its event", lambda: event_messages(gpu_node.api, "not-there", "GPUAllocationMismatch"))


def test_while_kubelet_does_not_say_who_has_what_cards_are_given_out_and_broken_cards_cost_the_others_nothing(
    gpu_node: GpuNode,
) -> None:
    gpu_node.start(BOTH, "--shared-dev-num=2")
    for gpu, file, how in ((BROKEN[0], "vendor", "binary"), (BROKEN[1], "device", "dangling")):
        add_gpu(gpu_node.tree, gpu, character_devices=True)
        break_file(device_directory(gpu_node.tree, gpu) / file, how)
    socket = gpu_node.node.pod_resources
    aside = socket.rename(socket.with_name("aside.sock"))
    gpu_node.stop_plugin()
    gpu_node.plugin.start()
    for name in ("one", "tile", "other-tile"):  # by itself a pod cannot be taken for another
        gpu_node.create(pod(name, container(i915=1) if name == "one" else container(xe=1, tiles=1)))
        gpu_node.running([name])
    at_once = ["a", "b", "c"]
    for name in at_once:
        gpu_node.create(pod(name, container(i915=1, millicores=600 if name == "a" else 300)))
    gpu_node.running(at_once)
    said = gpu_node.object()["metadata"]["labels"]
    assert said[PREFIX + "gpu-numbers"] == "0.1.2.3"
    assert gpu_node.plugin.metric("gas_plugin_scan_problems") >= 2
    aside.rename(socket)
    otherwise = given_otherwise(gpu_node)
    print(f"without kubelet's lists these got other cards than decided: {otherwise or 'none'}")
    assert set(otherwise) <= set(at_once)
    gpu_node.settled(receipts_expected=otherwise)


def test_an_edited_decision_gets_a_receipt_and_every_disagreement_is_named(gpu_node: GpuNode) -> None:
    gpu_node.start(BOTH)
    gpu_node.create(pod("edited", container(i915=1, millicores=700)))
    (edited,) = gpu_node.running(["edited"])
    gpu_node.settled()
    (card,) = gpu_node.cards(edited)
    (other,) = {"card0", "card1"} - {card}
    gpu_node.stop_plugin()
    gpu_node.api.merge(f"{PODS}/edited", {"metadata": {"annotations": {"gas-container-cards": other}}})
    wait_for("the extender's trouble", lambda: gpu_node.extender.books()["trouble"])
    named = "\n".join(gpu_node.witnesses.disagreements())
    assert f"edited/main has device nodes of ['{card}'], written are ['{other}']" in named
    assert f"edited/main has i915 of ['{card}'] for kubelet, written are ['{other}']" in named
    assert "the books have trouble" in named
    assert "the books have pod edited on" in named
    gpu_node.plugin.start()
    gpu_node.settled(receipts_expected=["edited"])
    assert gpu_node.receipts() == {"edited": {"gas-allocated-cards": card}}


def test_cards_that_go_away_or_lose_a_device_node_are_not_given_until_they_are_back(gpu_node: GpuNode) -> None:
    gpu_node.start(BOTH, "--shared-dev-num=2")
    gone, damaged = ORDINARY
    for name in ("a", "b"):
        gpu_node.create(pod(name, container(i915=1, millicores=600)))
    before = gpu_node.running(["a", "b"])
    assert sorted(gpu_node.cards(each)[0] for each in before) == ["card0", "card1"]
    render_node = gpu_node.tree / "dev/dri" / damaged.render_node
    remove_gpu(gpu_node.tree, gone)
    aside = render_node.rename(render_node.with_name("aside"))
    wait_for("no card to give", lambda: gpu_node.allocatable("i915") == 0)
    wait_for("none for the extender", lambda: not any(gpu_node.places()[card] for card in ("card0", "card1")))
    assert gpu_node.plugin.metric('gas_plugin_cards{driver="i915",state="unhealthy"}') == 2
    assert gpu_node.allocatable("xe") == 4
    gpu_node.create(pod("later", container(i915=1, millicores=200)))
    wait_for("it is refused", lambda: is_refused(gpu_node.api, "later"))
    gpu_node.settled()  # those that run have their cards still

    add_gpu(gpu_node.tree, gone, character_devices=True)
    aside.rename(render_node)
    wait_for("all cards to give", lambda: gpu_node.allocatable("i915") == 4)
    gpu_node.running(["later"])
    gpu_node.settled()
    assert gpu_node.plugin.metric('gas_plugin_cards{driver="i915",state="unhealthy"}') == 0
    after = [get_pod(gpu_node.api, name) for name in ("a", "b")]
    assert [starts(each) for each in after] == [starts(each) for each in before], "they ran on"


def test_a_container_that_restarts_while_the_api_server_is_away_has_its_cards_again(gpu_node: GpuNode) -> None:
    gpu_node.start(BOTH, "--shared-dev-num=2")
    written = pod("restarts", container(xe=1, tiles=1))
    written["spec"]["restartPolicy"] = "Always"
    gpu_node.create(written)
    (before,) = gpu_node.running(["restarts"])
    gpu_node.settled()
    gpu_node.cluster.control_plane.stop_api_server()
    gpu_node.node.kill(before, "main")
    printed = wait_for("its second start", lambda: gpu_node.node.log(before, "main", restarts=1))
    wait_for("all it prints", lambda: f"{MASK}=" in gpu_node.node.log(before, "main", restarts=1))
    (card,) = gpu_node.cards(before)
    assert printed.splitlines()[:2] == ["by-path", card]
    assert gpu_node.plugin.program.is_running
    assert gpu_node.plugin.is_ready()
    back = time.monotonic()
    gpu_node.cluster.control_plane.start_api_server()
    gpu_node.cluster.restart_scheduler()  # it would watch again only after up to a minute
    wait_for("kubelet reports it", lambda: starts(get_pod(gpu_node.api, "restarts"))[1] == 1)
    gpu_node.running(["restarts"])
    gpu_node.settled()
    # Until its watch works again, the plugin can only guess which pod a call is for.
    age = 'gas_plugin_watch_age_seconds{kind="pods"}'
    wait_for("the plugin's watch works again", lambda: gpu_node.plugin.metric(age) < time.monotonic() - back)
    gpu_node.create(pod("next", container(xe=1, tiles=2)))
    gpu_node.running(["next"])
    gpu_node.settled()


def ids(gpu_node: GpuNode, name: str) -> set[str]:
    """Return the ids of the pod's only container."""
    return listed_ids(gpu_node.node.pod_resources)[name, "main"]["i915"]


def given_otherwise(gpu_node: GpuNode) -> list[str]:
    """Return the pods with other cards than decided."""
    return [
        each["metadata"]["name"]
        for each in gpu_node.witnesses.pods()
        for written in written_containers(each)
        if gpu_node.cards(each, written.name) != sorted(written.cards)
    ]


def gone_wrong(gpu_node: GpuNode, name: str) -> Object | None:
    """Return the pod's status when it failed with a reason."""
    status: Object = get_pod(gpu_node.api, name)["status"]
    return status if status["phase"] == "Failed" and "reason" in status else None


def starts(of: Object) -> tuple[str, int]:
    """Return the id of the container, and how often it was restarted."""
    (status,) = of["status"]["containerStatuses"]
    return status["containerID"], status["restartCount"]
