"""Pods in all words come and go on a real node with cards of two vendors, while programs are killed."""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from random import Random

import pytest

from sandbox.hardware.fake_sysfs import Model, fake_gpus
from tests.e2e.agreement import with_receipts
from tests.e2e.fake_nvml import FakeNvml, card, uuid
from tests.e2e.gpu_node import GpuNode
from tests.e2e.kube_api import Object
from tests.e2e.mixed_words import ALL_WORDS, GIB, over_capacity, random_pod, words_of
from tests.e2e.pod_resources import listed_ids
from tests.e2e.pods import OVER, PODS, cards_of, container, delete, delete_now, event_messages, is_refused, node_of, pod
from tests.e2e.waiting import wait_for
from tests.e2e.written_cards import written_containers

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")

OF_INTEL = fake_gpus(Model(device_id="0x56c0", driver="i915", memory=8 * GIB), 2)
OF_NVIDIA = [card(minor, total=9 * GIB, reserved=GIB) for minor in range(3)]
MEMORY = dict.fromkeys(("card0", "card1", "card1000", "card1001", "card1002"), 8 * GIB)
WORDS = ("--vocabularies=intel,aliyun,kubeshare,koordinator,vendor", "--aliyun-unit=GiB")

PODS_CREATED, BETWEEN_KILLS = 50, 6
KILLS = ("extender", "plugin", "kubelet") * 2
MOST_ALIVE, MOST_STARTING = 14, 4
PATIENCE = 180.0
"""Seconds for a start, which a busy machine delays."""

NOT_OFFERED = "kubelet did not offer "


WITHOUT_PLUGIN = (
    "no healthy devices present",
    "cannot allocate unregistered device",
    "error while dialing",
    "error reading from server",
    "the client connection is closing",
    "Server shutdown",
    "desc = CANCELLED",
)
"""kubelet's errors when the plugin is not there, or ends during a call because it is killed, or terminated while
pods are created without a pause. The last one is seen on busy machines, where a call outlasts the plugin's grace."""


def is_excused(failed: Object) -> bool:
    """Return whether a pod failed because there was no plugin, or because kubelet was killed while it started it."""
    status = failed["status"]
    if status.get("reason") == "UnexpectedAdmissionError":
        return any(why in status["message"] for why in WITHOUT_PLUGIN)
    # containerd gives up a starting container if kubelet, which requested it, was killed.
    states = [each["state"].get("terminated", {}) for each in failed["status"].get("containerStatuses", [])]
    return any(state.get("reason") == "StartError" and "context canceled" in state["message"] for state in states)


class Life:
    """Pods that come and go on the node.

    ran      words -> names of the pods that were seen running
    refused  how many pods kubelet failed because a program was killed
    """

    def __init__(self, gpu_node: GpuNode, rng: Random) -> None:
        self.ran: defaultdict[str, set[str]] = defaultdict(set)
        self.created = self.deleted = self.refused = 0
        self._node = gpu_node
        self._rng = rng

    def create(self, words: str = "") -> str:
        """Create a pod in these words, or in random ones, and return its name."""
        name = f"p{self.created}"
        written = random_pod(name, self._rng, words)
        self._node.prepare(written)
        written["spec"]["terminationGracePeriodSeconds"] = 1
        self._node.api.create(PODS, written)
        self.created += 1
        return name

    def step(self) -> None:
        """Create a pod, delete others if there are many, and check what all of them take."""
        self.create()
        self.catch_up()
        alive = [each for each in self.alive() if "deletionTimestamp" not in each["metadata"]]
        for each in self._rng.sample(alive, max(0, len(alive) - MOST_ALIVE) or self._rng.choice((0, 0, 1))):
            self.delete(each)

    def delete(self, written: Object) -> None:
        grace = {"gracePeriodSeconds": "0"} if self._rng.random() < 0.3 else {}
        delete(self._node.api, written["metadata"]["name"], **grace)
        self.deleted += 1

    def alive(self) -> list[Object]:
        """Return the pods that have not ended, after a check of what the bound ones take together."""
        pods = self._node.api.items(PODS)
        alive = [each for each in pods if each["status"]["phase"] not in OVER]
        assert taken_too_often([each for each in alive if each["spec"].get("nodeName")]) == []
        for each in pods:
            if each["status"]["phase"] == "Running":
                self.ran[words_of(each)].add(each["metadata"]["name"])
            elif each["status"]["phase"] == "Failed":
                assert is_excused(each) or "deletionTimestamp" in each["metadata"], each["status"]
                self.refused += 1
                delete_now(self._node.api, each["metadata"]["name"])
        return alive

    def run_alone(self, words: str) -> None:
        """Delete all pods, and wait until a new one in these words runs on the empty node."""
        for each in self.alive():
            self.delete(each)
        wait_for("an empty node", lambda: not self.alive(), seconds=PATIENCE, every=0.2)
        name = self.create(words)

        def runs() -> bool:
            self.alive()
            return name in self.ran[words]

        wait_for(f"a pod in the words of {words} runs", runs, seconds=PATIENCE, every=0.2)

    def catch_up(self, *, most: int = MOST_STARTING) -> None:
        """Wait until at most so many pods are bound and do not run yet, or are ending."""

        def starting() -> list[str]:
            return [
                each["metadata"]["name"]
                for each in self.alive()
                if each["spec"].get("nodeName")
                and (each["status"]["phase"] != "Running" or "deletionTimestamp" in each["metadata"])
            ]

        wait_for(f"at most {most} pods start or end", lambda: len(starting()) <= most, seconds=PATIENCE, every=0.2)


