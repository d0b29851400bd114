"""A thousand pods of mixed shapes come and go while the extender is killed repeatedly."""

from __future__ import annotations

import os
import time
from concurrent.futures import Future, ThreadPoolExecutor
from random import Random

from tests.e2e.audit import audit, live_holders, sums
from tests.e2e.cluster import Cluster
from tests.e2e.comings_and_goings import ComingsAndGoings
from tests.e2e.extender import Extender
from tests.e2e.kube_api import KubeApi
from tests.e2e.mixed_pods import add_mixed_nodes, lasting_pod
from tests.e2e.pod_runner import PodRunner
from tests.e2e.pods import PODS, cards_of, unbound
from tests.e2e.waiting import wait_for
from tests.e2e.written_cards import wants_cards

MIXED, LASTING = 950, 50
SECONDS = 120
LEAST_KILLS = 10


def test_no_card_is_ever_given_twice_and_no_pod_is_lost_when_the_extender_is_killed(cluster: Cluster) -> None:
    seed = int(os.environ.get("GAS_E2E_SEED") or time.time_ns() % 10**6)
    print(f"\nseed {seed}; the same again with GAS_E2E_SEED={seed}")
    rng = Random(seed)
    api = cluster.api
    # With an ignorable extender kube-scheduler binds on its own, without cards, while we are dead.
    cluster.restart_scheduler(ignorable=False)
    add_mixed_nodes(cluster)
    extender = cluster.extender("gas")
    extender.start_and_wait_until_ready()
    life = ComingsAndGoings(api, Random(seed + 1), pods=MIXED, seconds=SECONDS)
    with PodRunner(api), ThreadPoolExecutor(1) as background:
        coming = background.submit(life.run)
        kills = kill_again_and_again(extender, api, coming, rng)
        wait_until_all_were_bound(api, life)
        for number in range(LASTING):
            api.create(PODS, lasting_pod(f"lasting-{number}", rng))
        extender.program.kill()
        start_and_check_books(extender, api)
        wait_for("the lasting pods are bound", lambda: len(unbound(api)) == 0, seconds=60)
        wait_for("the other pods are over", lambda: len(live_holders(api)) == LASTING, seconds=60)
        assert audit(api) == []
        assert bound_without_cards(api) == []
        wait_for("the books show the last change", lambda: extender.booked() == sums(api))
        assert extender.books()["differences"] == []
        assert extender.books()["trouble"] == {}
    print(f"{kills} kills, {len(life.deleted)} pods deleted, {len(life.created) + LASTING} created")


def kill_again_and_again(extender: Extender, api: KubeApi, coming: Future[None], rng: Random) -> int:
    """Kill the extender until all pods were created, with an audit before and after each kill. Return how often."""
    kills = 0
    while not coming.done() or kills < LEAST_KILLS:
        time.sleep(rng.uniform(0, 15))
        assert audit(api) == []
        extender.program.kill()
        kills += 1
        time.sleep(rng.choice((0, 0, 1)))
        assert audit(api) == []
        start_and_check_books(extender, api)
    coming.result()
    return kills


def start_and_check_books(extender: Extender, api: KubeApi) -> None:
    """Start the extender and check that its first ledger has every pod that held cards before and still does."""
    before = uids_with_cards(api)
    extender.start_and_wait_until_ready()
    books = extender.books()["pods"].keys()
    assert before & uids_with_cards(api) <= books


def uids_with_cards(api: KubeApi) -> set[str]:
    return {pod["metadata"]["uid"] for pod in live_holders(api)}


def wait_until_all_were_bound(api: KubeApi, life: ComingsAndGoings) -> None:
    """Wait until every pod that was not deleted is bound, which happens because the pods before it end."""
    wait_for("every pod was bound", lambda: not unbound(api), seconds=120, every=1)
    there = {pod["metadata"]["name"] for pod in api.items(PODS)}
    assert life.created - life.deleted <= there


def bound_without_cards(api: KubeApi) -> list[str]:
    """Return the pods that request cards and have none written on them, including those that have ended."""
    pods = [pod for pod in api.items(PODS) if pod["spec"].get("nodeName") and wants_cards(pod)]
    return [pod["metadata"]["name"] for pod in pods if not cards_of(pod)]
