"""The pods of every file of ``examples/`` are placed as the comment at its top says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.e2e.audit import audit, cards_of_node, sums
from tests.e2e.cluster import Cluster
from tests.e2e.example_files import EXAMPLES, add_example_nodes, create_example
from tests.e2e.extender import Extender
from tests.e2e.pods import PODS, cards_by_pod, cards_of, delete_now, event_messages, get_pod, is_refused
from tests.e2e.waiting import wait_for
from tests.e2e.written_cards import WrittenContainer, held_amounts, written_containers

LISTS = ("--enableAllowlist", "--enableDenylist")


def containers_of(cluster: Cluster, pod: str) -> dict[str, WrittenContainer]:
    return {container.name: container for container in written_containers(get_pod(cluster.api, pod))}


def multi_card(cluster: Cluster) -> None:
    main = containers_of(cluster, "multi-card")["main"]
    assert len(set(main.cards)) == 2
    assert main.per_card == {"i915": 1, "memory.max": 10**9, "millicores": 250}
    several = containers_of(cluster, "multi-container")
    assert {name: len(c.cards) for name, c in several.items()} == {"first": 1, "without-gpu": 0, "second": 1}


def tiles(cluster: Cluster) -> None:
    one = containers_of(cluster, "tiles-of-one-card")["main"].tiles
    assert [sorted(tiles) for tiles in one.values()] == [["gt0", "gt1"]]
    two = containers_of(cluster, "tiles-of-two-cards")["main"].tiles
    assert [len(tiles) for tiles in two.values()] == [1, 1]


def same_gpu(cluster: Cluster) -> None:
    containers = containers_of(cluster, "same-gpu")
    assert containers["decode"].cards == containers["infer"].cards
    assert len(containers["elsewhere"].cards) == 1


def allow_and_deny(cluster: Cluster) -> None:
    assert cards_of(get_pod(cluster.api, "allowed")) in ("card1", "card3")
    assert cards_of(get_pod(cluster.api, "denied")) in ("card1", "card2", "card3")


def linked(cluster: Cluster) -> None:
    assert get_pod(cluster.api, "linked")["spec"]["nodeName"] == "eight-cards"
    assert len(containers_of(cluster, "linked")["main"].cards) == 2


def single_numa(cluster: Cluster) -> None:
    assert len(containers_of(cluster, "single-numa")["main"].cards) == 2


def company(cluster: Cluster) -> None:
    cards = cards_by_pod(cluster.api)
    assert cards["together-1"] == cards["together-2"]
    assert cards["apart-1"] != cards["apart-2"]
    on_node = {name for name in cards if get_pod(cluster.api, name)["spec"]["nodeName"] == "eight-cards"}
    assert "exclusive" in on_node
    taken = {card for name in on_node - {"exclusive"} for card in (cards[name] or "").replace("|", ",").split(",")}
    assert cards["exclusive"] not in taken


def named_card(cluster: Cluster) -> None:
    one, other = (get_pod(cluster.api, name) for name in ("named-1", "named-2"))
    assert one["spec"]["nodeName"] != other["spec"]["nodeName"] or cards_of(one) == cards_of(other)


def near(cluster: Cluster) -> None:
    assert len(containers_of(cluster, "near")["main"].cards) == 2


def card_order(cluster: Cluster) -> None:
    assert [len(c.cards) for c in containers_of(cluster, "spread").values()] == [1, 1]
    assert len(containers_of(cluster, "packed")["main"].cards) == 1


def init_and_sidecar(cluster: Cluster) -> None:
    containers = containers_of(cluster, "init-and-sidecar")
    (prepare,), (encode,), (main,) = (containers[name].cards for name in ("prepare", "encode", "main"))
    held = {card: amounts["millicores"] for card, amounts in held_amounts(list(containers.values())).items()}
    # "prepare" is over before the others start, so its 500 are not booked on top of theirs.
    assert held == {
        card: max(500 * (card == prepare), 200 * (card == encode) + 700 * (card == main))
        for card in (prepare, encode, main)
    }


RULES: dict[str, Callable[[Cluster], None]] = {
    "company": company,
    "multi-card": multi_card,
    "tiles": tiles,
    "same-gpu": same_gpu,
    "allow-and-deny": allow_and_deny,
    "linked": linked,
    "single-numa": single_numa,
    "named-card": named_card,
    "near": near,
    "card-order": card_order,
    "init-and-sidecar": init_and_sidecar,
}
APART = {"worked-example", "balanced"}


def test_no_file_of_the_examples_is_left_out() -> None:
    assert {file.stem for file in EXAMPLES.glob("*.yaml")} == RULES.keys() | APART


@pytest.mark.parametrize("name", RULES)
def test_every_pod_of_the_file_is_placed_as_its_comment_says(cluster: Cluster, name: str) -> None:
    start(cluster, *LISTS)
    pods = create_example(cluster, name)
    wait_for("all pods are bound", lambda: cards_by_pod(cluster.api).keys() == pods)
    assert audit(cluster.api) == []
    RULES[name](cluster)


def test_all_files_together_fill_the_nodes_and_what_finds_no_room_waits_for_some(cluster: Cluster) -> None:
    """kube-scheduler chooses among the nodes that pass at random, so the last pods may find no room."""
    extender = start(cluster, *LISTS)
    pods = {pod for name in RULES for pod in create_example(cluster, name)}
    wait_for("every pod is bound or refused", lambda: all(is_settled(cluster, pod) for pod in pods))
    assert audit(cluster.api) == []
    add_spacious_node(cluster)
    wait_for("all pods are bound", lambda: cards_by_pod(cluster.api).keys() == pods)
    assert audit(cluster.api) == []
    for rule in RULES.values():
        rule(cluster)
    assert extender.booked() == sums(cluster.api)
    assert extender.books()["differences"] == []


def test_of_the_worked_example_two_run_on_the_node_of_that_name_and_the_third_waits_for_them(cluster: Cluster) -> None:
    start(cluster, *LISTS)
    pods = create_example(cluster, "worked-example")
    wait_for("two pods are bound", lambda: len(cards_by_pod(cluster.api)) == 2)
    assert sorted(str(card) for card in cards_by_pod(cluster.api).values()) == ["card0", "card1"]
    bound = cards_by_pod(cluster.api).keys()
    assert {get_pod(cluster.api, pod)["spec"]["nodeName"] for pod in bound} == {"worked-example"}
    (third,) = pods - bound
    (said, *_) = wait_for("its event", lambda: event_messages(cluster.api, third, "FailedScheduling"))
    assert "no card has 5.0 GB of memory.max free" in said
    delete_now(cluster.api, next(iter(bound)))
    wait_for("the third is bound", lambda: third in cards_by_pod(cluster.api))
    assert audit(cluster.api) == []


def test_the_balanced_pods_spread_over_the_cards_of_their_node(cluster: Cluster) -> None:
    start(cluster, *LISTS, "--balancedResource=millicores")
    for node, used in cards_used_by_balanced_pods(cluster).items():
        cards = cards_of_node(cluster.api.get(f"/api/v1/nodes/{node}"))
        numbers = [used[card] for card in cards]
        assert max(numbers) - min(numbers) <= 1


def test_without_the_flag_the_balanced_pods_of_a_node_share_its_first_card(cluster: Cluster) -> None:
    start(cluster, *LISTS)
    for used in cards_used_by_balanced_pods(cluster).values():
        assert used.keys() == {"card0"}


def cards_used_by_balanced_pods(cluster: Cluster) -> dict[str, Counter[str]]:
    """Return how many of the pods each card has, by node."""
    pods = create_example(cluster, "balanced")
    wait_for("all pods are bound", lambda: cards_by_pod(cluster.api).keys() == pods)
    assert audit(cluster.api) == []
    used: dict[str, Counter[str]] = {}
    for pod in cluster.api.items(PODS):
        used.setdefault(pod["spec"]["nodeName"], Counter())[str(cards_of(pod))] += 1
    return used


def is_settled(cluster: Cluster, pod: str) -> bool:
    return pod in cards_by_pod(cluster.api) or is_refused(cluster.api, pod)


def add_spacious_node(cluster: Cluster) -> None:
    """Add a node of four cards, two on each NUMA node, each with room for all pods of all files at once."""
    labels = {"gpu.intel.com/gpu-numbers": "0.1.2.3", "gpu.intel.com/numa-gpu-map": "0-0.1_1-2.3"}
    resources = {"gpu.intel.com/i915": "400", "gpu.intel.com/millicores": "40000", "gpu.intel.com/memory.max": "400G"}
    cluster.add_node("spacious", labels=labels, resources=resources)


def start(cluster: Cluster, *flags: str) -> Extender:
    add_example_nodes(cluster)
    extender = cluster.extender("gas", *flags)
    extender.start_and_wait_until_ready()
    return extender