def taken_too_often(pods: Sequence[Object]) -> list[str]:
    """Return `over_capacity` by what the pods have, without the pods and cards where kubelet gave others than decided.

    It does so when it still holds the ids of deleted pods; see `given_otherwise`.
    """
    excused = set()
    for each in pods:
        decided, has = (
            {card for of in written_containers(as_is) for card in of.cards} for as_is in (each, with_receipts(each))
        )
        if decided != has:
            excused |= {f"pod {each['metadata']['name']}", *has}
    found = over_capacity([with_receipts(each) for each in pods], MEMORY)
    return [line for line in found if line.partition(":")[0] not in excused]


def kill(gpu_node: GpuNode, what: str, life: Life) -> None:
    """Kill a program, create a pod while it is away, start it again, and return when it works."""
    if what == "extender":
        gpu_node.extender.program.kill()
        life.create()
        gpu_node.extender.start_and_wait_until_ready(seconds=PATIENCE)
    elif what == "plugin":
        gpu_node.plugin.program.kill()
        life.create()
        gpu_node.plugin.start(seconds=PATIENCE)
    else:
        gpu_node.node.kubelet.program.kill()
        life.create()
        gpu_node.node.kubelet.start(seconds=PATIENCE)
        wait_for("the plugin registered again", gpu_node.plugin.is_ready, seconds=PATIENCE)


def written(name: str, limits: dict[str, str], cards: str, **annotations: str) -> Object:
    asking: Object = {"name": "main", "resources": {"limits": limits}}
    stated = {f"kubeshare/{key}": text for key, text in annotations.items()} | {"gas-container-cards": cards}
    return {"metadata": {"name": name, "annotations": stated}, "spec": {"containers": [asking]}}


THREE_QUARTERS = written("a", {"aliyun.com/gpu-mem": "6"}, "card0")
WHOLE = written("w", {"nvidia.com/gpu": "1"}, "card1000")
SMALL_SHARE = {"gpu_request": "0.2", "gpu_mem": "0"}


WRONG = {
    "card0: 9663676416 of 8589934592 memory are taken": [written("b", {"aliyun.com/gpu-mem": "3"}, "card0")],
    "card0: 1010 of 1000 millicores are taken by ['a', 'b']": [
        written("b", {"koordinator.sh/gpu.shared": "1", "koordinator.sh/gpu-core": "26"}, "card0")
    ],
    "card0: these pods must not share it": [
        written("b", {"kubeshare/vgpu": "1"}, "card0", **SMALL_SHARE, sched_exclusion="blue")
    ],
    "card1000: 1200 of 1000 millicores": [WHOLE, written("b", {"kubeshare/vgpu": "1"}, "card1000", **SMALL_SHARE)],
    "pod b: container main: ('card1',) are not cards for": [written("b", {"nvidia.com/gpu": "1"}, "card1")],
    "pod b: container main asks for 2 card(s)": [written("b", {"nvidia.com/gpu": "2"}, "card1000")],
}


