"""The laws find what they are about."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from sandbox.api.kinds import NODES, POD_GROUPS, PODS
from sandbox.api.storage import Storage
from sandbox.api.verbs import Api
from simulation import objects
from simulation.laws import Laws
from simulation.observed import LawBroken

LATER = 1000
HALF = {"i915": 1, "millicores": 500}


class Cluster:
    """A cluster of one node with two cards, and the laws over it."""

    def __init__(self, given: dict[str, set[str]] | None = None) -> None:
        storage = Storage()
        self.now = 0.0
        self.api = Api(storage)
        self.laws = Laws(storage, lambda _uid: given, lambda: self.now)
        self.api.create(NODES, None, objects.node("n0", (0, 1)))
        self._decisions = 0

    def add(self, name: str, *containers: dict[str, int]) -> str:
        created = self.api.create(PODS, "default", objects.pod(name, list(containers), [], {}))
        self.laws.check_writes("")
        return str(created.value["metadata"]["uid"])

    def add_bound(self, name: str, cards: str, *containers: dict[str, int]) -> str:
        uid = self.add(name, *containers)
        self.bind(name, cards, by="extender-a" if cards else "user")
        return uid

    def add_share(self, name: str, thousandths: int, labels: dict[str, str]) -> None:
        self.api.create(PODS, "default", objects.share(name, thousandths, 0, labels, {}))
        self.laws.check_writes("")

    def annotate(self, name: str, annotations: dict[str, str]) -> None:
        patch = msgspec.json.encode({"metadata": {"annotations": annotations}})
        self.api.patch(PODS, "default", name, ("application/merge-patch+json", patch))
        self.laws.check_writes("")

    def add_in_words(self, name: str, asks: dict[str, int]) -> None:
        self.api.create(PODS, "default", objects.pod(name, [asks], [], {}, prefix=""))
        self.laws.check_writes("")

    def bind(
        self,
        name: str,
        cards: str,
        by: str = "extender-a",
        *,
        decided: int | None = None,
        more: dict[str, str] | None = None,
        node: str = "n0",
    ) -> None:
        self._decisions += 1
        annotations = {objects.CARDS: cards, objects.TIMESTAMP: str(decided or self._decisions)} if cards else {}
        annotations |= more or {}
        binding = {"metadata": {"name": name, "annotations": annotations}, "target": {"kind": "Node", "name": node}}
        self.api.bind("default", name, binding)
        self.laws.check_writes(by)


WHOLE = {"i915": 1, "millicores": 1000}


def broken(check: Any, *args: Any, **named: Any) -> str:
    with pytest.raises(LawBroken) as found:
        check(*args, **named)
    return f"{found.value}"


def expect(found: str, check: Any, *args: Any, **named: Any) -> None:
    """Assert that a check finds a broken law, with a sentence that begins so, or with an empty text that it holds."""
    if found:
        assert broken(check, *args, **named).startswith(found)
    else:
        check(*args, **named)


def test_cards_may_be_full_but_not_over_full() -> None:
    cluster = Cluster()
    for name in ("p0", "p1"):
        cluster.add_bound(name, "card0", HALF)
    cluster.add("p2", {"i915": 1, "millicores": 1})
    found = broken(cluster.bind, "p2", "card0")
    assert found == (
        "capacity: card0 of node n0: 1001 of millicores given, it never had more than 1000; pods p0, p1, p2"
    )


def test_the_cards_of_an_ended_pod_are_free() -> None:
    cluster = Cluster()
    cluster.add_bound("p0", "card0", WHOLE)
    cluster.api.delete(PODS, "default", "p0", {"gracePeriodSeconds": 0})
    cluster.add_bound("p1", "card0", WHOLE)


def test_the_cards_of_a_pod_that_still_ends_are_not_free() -> None:
    cluster = Cluster()
    cluster.add_bound("p0", "card0", WHOLE)
    cluster.api.delete(PODS, "default", "p0", {})
    cluster.add("p1", WHOLE)
    assert broken(cluster.bind, "p1", "card0").startswith("capacity:")


def test_a_card_that_the_node_never_had_is_over_full() -> None:
    cluster = Cluster()
    cluster.add("p0", HALF)
    assert broken(cluster.bind, "p0", "card7").startswith("capacity: card7")


@pytest.mark.parametrize("cards", ["", "card0", "card0|"])
def test_the_extender_gives_every_container_its_cards(cards: str) -> None:
    cluster = Cluster()
    cluster.add("p0", HALF, HALF)
    assert broken(cluster.bind, "p0", cards).startswith("cards written: pod p0")


ALIYUN = {objects.ALIYUN + "gpu-mem": 4000}
KOORDINATOR = {objects.KOORDINATOR + name: amount for name, amount in (("gpu.shared", 2), ("gpu-memory-ratio", 100))}
VENDOR = {objects.VENDOR: 1}


def aliyun(*cards: str, units: int = 4000) -> dict[str, str]:
    return dict(zip(objects.ALIYUN_ANNOTATIONS, (*cards, str(units)), strict=True))


def koordinator(memory: int, *cards: int) -> dict[str, str]:
    resources = {objects.KOORDINATOR + "gpu-core": "0", objects.KOORDINATOR + "gpu-memory": str(memory)}
    return {objects.ALLOCATED: json.dumps({"gpu": [{"minor": card, "resources": resources} for card in cards]})}


@pytest.mark.parametrize(
    ("asks", "cards", "more", "holds"),
    [
        pytest.param(ALIYUN, "card1", aliyun("1", "1"), True, id="aliyun"),
        pytest.param(ALIYUN, "card1", aliyun("1", "0"), False, id="aliyun-another-card"),
        pytest.param(ALIYUN, "card1", aliyun("1", "1", units=1), False, id="aliyun-other-units"),
        pytest.param(KOORDINATOR, "card0,card1", koordinator(4_000_000_000, 0, 1), True, id="koordinator"),
        pytest.param(KOORDINATOR, "card0,card1", koordinator(4_000_000_000, 0), False, id="koordinator-a-card-less"),
        pytest.param(KOORDINATOR, "card0,card1", koordinator(1, 0, 1), False, id="koordinator-other-memory"),
        pytest.param(KOORDINATOR, "card0", koordinator(4_000_000_000, 0), False, id="koordinator-too-few-cards"),
        pytest.param(VENDOR, "card0", {}, True, id="vendor"),
    ],
)
def test_a_pod_says_its_cards_in_its_own_words(
    asks: dict[str, int], cards: str, more: dict[str, str], holds: bool
) -> None:
    cluster = Cluster()
    cluster.add_in_words("p0", asks)
    expect("" if holds else "cards written: p", cluster.bind, "p0", cards, more=more)


def test_pods_of_all_vocabularies_count_on_a_card() -> None:
    cluster = Cluster()
    cluster.add_in_words("p0", ALIYUN)
    cluster.bind("p0", "card0", more=aliyun("0", "0"))
    cluster.add_in_words("p1", KOORDINATOR)
    found = broken(lambda: cluster.bind("p1", "card0,card1", more=koordinator(4_000_000_000, 0, 1)))
    assert found.startswith("capacity: card0 of node n0: 8194304000 of memory.max given")


def test_a_whole_card_is_one_that_no_other_pod_has() -> None:
    cluster = Cluster()
    for name in ("p0", "p1"):
        cluster.add(name, {"i915": 1})
    cluster.bind("p0", "card0")
    cluster.bind("p1", "card1")
    cluster.add_in_words("p2", VENDOR)
    cluster.laws.check_bound()
    assert broken(cluster.bind, "p2", "card1") == "company: pod p2 shares card1 with p1: exclusion"


@pytest.mark.parametrize(
    ("tiles", "found"),
    [
        pytest.param("card0:gt0,card1:gt1", "", id="linked"),
        pytest.param("card0:gt0,card1:gt0", "links: pod p0 has [('card0', 'gt0'), ('card1', 'gt0')]", id="not-linked"),
    ],
)
def test_linked_cards_have_linked_tiles(tiles: str, found: str) -> None:
    cluster = Cluster()
    pod = objects.pod("p0", [{"i915": 2, "tiles": 2}], [], {"annotations": {objects.LINKED: ""}})
    cluster.api.create(PODS, "default", pod)
    cluster.laws.check_writes("")
    expect("progress: pod p0 waits", cluster.laws.check_bound)
    expect(found, cluster.bind, "p0", "card0,card1", more={objects.TILES: tiles})


@pytest.mark.parametrize(
    ("tiles", "found"),
    [
        pytest.param("card1:gt0", "", id="of-another-card"),
        pytest.param("card0:gt1", "", id="another"),
        pytest.param("card0:gt0", "tiles: pod p1 has [('card0', 'gt0')] of node n0", id="the-same"),
        pytest.param("", "tiles: pod p1 asked for 1 tiles of each of ['card0']", id="none"),
        pytest.param("card0:gt0+gt1", "tiles: pod p1 asked for 1 tiles of each of ['card0']", id="too-many"),
    ],
)
def test_a_tile_belongs_to_one_container(tiles: str, found: str) -> None:
    cluster = Cluster()
    for name in ("p0", "p1"):
        cluster.add(name, {"i915": 1, "tiles": 1})
    cluster.bind("p0", "card0", more={objects.TILES: "card0:gt0"})
    more = {objects.TILES: tiles} if tiles else {}
    expect(found, cluster.bind, "p1", "card1" if "card1" in tiles else "card0", more=more)


def test_other_clients_may_bind_without_cards() -> None:
    cluster = Cluster()
    cluster.add_bound("p0", "", HALF)


def test_a_pod_that_fits_must_not_wait() -> None:
    cluster = Cluster()
    cluster.add("p0", WHOLE, HALF)
    assert broken(cluster.laws.check_bound) == "progress: pod p0 waits, but fits node n0"
    cluster.add_bound("p1", "card1", {"i915": 1, "millicores": 600})
    cluster.laws.check_bound()


@pytest.mark.parametrize(("millicores", "holds"), [(501, True), (500, False)])
def test_a_pod_may_wait_for_cards_that_may_be_reserved_for_one_bound_without_any(millicores: int, holds: bool) -> None:
    cluster = Cluster()
    uid = cluster.add_bound("p0", "", HALF)
    cluster.add("p1", {"i915": 1, "millicores": millicores})
    expect("" if holds else "progress: pod p1 waits", cluster.laws.check_bound)
    cluster.laws.check_books("a", {uid: ("n0", {"card0": HALF})})


def test_a_pod_of_another_scheduler_may_wait() -> None:
    cluster = Cluster()
    pod = objects.pod("p0", [HALF], [], {})
    pod["spec"]["schedulerName"] = objects.OTHER_SCHEDULER
    cluster.api.create(PODS, "default", pod)
    cluster.laws.check_writes("")
    cluster.laws.check_bound()


def test_edited_pods_do_not_count() -> None:
    cluster = Cluster()
    uid = cluster.add_bound("p0", "card0", WHOLE)
    cluster.laws.edit(uid)
    cluster.add_bound("p1", "card0", HALF)


@pytest.mark.parametrize(
    ("annotations", "cards", "found"),
    [
        pytest.param({objects.ALLOW: "card1,card2"}, "card1", "", id="allowed"),
        pytest.param({objects.ALLOW: "card1,card2"}, "card0", "lists: pod p0 has ['card0']", id="not-allowed"),
        pytest.param({objects.DENY: "card1"}, "card1", "lists: pod p0 has ['card1']", id="denied"),
        pytest.param({}, "card0,card1", "", id="two-numa-nodes"),
        pytest.param({objects.SINGLE_NUMA: ""}, "card0,card1", "groups: pod p0 has ['card0', 'card1']", id="numa"),
    ],
)
def test_rules_of_pods_about_cards_hold(annotations: dict[str, str], cards: str, found: str) -> None:
    cluster = Cluster()
    pod = objects.pod("p0", [{"i915": cards.count(",") + 1}], [], {"annotations": annotations})
    cluster.api.create(PODS, "default", pod)
    cluster.laws.check_writes("")
    expect("progress: pod p0 waits" if objects.SINGLE_NUMA not in annotations else "", cluster.laws.check_bound)
    expect(found, cluster.bind, "p0", cards)


@pytest.mark.parametrize(("seconds", "card", "holds"), [(0.5, "card0", True), (2, "card1", True), (2, "card0", False)])
def test_disabled_cards_are_not_given_once_that_is_known(seconds: float, card: str, holds: bool) -> None:
    cluster = Cluster()
    cluster.laws.calm = True
    labels = msgspec.json.encode({"metadata": {"labels": {f"{objects.DISABLED}card0": "true"}}})
    cluster.api.patch(NODES, None, "n0", ("application/merge-patch+json", labels))
    cluster.add("p0", WHOLE, WHOLE)
    cluster.laws.check_bound()
    cluster.add("p1", WHOLE)
    cluster.now = seconds
    expect("" if holds else "disabled cards: pod p1 was given card0", cluster.bind, "p1", card)


@pytest.mark.parametrize("calm", [True, False])
def test_the_scheduler_binds_no_pod_itself_unless_something_fails(calm: bool) -> None:
    cluster = Cluster()
    cluster.laws.calm = calm
    cluster.add("p0", HALF)
    expect("cards written: pod p0 was bound without" if calm else "", cluster.bind, "p0", "", "scheduler")


def test_victims_free_what_a_node_has_besides_its_cards() -> None:
    cluster = Cluster()
    cluster.laws.calm = True
    cluster.now = 5.0
    uids = [cluster.add_bound(name, "card0", HALF | {objects.CPU: 500}) for name in ("p0", "p1")]
    pod = objects.pod("p2", [HALF | {objects.CPU: 600}], [], {"uid": "2", "namespace": "default"})
    pod["spec"]["priority"] = 1
    cluster.laws.check_victims(pod, "n0", uids, LATER)
    assert "too few for p2" in broken(cluster.laws.check_victims, pod, "n0", uids[:1], LATER)


@pytest.mark.parametrize(("victim", "holds"), [(0, True), (1, False), (2, False)])
def test_budgets_then_priorities_say_which_pod_is_evicted(victim: int, holds: bool) -> None:
    cluster = Cluster()
    cluster.laws.calm = True
    cluster.api.create(NODES, None, objects.node("n1", (0, 1, 2)))
    uids = []
    for index, (app, priority) in enumerate((("b", 100), ("", 1000), ("a", 0))):
        pod = objects.pod(f"p{index}", [WHOLE], [], {"labels": {"app": app}})
        pod["spec"]["priority"] = priority
        uids.append(str(cluster.api.create(PODS, "default", pod).value["metadata"]["uid"]))
        cluster.laws.check_writes("")
        cluster.bind(f"p{index}", f"card{index}", node="n1")
    cluster.now = 5.0
    one = objects.pod("p9", [WHOLE], [], {"uid": "9", "namespace": "default"})
    one["spec"]["priority"] = 2000
    expect("" if holds else "preemption: ['p", cluster.laws.check_victims, one, "n1", [uids[victim]], LATER)


@pytest.mark.parametrize(("priority", "node", "holds"), [(1, "n0", True), (0, "n0", False), (1, "n1", False)])
def test_only_less_important_pods_of_the_node_are_evicted(priority: int, node: str, holds: bool) -> None:
    cluster = Cluster()
    uid = cluster.add_bound("p0", "card0", HALF)
    pod = objects.pod("p1", [HALF], [], {"uid": "1"})
    pod["spec"]["priority"] = priority
    found = "" if holds else "preemption: p0 on n0 is evicted"
    expect(found, cluster.laws.check_victims, pod, node, [uid], LATER)


def test_a_pod_fits_once_others_are_evicted_for_it() -> None:
    cluster = Cluster()
    uids = [cluster.add(name, WHOLE) for name in ("p0", "p1")]
    cluster.bind("p0", "card0")
    before = int(cluster.api.get(PODS, "default", "p0").value["metadata"]["resourceVersion"])
    cluster.bind("p1", "card1")
    pod = objects.pod("p2", [{"i915": 2}, WHOLE], [], {"uid": "2"})
    pod["spec"]["priority"] = 1
    cluster.laws.check_victims(pod, "n0", uids, LATER)
    one = objects.pod("p3", [WHOLE, WHOLE], [], {"uid": "3"})
    one["spec"]["priority"] = 1
    assert (
        broken(cluster.laws.check_victims, one, "n0", uids[:1], LATER) == "preemption: 1 pods of n0 are too few for p3"
    )
    cluster.laws.check_victims(one, "n0", uids[:1], before)  # the other was bound later


@pytest.mark.parametrize("complete", [True, False])
def test_pods_that_request_no_card_are_left_out(complete: bool) -> None:
    cluster = Cluster()
    created = cluster.api.create(PODS, "default", objects.share("p0", 500, 0, {}, {}, complete=complete))
    assert objects.asks_for_cards(created.value)
    assert objects.requests_cards(created.value) is complete
    cluster.bind("p0", "card0")
    assert cluster.laws.bindings == complete
    cluster.laws.check_books("extender-a", {created.value["metadata"]["uid"]: ("n0", {"card0": {"millicores": 500}})})
    if complete:
        assert broken(cluster.laws.check_books, "extender-a", {}) == "books: extender-a has no booking of pod p0 on n0"
    else:
        cluster.laws.check_books("extender-a", {})


@pytest.mark.parametrize("why", ["", "a fault", "a change", "a binding", "another pod is nominated", "cards unknown"])
def test_no_pod_is_evicted_without_need(why: str) -> None:
    cluster = Cluster()
    uids = [cluster.add(name, WHOLE) for name in ("p0", "p1")]
    for name, card in (("p0", "card0"), ("p1", "card1")):
        cluster.bind(name, card)
    cluster.laws.calm = why != "a fault"
    cluster.now = 0.5 if why == "a change" else 5.0
    if why == "another pod is nominated":
        cluster.add("p3", HALF)
        nominate(cluster, "p3", "n0")
    if why == "cards unknown":
        cluster.laws.edit(cluster.add("p3", HALF))
        cluster.bind("p3", "", by="user")
        cluster.now += 5.0
    pod = objects.pod("p2", [HALF], [], {"uid": "2"})
    pod["spec"]["priority"] = 1
    cluster.laws.check_victims(pod, "n0", uids[:1], LATER)
    found = "" if why else "preemption: ['p0', 'p1'] of n0 are evicted for p2, ['p0'] would do and cost less"
    expect(found, cluster.laws.check_victims, pod, "n0", uids, LATER, binding=why == "a binding")


def nominate(cluster: Cluster, name: str, node: str | None) -> dict[str, Any]:
    patch = msgspec.json.encode({"status": {"nominatedNodeName": node}})
    cluster.api.patch(PODS, "default", name, ("application/merge-patch+json", patch), "status")
    cluster.laws.check_writes("")
    pod = cluster.api.get(PODS, "default", name).value
    return {**pod, "spec": {**pod["spec"], "priority": 1}}


def evict_newcomers(
    cluster: Cluster, *, by: str = "extender-a", give_up: bool = False, nominated: str | None = "n0"
) -> None:
    """Bind three pods one after the other, each of which is evicted at once for the same nominated pod."""
    cluster.add("p9", HALF)
    for name in ("p0", "p1", "p2"):
        uid = cluster.add(name, HALF)
        cluster.bind(name, "card0" if by else "", by)
        pod = nominate(cluster, "p9", nominated)
        for _ in range(2):
            cluster.laws.check_victims(pod, "n0", [uid], LATER)
        cluster.api.delete(PODS, "default", name, {"gracePeriodSeconds": 0})
        if give_up:
            nominate(cluster, "p9", None)


def test_the_extender_does_not_give_kept_cards_to_other_pods_repeatedly() -> None:
    assert broken(evict_newcomers, Cluster()).startswith(
        "preemption: pods that had just been bound were evicted for p9 3"
    )


def test_other_clients_may_bind_pods_to_kept_cards() -> None:
    evict_newcomers(Cluster(), by="")


def test_cards_are_not_kept_once_a_nomination_is_given_up() -> None:
    evict_newcomers(Cluster(), give_up=True)


def test_nothing_is_kept_for_a_pod_that_could_not_be_nominated() -> None:
    evict_newcomers(Cluster(), nominated=None)


def test_a_replica_knows_which_pods_wait() -> None:
    cluster = Cluster()
    uid = cluster.add("p0", HALF)
    cluster.laws.check_waiting("a", {uid})
    assert broken(cluster.laws.check_waiting, "a", set()) == "books: a does not know that p0 waits"
    cluster.bind("p0", "card0")
    cluster.laws.check_waiting("a", set())
    assert broken(cluster.laws.check_waiting, "a", {uid}).startswith(f"books: a waits for {uid}")


@pytest.mark.parametrize(("decided", "holds"), [(2, True), (1, False)])
def test_the_times_of_decisions_rise(decided: int, holds: bool) -> None:
    cluster = Cluster()
    cluster.add("p0", HALF)
    cluster.bind("p0", "card0", decided=1)
    cluster.add("p1", HALF)
    found = "" if holds else "moments: p1 was decided after p0, but says before"
    expect(found, cluster.bind, "p1", "card0", decided=decided)


@pytest.mark.parametrize(
    ("bound", "waiting", "waits"),
    [
        pytest.param({objects.COMPANY[1]: "a"}, {objects.COMPANY[1]: "a"}, True, id="anti-affinity"),
        pytest.param({objects.COMPANY[1]: "a"}, {objects.COMPANY[1]: "b"}, False, id="other-anti-affinity"),
        pytest.param({}, {objects.COMPANY[0]: "a"}, True, id="affinity"),
        pytest.param({objects.COMPANY[0]: "a"}, {objects.COMPANY[0]: "a"}, False, id="same-affinity"),
        pytest.param({objects.CARD_NAME: "x"}, {objects.CARD_NAME: "x"}, False, id="name"),
        pytest.param({objects.CARD_NAME: "x"}, {objects.CARD_NAME: "y"}, True, id="new-name"),
    ],
)
def test_a_pod_with_labels_must_not_wait_for_a_card_that_is_open_to_it(
    bound: dict[str, str], waiting: dict[str, str], waits: bool
) -> None:
    cluster = Cluster()
    for name, card in (("s0", "card0"), ("s1", "card1")):
        labels = {label: text if label != objects.CARD_NAME or name == "s0" else "z" for label, text in bound.items()}
        cluster.add_share(name, 500, labels)
        cluster.bind(name, card)
    cluster.add_share("s2", 500, waiting)
    expect("" if waits else "progress: pod s2 waits, but fits node n0", cluster.laws.check_bound)


AFFINITY, ANTI_AFFINITY, EXCLUSION = objects.COMPANY


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        pytest.param({}, {}, "", id="no-labels"),
        pytest.param({}, {EXCLUSION: "a"}, "company: pod p1 shares card0 with p0: exclusion", id="exclusion"),
        pytest.param({EXCLUSION: "a"}, {EXCLUSION: "a"}, "", id="same-exclusion"),
        pytest.param({ANTI_AFFINITY: "a"}, {ANTI_AFFINITY: "a"}, "company: pod p1 shares card0", id="anti-affinity"),
        pytest.param({}, {AFFINITY: "a"}, "company: pod p1 shares card0 with p0: affinity", id="affinity"),
        pytest.param({AFFINITY: "a"}, {AFFINITY: "a"}, "", id="same-affinity"),
        pytest.param({objects.CARD_NAME: "x"}, {objects.CARD_NAME: "y"}, "names: pod p1 has a card named y", id="name"),
    ],
)
def test_company_and_names(first: dict[str, str], second: dict[str, str], found: str) -> None:
    cluster = Cluster()
    for name, labels in (("p0", first), ("p1", second)):
        cluster.add_share(name, 100, labels)
    cluster.bind("p0", "card0")
    expect(found, cluster.bind, "p1", "card0")


@pytest.mark.parametrize(
    ("first", "second", "holds"),
    [
        pytest.param({}, {AFFINITY: "a"}, True, id="the-card-was-idle"),
        pytest.param({AFFINITY: "a"}, {}, False, id="it-was-not"),
    ],
)
def test_affinity_is_judged_in_the_order_of_decisions(
    first: dict[str, str], second: dict[str, str], holds: bool
) -> None:
    cluster = Cluster()
    for name, labels in (("p0", first), ("p1", second)):
        cluster.add_share(name, 100, labels)
    cluster.bind("p0", "card0", decided=200)
    found = "" if holds else "company: pod p0 shares card0 with p1: affinity"
    expect(found, cluster.bind, "p1", "card0", decided=100)


@pytest.mark.parametrize(("reserved", "holds"), [("a", True), ("b", False)])
def test_a_pod_may_follow_one_whose_cards_stay_reserved(reserved: str, holds: bool) -> None:
    cluster = Cluster()
    for name, labels in (("p0", {AFFINITY: reserved}), ("p1", {}), ("p2", {AFFINITY: "a"})):
        cluster.add_share(name, 100, labels)
    cluster.bind("p0", "", by="user")
    cluster.bind("p1", "card0")
    expect("" if holds else "company: pod p2 shares card0 with p1: affinity", cluster.bind, "p2", "card0")


def test_the_same_name_is_the_same_card() -> None:
    cluster = Cluster()
    for name in ("p0", "p1"):
        cluster.add_share(name, 100, {objects.CARD_NAME: "x"})
    cluster.bind("p0", "card0")
    assert broken(cluster.bind, "p1", "card1").startswith("names: pod p1 has a card named x")


def test_parts_of_cards_count() -> None:
    cluster = Cluster()
    cluster.add_share("p0", 600, {})
    cluster.add("p1", HALF)
    cluster.bind("p0", "card0")
    assert broken(cluster.bind, "p1", "card0").startswith("capacity: card0 of node n0: 1100 of millicores given")


@pytest.mark.parametrize(
    ("written", "holds"),
    [
        pytest.param({}, True, id="as-decided"),
        pytest.param({objects.RECEIPT: "card1"}, False, id="a-wrong-receipt"),
    ],
)
def test_a_pod_says_which_cards_its_containers_have(written: dict[str, str], holds: bool) -> None:
    cluster = Cluster()
    uid = cluster.add_bound("p0", "card0", HALF)
    patch = msgspec.json.encode({"metadata": {"annotations": written}, "status": {"phase": "Running"}})
    cluster.api.patch(PODS, "default", "p0", ("application/merge-patch+json", patch))
    cluster.api.patch(PODS, "default", "p0", ("application/merge-patch+json", patch), "status")
    cluster.laws.check_writes("")
    given = {uid: {"main0": {"card0"}}}
    expect("" if holds else "devices: the containers of p0 have", cluster.laws.check_devices, given, {uid: {}})


@pytest.mark.parametrize(
    ("variable", "init", "found"),
    [
        pytest.param("1,2", "card1", "", id="as-decided"),
        pytest.param("1,0", "card1", "tiles: main0 of p0 was given '1,0', expected '1,2'", id="other-tiles"),
        pytest.param("", "card1", "tiles: main0 of p0 was given ''", id="all-tiles"),
        pytest.param("1,2", "card0", "devices: the initContainers of p0 have", id="another-card-before"),
    ],
)
def test_if_nothing_fails_on_nodes_tiles_and_init_containers_are_as_stated(
    variable: str, init: str, found: str
) -> None:
    cluster = Cluster()
    cluster.laws.calm_devices = True
    pod = objects.pod("p0", [{"i915": 2, "tiles": 2}], [{"i915": 1}], {})
    uid = str(cluster.api.create(PODS, "default", pod).value["metadata"]["uid"])
    cluster.laws.check_writes("")
    cluster.bind("p0", "card0,card1", more={objects.TILES: "card0:gt1,card1:gt0", objects.INIT_CARDS: "card1"})
    running = msgspec.json.encode({"status": {"phase": "Running"}})
    cluster.api.patch(PODS, "default", "p0", ("application/merge-patch+json", running), "status")
    cluster.laws.check_writes("")
    given = {uid: {"main0": {"card0", "card1"}, "init0": {init}}}
    expect(found, cluster.laws.check_devices, given, {uid: {"main0": variable}})


@pytest.mark.parametrize(
    ("given", "found"),
    [
        pytest.param(None, "", id="the-pod-has-ended"),
        pytest.param({"main0": {"card1"}}, "", id="these-cards"),
        pytest.param({"main0": {"card0"}}, "devices: the containers of p0 have", id="other-cards"),
        pytest.param({}, "devices: the containers of p0 have", id="another-pod"),
    ],
)
def test_a_receipt_says_what_kubelet_has_given(given: dict[str, set[str]] | None, found: str) -> None:
    cluster = Cluster(given=given)
    cluster.add_bound("p0", "card0", HALF)
    expect(found, cluster.annotate, "p0", {objects.RECEIPT: "card1"})


def test_a_receipt_is_for_a_bound_pod() -> None:
    cluster = Cluster()
    cluster.add("p0", HALF)
    assert broken(cluster.annotate, "p0", {objects.RECEIPT: "card1"}) == "devices: pod p0 waits, and has a receipt"


@pytest.mark.parametrize(
    ("amounts", "found"),
    [
        pytest.param({"vgpu": 1, "millicores": 250, "memory.max": 0}, "", id="complete"),
        pytest.param({"vgpu": 1, "millicores": 249, "memory.max": 0}, "new pods: pod p0 states", id="less"),
        pytest.param({}, "new pods: pod p0 states", id="nothing"),
    ],
)
def test_webhooks_state_what_a_share_is(amounts: dict[str, int], found: str) -> None:
    laws = Cluster().laws
    sent = objects.share("p0", 249.6, 0, {}, {}, complete=False)
    made = sent | {"spec": objects.pod("p0", [amounts], [], {}, prefix=objects.SHARE)["spec"]}
    expect(found, laws.check_new_pod, sent, made, "")


def test_webhooks_leave_complete_pods_alone() -> None:
    laws = Cluster().laws
    sent, other = (objects.pod("p0", [asks], [], {}) for asks in (HALF, {}))
    laws.check_new_pod(sent, sent, "")
    laws.check_new_pod(sent, sent | {"metadata": {"name": "p0", "annotations": {"gas-checked": "true"}}}, "")
    assert broken(laws.check_new_pod, sent, other, "").startswith("new pods: pod p0 is changed")
    assert broken(laws.check_new_pod, sent, sent, "no") == "new pods: pod p0 is refused: no"


def test_containers_get_the_decided_cards_if_nothing_fails() -> None:
    cluster = Cluster()
    cluster.laws.calm_devices = True
    cluster.add_bound("p0", "card0", HALF)
    assert broken(cluster.annotate, "p0", {objects.RECEIPT: "card1"}).startswith("devices: p0 got 'card1' instead of")


def test_books_follow_receipts() -> None:
    cluster = Cluster()
    uid = cluster.add_bound("p0", "card0", HALF)
    cluster.annotate("p0", {objects.RECEIPT: "card1"})
    cluster.laws.check_books("a", {uid: ("n0", {"card1": HALF})})
    assert "a booked" in broken(cluster.laws.check_books, "a", {uid: ("n0", {"card0": HALF})})


def test_a_container_with_too_few_cards_may_keep_decided_ones() -> None:
    cluster = Cluster()
    uid = cluster.add_bound("p0", "card0,card1", {"i915": 2})
    cluster.annotate("p0", {objects.RECEIPT: "card1"})
    cluster.laws.check_books("a", {uid: ("n0", {"card0": {"i915": 1}, "card1": {"i915": 1}})})


def test_an_init_container_with_too_few_cards_may_count_once() -> None:
    cluster = Cluster()
    created = cluster.api.create(PODS, "default", objects.pod("p0", [HALF], [{"i915": 2}], {}))
    uid = str(created.value["metadata"]["uid"])
    cluster.laws.check_writes("")
    cluster.bind("p0", "", by="user")
    receipts = {objects.RECEIPT: "card0", objects.INIT_RECEIPT: "card0"}
    cluster.annotate("p0", receipts)
    cluster.laws.check_books("a", {uid: ("n0", {"card0": HALF})})


@pytest.mark.parametrize(
    ("decided", "booked", "holds"),
    [
        pytest.param("card0", "card0", True, id="decision"),
        pytest.param("card0", "card7", True, id="receipt"),
        pytest.param("card0", "card1", False, id="neither"),
        pytest.param("card0", None, False, id="nothing"),
        pytest.param("", None, True, id="no-decision"),
    ],
)
def test_a_receipt_about_a_missing_card_may_be_ignored(decided: str, booked: str | None, holds: bool) -> None:
    cluster = Cluster()
    uid = cluster.add("p0", HALF)
    cluster.bind("p0", decided, by="extender-a" if decided else "user")
    cluster.annotate("p0", {objects.RECEIPT: "card7"})
    books = {uid: ("n0", {booked: HALF})} if booked else {}
    expect("" if holds else "books:", cluster.laws.check_books, "a", books)


def test_a_part_of_a_card_is_not_known_while_the_node_lacks_the_card() -> None:
    cluster = Cluster()
    uid = cluster.add_bound("p0", "card1", HALF)
    without_part = {uid: ("n0", {"card1": {"i915": 1}})}
    assert "a booked" in broken(cluster.laws.check_books, "a", without_part)

    labels = {"metadata": {"labels": {objects.PREFIX + "gpu-numbers": "0"}}}
    cluster.api.patch(NODES, None, "n0", ("application/merge-patch+json", msgspec.json.encode(labels)))
    cluster.laws.check_writes("")
    cluster.laws.check_books("a", without_part)
    more = {uid: ("n0", {"card1": HALF | {"memory.max": 1}})}
    assert "a booked" in broken(cluster.laws.check_books, "a", more)


@pytest.mark.parametrize(
    ("booked", "found"),
    [
        pytest.param(None, "a has no booking of pod p0 on n0", id="missing"),
        pytest.param(("n0", {"card1": HALF}), "a booked", id="another-card"),
        pytest.param(("n1", {"card0": HALF}), "a booked", id="another-node"),
    ],
)
def test_books_are_what_the_objects_say(booked: tuple[str, dict[str, dict[str, int]]] | None, found: str) -> None:
    cluster = Cluster()
    uid = cluster.add_bound("p0", "card0", HALF)
    cluster.laws.check_books("a", {uid: ("n0", {"card0": HALF})})
    assert found in broken(cluster.laws.check_books, "a", {} if booked is None else {uid: booked})


@pytest.mark.parametrize(
    ("cards", "patch", "found"),
    [
        pytest.param((0, 1), {}, "", id="as-it-is"),
        pytest.param((0,), {}, "nodes: n0 says that it has", id="fewer"),
        pytest.param((0, 1, 2), {}, "nodes: n0 says that it has", id="more"),
        pytest.param((0, 1), {"metadata": {"annotations": None}}, "nodes: n0 says that it has", id="no-annotation"),
        pytest.param(
            (0, 1),
            {"status": {"allocatable": {"gpu.intel.com/millicores": "1000"}}},
            "nodes: n0 says that it has",
            id="less-of-each",
        ),
    ],
)
def test_a_node_says_what_its_cards_have(cards: tuple[int, ...], patch: dict[str, Any], found: str) -> None:
    cluster = Cluster()
    cluster.api.patch(NODES, None, "n0", ("application/merge-patch+json", msgspec.json.encode(patch)), "status")
    cluster.laws.check_writes("")
    expect(found, cluster.laws.check_node, "n0", cards)


def test_nothing_is_booked_for_pods_that_are_gone() -> None:
    found = broken(Cluster().laws.check_books, "a", {"u": ("n0", {"card0": HALF})})
    assert found == "books: a has a booking on n0 for u, which holds no cards"


def test_a_pod_is_given_cards_three_times_for_bindings_that_others_refuse() -> None:
    def refused(decision: str) -> dict[str, Any]:
        return {"metadata": {"name": "p0", "uid": "u", "annotations": {objects.TIMESTAMP: decision}}}

    laws = Cluster().laws
    for decision in "1223":  # a repeated review has the decision of the one before
        laws.check_refused(refused(decision))
    assert broken(laws.check_refused, refused("4")) == "reviews: pod p0 was given cards 4 times"


def nominating(*names: str, priority: int = 1, known: bool = True, age: float = 2.0) -> tuple[Cluster, list[str]]:
    """Return a cluster in which pods that want a whole card were nominated for n0 ``age`` seconds ago."""
    cluster = Cluster()
    cluster.laws.check_writes("")
    cluster.laws.promises.known, cluster.now, uids = known, 10.0, []
    for name in names:
        pod = objects.pod(name, [WHOLE], [], {})
        pod["spec"]["priority"] = priority
        uids.append(cluster.api.create(PODS, "default", pod).value["metadata"]["uid"])
        status = msgspec.json.encode({"status": {"nominatedNodeName": "n0"}})
        cluster.api.patch(PODS, "default", name, ("application/merge-patch+json", status), "status")
    cluster.laws.check_writes("")
    cluster.now += age
    return cluster, uids


TAKEN = "promises: pod q has cards of n0 that are promised to "


@pytest.mark.parametrize(
    ("names", "fields", "found"),
    [
        pytest.param(["p"], {}, "", id="one-card-is-left"),
        pytest.param(["p", "o"], {}, TAKEN + "o, p", id="no-card-is-left"),
        pytest.param(["p", "o"], {"priority": 0}, TAKEN + "o, p", id="of-the-same-priority"),
        pytest.param(["p", "o"], {"priority": -1}, "", id="of-lower-priority"),
        pytest.param(["p", "o"], {"known": False}, "", id="the-extender-may-not-know"),
        pytest.param(["p", "o"], {"age": 0.5}, "", id="it-may-not-know-yet"),
        pytest.param(["p", "o", "n"], {}, TAKEN + "n, o, p", id="one-has-no-room-anyway"),
    ],
)
def test_promised_cards_are_given_to_more_important_pods_alone(
    names: list[str], fields: dict[str, Any], found: str
) -> None:
    cluster, _ = nominating(*names, **fields)
    cluster.add("q", HALF)
    expect(found, cluster.bind, "q", "card0")


@pytest.mark.parametrize(
    ("other", "found"),
    [
        pytest.param("", "promises: pod p has its volumes on n0, and is refused its cards there: full", id="refused"),
        pytest.param("important", "", id="a-more-important-pod-is-there"),
        pytest.param("node", "", id="the-node-has-changed"),
    ],
)
def test_a_pod_is_not_refused_the_cards_that_were_promised_until_its_volumes_were_made(other: str, found: str) -> None:
    cluster, (uid,) = nominating("p", priority=0)
    cluster.laws.promises.ties(uid, "n0")
    if other == "important":
        pod = objects.pod("q", [HALF], [], {})
        pod["spec"]["priority"] = 1
        cluster.api.create(PODS, "default", pod)
        cluster.bind("q", "card0")
    elif other == "node":
        cluster.api.delete(NODES, None, "n0", {})
        cluster.laws.check_writes("")
    expect(found, cluster.laws.promises.check_refused, uid, "full")


def test_a_nomination_ends_with_its_pod() -> None:
    cluster, (uid,) = nominating("p")
    cluster.laws.promises.check_books("a", {"n0": {uid}})
    assert broken(cluster.laws.promises.check_books, "a", {}).startswith("promises: a knows the nominated pods {}")
    cluster.api.delete(PODS, "default", "p", {"gracePeriodSeconds": 0})
    cluster.laws.check_writes("")
    cluster.laws.promises.check_books("a", {})


def test_a_nomination_that_is_withdrawn_may_stand_for_a_minute() -> None:
    cluster, (uid,) = nominating("p")
    withdrawn = msgspec.json.encode({"status": {"nominatedNodeName": None}})
    cluster.api.patch(PODS, "default", "p", ("application/merge-patch+json", withdrawn), "status")
    cluster.laws.check_writes("")
    for known in ({}, {"n0": {uid}}):
        cluster.laws.promises.check_books("a", known)
    cluster.now += 61.0
    expect("promises: a knows the nominated pods", cluster.laws.promises.check_books, "a", {"n0": {uid}})


def test_a_pod_with_volumes_on_a_node_waits_for_that_node_alone() -> None:
    cluster = Cluster()
    cluster.add("p", HALF)
    assert broken(cluster.laws.check_bound).startswith("progress: pod p waits")
    cluster.laws.tied = lambda _uid: "n1"
    cluster.laws.check_bound()


def group_of_two() -> tuple[Cluster, list[Any]]:
    """Return a cluster with the pods p0 and p1 of a group that needs both."""
    cluster, pods = Cluster(), []
    cluster.laws.pod_groups.known = True
    cluster.api.create(POD_GROUPS, "default", {"metadata": {"name": "g"}, **objects.pod_group(2)})
    for name in ("p0", "p1"):
        sent = objects.pod(name, [HALF], [], {})
        sent["spec"]["schedulingGroup"] = {"podGroupName": "g"}
        pods.append(cluster.api.create(PODS, "default", sent).value)
    cluster.laws.check_writes("")
    cluster.now = 10.0
    return cluster, pods


@pytest.mark.parametrize(
    ("then", "age", "found"),
    [
        pytest.param("", 6.0, "pod groups: group g is torn: 1 of at least 2 pods were bound", id="torn"),
        pytest.param("", 4.0, "", id="the-other-bind-is-late"),
        pytest.param("bind", 6.0, "", id="whole"),
        pytest.param("delete", 6.0, "", id="the-other-one-is-gone"),
    ],
)
def test_a_group_is_whole_soon_after_its_first_bind(then: str, age: float, found: str) -> None:
    cluster, _ = group_of_two()
    cluster.bind("p0", "card0")
    if then == "bind":
        cluster.bind("p1", "card1")
    elif then == "delete":
        cluster.api.delete(PODS, "default", "p1", {"gracePeriodSeconds": 0})
        cluster.laws.check_writes("")
    cluster.now += age
    expect(found, cluster.laws.pod_groups.check_whole)


@pytest.mark.parametrize(
    ("then", "age", "found"),
    [
        pytest.param("", 11.0, "", id="waits"),
        pytest.param("", 13.0, "pod groups: cards are promised to {} for more than 12.0 s", id="too-long"),
        pytest.param("delete", 0.5, "", id="just-gone"),
        pytest.param("delete", 2.0, "pod groups: cards are promised to {}, which is gone", id="gone"),
        pytest.param("bind", 0.5, "", id="just-bound"),
        pytest.param("bind", 2.0, "pod groups: cards are promised to {}, which is bound", id="bound"),
        pytest.param("refuse", 0.0, "pod groups: cards are promised to {}, whose group g was refused", id="refused"),
    ],
)
def test_a_promise_ends_with_its_pod_its_time_or_its_group(then: str, age: float, found: str) -> None:
    cluster, pods = group_of_two()
    laws, uid = cluster.laws.pod_groups, pods[0]["metadata"]["uid"]
    laws.asked(pods[0])
    laws.answered(pods[0], ["n0"], {"NodeNames": ["n0"]})
    if then == "delete":
        cluster.api.delete(PODS, "default", "p0", {"gracePeriodSeconds": 0})
        cluster.laws.check_writes("")
    elif then == "bind":
        cluster.bind("p0", "card0")
    elif then == "refuse":
        laws.answered(pods[1], ["n0"], {"FailedNodes": {"n0": "only 1 of the 2 pods that its PodGroup needs have …"}})
    cluster.now += age
    expect(found.format(uid), laws.check_promises, [uid])


@pytest.mark.parametrize("passing", [["n0", "n1"], ["n2"]])
def test_a_member_of_a_group_passes_on_one_node_that_it_is_offered_and_is_bound_there(passing: list[str]) -> None:
    cluster, (pod, _) = group_of_two()
    laws = cluster.laws.pod_groups
    laws.answered(pod, ["n0", "n1"], {"NodeNames": ["n1"]})
    assert broken(laws.answered, pod, ["n0", "n1"], {"NodeNames": passing}).startswith("pod groups: pod p0 passes on")
    assert broken(laws.check_refused, pod, "full") == "pod groups: pod p0 is refused what it was promised: full"
    cluster.now = 0.5
    laws.asked(pod)  # the extender may not know the group yet
    laws.answered(pod, ["n0", "n1"], {"NodeNames": passing})
    laws.check_refused(pod, "full")


def test_a_group_waits_only_if_it_has_no_room_as_a_whole() -> None:
    cluster, _ = group_of_two()
    assert broken(cluster.laws.check_bound) == "progress: 2 waiting pods of group g have room at the same time"
    for card in ("card0", "card1"):
        cluster.add_bound(f"on-{card}", card, HALF)
    cluster.add_bound("other", "card0", HALF)
    cluster.laws.check_bound()