def test_the_check_of_the_cards_finds_what_must_not_be() -> None:
    assert over_capacity([THREE_QUARTERS, WHOLE], MEMORY) == []
    for sentence, pods in WRONG.items():
        assert sentence in "\n".join(over_capacity([THREE_QUARTERS, *pods], MEMORY))
    # A card that kubelet gave instead is not checked.
    half = written("b", {"aliyun.com/gpu-mem": "4"}, "card0")
    assert taken_too_often([THREE_QUARTERS, half])
    half["metadata"]["annotations"]["gas-allocated-cards"] = "card1"
    assert taken_too_often([THREE_QUARTERS, half]) == []
    assert taken_too_often([THREE_QUARTERS, written("c", {"aliyun.com/gpu-mem": "3"}, "card0"), half])


# contract A1.15, A1.17, A1.20, A1.21, O1.20, S1.5, S1.13, V1.2
@pytest.mark.usefixtures("no_pods_after")
def test_no_card_is_ever_over_capacity_and_all_accounts_agree_when_pods_in_all_words_meet(gpu_node: GpuNode) -> None:
    seed = int(os.environ.get("GAS_E2E_SEED", "14"))
    print(f"\nseed {seed}; another one with GAS_E2E_SEED=N")
    rng = Random(seed)
    # With an ignorable extender kube-scheduler binds on its own, without cards, while ours is dead.
    gpu_node.cluster.restart_scheduler(ignorable=False)
    start(gpu_node)
    life = Life(gpu_node, rng)
    kills = iter(rng.sample(KILLS, len(KILLS)))
    for number in range(PODS_CREATED):
        life.step()
        if number % BETWEEN_KILLS == BETWEEN_KILLS - 1 and (what := next(kills, None)):
            print(f"after {life.created} pods: {what} killed")
            kill(gpu_node, what, life)
    assert next(kills, None) is None

    for each in life.alive():
        if "nodeName" not in each["spec"]:
            delete_now(gpu_node.api, each["metadata"]["name"])
    life.catch_up(most=0)
    wait_for("agreement", lambda: not disagreements(gpu_node), seconds=60, every=1)
    otherwise = given_otherwise(gpu_node)
    ran = {words: len(names) for words, names in life.ran.items()}
    print(
        f"{life.created} pods created, {life.deleted} deleted, {life.refused} refused while a program was away;"
        f" {ran} ran; {len(life.alive())} run at the end; other cards than decided have {otherwise or 'none'}"
    )
    # Whether pods in all words found room among the others is chance; alone on the node each of them has to run.
    for words in ALL_WORDS:
        life.run_alone(words)


@pytest.mark.usefixtures("no_pods_after")
def test_running_pods_keep_their_cards_while_their_words_are_off(gpu_node: GpuNode) -> None:
    api = gpu_node.api
    gpu_node.cluster.restart_scheduler(ignorable=False)
    start(gpu_node)
    life = Life(gpu_node, Random(1))
    names = {life.create(words): words for words in reversed(ALL_WORDS)}
    gpu_node.running(names)
    given = gpu_node.extender.booked()[gpu_node.node.name]

    gpu_node.start_extender("--vocabularies=intel")
    held = {each["pod"].removeprefix("default/") for each in gpu_node.extender.books()["pods"].values()}
    assert held == names.keys()
    log = gpu_node.extender.program.log_text()
    for name, words in names.items():
        if words != "intel":
            assert f"pod=default/{name}" in log
            wait_for("an event", partial(event_messages, api, name, "GPUBookingMismatch"), seconds=20)
    others = [f"other-{number}" for number in range(10)]
    for name in others:
        gpu_node.create(pod(name, container(i915=1, memory_max="1Gi", millicores=1)))
    wait_for(
        "the others are bound or refused",
        lambda: all(node_of(api, name) or is_refused(api, name) for name in others),
        seconds=PATIENCE,
    )
    for name in others:
        if not node_of(api, name):
            delete(api, name)  # else it may join a card once all words are on
    bound = [each for each in life.alive() if each["metadata"]["name"] in others]
    joined = {cards_of(each) for each in bound}
    assert 0 < len(bound) < len(others)
    gpu_node.start_extender(*WORDS)
    again = gpu_node.extender.booked()[gpu_node.node.name]
    assert {card: again[card] for card in given if card not in joined} == {
        card: amounts for card, amounts in given.items() if card not in joined
    }
    assert gpu_node.extender.books()["differences"] == []


def start(gpu_node: GpuNode) -> None:
    library = FakeNvml(gpu_node.node.directory / "nvml")
    library.write(OF_NVIDIA)
    gpu_node.plugin_environment = library.environment
    gpu_node.new_plugin(OF_INTEL, "--shared-dev-num=10", "--card-sources=sysfs,nvml", *WORDS)
    gpu_node.plugin.start(seconds=PATIENCE)
    gpu_node.start_extender(*WORDS)
    wanted = {
        card: {"gpu-mem": 8, "vgpu": 1000, "gpu.shared": 100}
        | ({"nvidia-gpu": 1} if card.startswith("card10") else {"i915": 10})
        for card in MEMORY
    }

    def offered() -> dict[str, Object]:
        books = {card: of["capacity"] for card, of in gpu_node.books().items()}
        return {card: {what: number for what, number in of.items() if what in _COUNTS} for card, of in books.items()}

    wait_for(f"{wanted} in the books", lambda: offered() == wanted, seconds=PATIENCE)


_COUNTS = ("gpu-mem", "vgpu", "gpu.shared", "nvidia-gpu", "i915")


def disagreements(gpu_node: GpuNode) -> list[str]:
    """Return sentences about differences between annotations, kubelet's list, containers and the ledger."""
    books = gpu_node.extender.books()
    found = [f"{what}: {books[what]}" for what in ("differences", "trouble", "problems") if books[what]]
    listed = listed_ids(gpu_node.node.pod_resources)
    pods = [each for each in gpu_node.api.items(PODS) if each["spec"].get("nodeName")]
    for each in pods:
        name = each["metadata"]["name"]
        for written in written_containers(with_receipts(each)):
            ids = {id_ for of_resource in listed[name, written.name].values() for id_ in of_resource}
            cards = {id_.partition("-")[0] for id_ in ids}
            if cards != set(written.cards):
                found.append(f"{name}/{written.name}: kubelet lists {sorted(cards)}, written are {written.cards}")
            if (seen := cards_seen(gpu_node, each, written.name)) != set(written.cards):
                found.append(f"{name}/{written.name}: the container has {sorted(seen)}, written are {written.cards}")
    if extra := {pod for pod, _ in listed} - {each["metadata"]["name"] for each in pods}:
        found.append(f"kubelet lists {sorted(extra)}, which do not run")
    print(*found, sep="\n")
    return found


def cards_seen(gpu_node: GpuNode, of: Object, name: str) -> set[str]:
    """Return the cards that a container was given: Intel's by their device nodes, NVIDIA's by their UUIDs."""
    visible = gpu_node.node.environment(of, name).get("NVIDIA_VISIBLE_DEVICES", "").split(",")
    return {*gpu_node.cards(of, name), *(f"card{1000 + minor}" for minor in range(3) if uuid(minor) in visible)}


def given_otherwise(gpu_node: GpuNode) -> list[str]:
    """Return the pods whose receipt differs from the decision. Fails if the plugin's log gives another cause.

    A kubelet that has just started still holds the ids of pods that were deleted meanwhile, and does not offer them.
    """
    listed, causes = listed_ids(gpu_node.node.pod_resources), gpu_node.plugin.causes()
    found = []
    for each in gpu_node.api.items(PODS):
        for decided, has in zip(written_containers(each), written_containers(with_receipts(each)), strict=True):
            if set(decided.cards) != set(has.cards):
                ids = listed[each["metadata"]["name"], decided.name].values()
                cause = causes.get(frozenset(id_ for of_resource in ids for id_ in of_resource), "nothing")
                assert cause.startswith(NOT_OFFERED), f"{each['metadata']['name']}: {cause}"
                found.append(f"{each['metadata']['name']}/{decided.name}")
    return found
