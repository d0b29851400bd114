"""Pods of a PodGroup get their cards together or not at all, as kube-scheduler asks for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gas.extender.hooks import FilterDecision, Hooks
from gas.extender.pod_groups.pod_groups import PROMISE, MinimumCounts, PodGroups
from gas.extender.verdicts import Turns
from gas.objects.stored import PodGroup
from tests.builders import container, node, pod_json
from tests.extender.decider import DrivenDecider, booked_cards
from tests.listed import list_all


class Grouping(DrivenDecider):
    """A decider with groups, and kube-scheduler's cycle for one of them. Nodes n1, n2 … have one card each."""

    def __init__(self, *cards: int, patience: float = 0.0) -> None:
        self.now = 1000.0
        super().__init__(clock=lambda: self.now, patience=patience)
        self.verdicts._clock = lambda: 0.0
        self.clock = lambda: self.now
        self.promises._clock = lambda: self.now
        self.groups = PodGroups(self, unexpect=self.pending_binds.came, now=lambda: self.now)
        self.add(self.groups.hooks)
        self.names = [f"n{at}" for at in range(1, len(cards) + 1)]
        shapes = zip(self.names, cards, strict=True)
        self.follow([node(n, cards=c, i915=10 * c, millicores=1000 * c) for n, c in shapes])

    def group(self, minimum: int | None, name: str = "gang", namespace: str = "default") -> None:
        policy = {"basic": {}} if minimum is None else {"gang": {"minCount": minimum}}
        metadata = {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}"}
        sent = {"metadata": metadata, "spec": {"schedulingPolicy": policy}}
        self.groups.minimums.changed(msgspec.convert(sent, PodGroup))

    async def cycle(self, *pods: dict[str, Any], minimum: int, offered: list[str] | None = None) -> list[str]:
        """Do what kube-scheduler does for a group: ask for all pods, then bind them if enough have a node."""
        chosen = [(each, (await self.ask(each, *(offered or self.names)))["NodeNames"]) for each in pods]
        self.now += 1.0
        if sum(bool(nodes) for _, nodes in chosen) < minimum:
            return []
        errors = [await self.bind(each, nodes[0]) for each, nodes in chosen if nodes]
        assert not any(errors), errors
        return sorted(nodes[0] for _, nodes in chosen if nodes)


def member(name: str, millicores: int = 600, group: str = "gang", **fields: Any) -> dict[str, Any]:
    sent = pod_json(container(i915=1, millicores=millicores), name=name, uid=name, **fields)
    sent["spec"]["schedulingGroup"] = {"podGroupName": group}
    return sent


def grouping(*pods: dict[str, Any], cards: tuple[int, ...] = (1, 1, 1), minimum: int | None = 3) -> Grouping:
    decider = Grouping(*cards)
    decider.group(minimum)
    for each in pods:
        decider.cluster.add(each)
    return decider


THREE = [member(name) for name in "abc"]


async def test_each_member_is_answered_with_its_own_node() -> None:
    decider = grouping(*THREE)
    assert await decider.cycle(*THREE, minimum=3) == ["n1", "n2", "n3"]


@pytest.mark.parametrize("minimum", [3, 2, 1])
@pytest.mark.parametrize("largest", [600, 2000])
async def test_members_fit_in_part_only_if_the_group_allows_it(minimum: int, largest: int) -> None:
    pods = [member("a", largest), *THREE[1:]]
    decider = grouping(*pods, cards=(1, 1), minimum=minimum)
    assert len(await decider.cycle(*pods, minimum=minimum)) == (2 if minimum < 3 else 0)


async def test_a_group_that_does_not_fit_says_how_many_would_and_what_the_next_one_lacks() -> None:
    decider = grouping(*THREE, cards=(1, 1))
    answer = await decider.ask(THREE[0], "n1", "n2")
    assert answer["NodeNames"] == []
    sentence = (
        "only 2 of the 3 pods that its PodGroup needs have room at the same time; for the next one: no card has 600"
        " millicores free"
    )
    assert answer["FailedNodes"] == {"n1": sentence, "n2": sentence}
    assert decider.refusals["a"].reasons == {sentence: 2}
    assert not list(decider.promises)


async def test_members_that_fit_nowhere_do_not_hide_how_many_fit() -> None:
    pods = [*THREE, member("large", 5000)]
    decider = grouping(*pods, minimum=4)
    sentence = (await decider.ask(THREE[0], *decider.names))["FailedNodes"]["n1"]
    assert sentence.startswith("only 3 of the 4 pods")
    assert sentence.endswith("for the next one: no card has 5000 millicores free")


async def test_other_pods_do_not_take_what_a_group_is_promised() -> None:
    other = pod_json(container(i915=1, millicores=600), name="other", uid="other")
    decider = grouping(*THREE, other)
    for each in THREE:
        assert (await decider.ask(each, *decider.names))["NodeNames"]
    assert (await decider.ask(other, *decider.names))["NodeNames"] == []
    assert await decider.bind(other, "n1") != ""
    decider.now += PROMISE + 1
    assert len((await decider.ask(other, *decider.names))["NodeNames"]) == 3


async def test_a_new_cycle_plans_again() -> None:
    decider = grouping(*THREE, cards=(1, 1, 1, 1))
    first = [(await decider.ask(each, *decider.names))["NodeNames"] for each in THREE[:2]]
    decider.now += 2.0
    assert await decider.cycle(*reversed(THREE), minimum=3, offered=["n2", "n3", "n4"]) == ["n2", "n3", "n4"]
    assert first == [["n1"], ["n2"]]


@pytest.mark.parametrize("seconds", [0.0, 2.0], ids=["at-once", "later"])
@pytest.mark.parametrize("again", ["a", "b"], ids=["one-that-had-its-node", "one-that-had-none"])
async def test_a_question_after_a_cycle_plans_again(seconds: float, again: str) -> None:
    decider = grouping(*THREE, cards=(1, 1, 1, 1))
    assert (await decider.ask(member("a"), *decider.names))["NodeNames"] == ["n1"]
    decider.now += seconds
    node = (await decider.ask(member(again), "n3", "n4"))["NodeNames"]
    assert node == ["n3"]


@pytest.mark.parametrize("asked", [2, 3], ids=["a-member-has-no-node", "all-have"])
async def test_a_group_that_kube_scheduler_finds_no_nodes_for_keeps_no_cards_from_others(asked: int) -> None:
    decider = grouping(*THREE)
    for each in THREE[:asked]:
        assert (await decider.ask(each, *decider.names))["NodeNames"]
    other = pod_json(container(i915=1, millicores=600), name="other", uid="other")
    assert bool((await decider.ask(other, "n1"))["NodeNames"]) == (asked < len(THREE))


async def test_nodes_that_a_member_is_not_offered_are_known_in_the_next_cycle() -> None:
    wide, narrow = member("a"), member("b")
    decider = grouping(wide, narrow, cards=(1, 1), minimum=2)
    assert (await decider.ask(wide, "n1", "n2"))["NodeNames"] == ["n1"]
    assert (await decider.ask(narrow, "n1"))["NodeNames"] == []
    decider.now += 2.0
    assert (await decider.ask(wide, "n1", "n2"))["NodeNames"] == ["n2"]
    assert (await decider.ask(narrow, "n1"))["NodeNames"] == ["n1"]


@pytest.mark.parametrize(
    ("minimum", "first", "second", "found"),
    [(3, ["n1"], ["n2"], ["n1", "n2", "n3"]), (2, ["n1", "n2", "n3"], ["n1"], ["n1", "n2"])],
)
async def test_few_nodes_of_one_member_do_not_limit_others(
    minimum: int, first: list[str], second: list[str], found: list[str]
) -> None:
    decider = grouping(*THREE, minimum=minimum)
    offers = (first, second, decider.names)
    asked = [await decider.ask(each, *offered) for each, offered in zip(THREE, offers, strict=True)]
    assert [name for each in asked for name in each["NodeNames"]] == found


async def test_a_member_that_comes_later_finds_the_others_bound() -> None:
    late = member("late")
    decider = grouping(*THREE, cards=(1, 1, 1, 1))
    await decider.cycle(*THREE, minimum=3)
    decider.cluster.add(late)
    assert await decider.cycle(late, minimum=1) == ["n4"]


async def test_a_deleted_member_gives_its_promise_up_and_a_new_one_takes_its_place() -> None:
    decider = grouping(*THREE)
    for each in THREE:
        await decider.ask(each, *decider.names)
    decider.cluster.remove("default/c")
    again = member("again")
    decider.cluster.add(again)
    assert (await decider.ask(again, *decider.names))["NodeNames"] == ["n3"]
    await decider.ask(THREE[2], *decider.names)  # kube-scheduler may see the end later
    assert "c" not in {each.nominated.uid for each in decider.promises}


async def test_of_two_groups_with_room_for_one_the_first_is_whole() -> None:
    others = [member(name, group="other") for name in "xyz"]
    decider = grouping(*THREE, *others, cards=(1, 1, 1, 1))
    decider.group(3, "other")
    for each in THREE:
        assert (await decider.ask(each, *decider.names))["NodeNames"]
    assert await decider.cycle(*others, minimum=3) == []
    assert len(await decider.cycle(*THREE, minimum=3)) == 3


async def test_members_do_not_wait_for_each_others_binds_and_others_do() -> None:
    decider = grouping(*THREE)
    decider.pending_binds._patience = 3600.0
    for each in THREE:
        await decider.ask(each, *decider.names)
    assert decider.pending_binds._left("default/gang") == 0.0
    assert decider.pending_binds._left("other") > 0.0
    await decider.ask(THREE[0], *decider.names)
    assert decider.pending_binds._until.keys() == {"a"}  # the others' binds will not come


def without_cards(name: str) -> dict[str, Any]:
    sent = pod_json(container(), name=name, uid=name)
    sent["spec"]["schedulingGroup"] = {"podGroupName": "gang"}
    return sent


async def test_a_member_that_needs_no_cards_passes_everywhere_and_counts() -> None:
    launcher = without_cards("launcher")
    decider = grouping(*THREE[:2], launcher, cards=(1, 1))
    assert len((await decider.ask(launcher, *decider.names))["NodeNames"]) == 2
    assert await decider.cycle(*THREE[:2], minimum=2) == ["n1", "n2"]


async def test_members_of_a_group_without_a_minimum_pass_everywhere() -> None:
    decider = grouping(*THREE, minimum=None)
    assert len((await decider.ask(THREE[0], *decider.names))["NodeNames"]) == 3


@pytest.mark.parametrize("seconds", [0.0, 0.1, 2.0, PROMISE - 1])
async def test_a_slow_cycle_keeps_its_plan(seconds: float) -> None:
    other = pod_json(container(i915=1, millicores=600), name="other", uid="other")
    decider = grouping(*THREE, cards=(1, 1, 1, 1, 1))
    nodes = []
    for each in reversed(THREE):
        nodes += (await decider.ask(each, *decider.names))["NodeNames"]
        decider.now += seconds
    assert len(set(nodes)) == 3
    assert await decider.bind(THREE[0], nodes[2]) == ""
    decider.now += seconds
    assert len((await decider.ask(other, *decider.names))["NodeNames"]) == 2


@pytest.mark.parametrize("seconds", [0.6, 2.0, PROMISE + 1])
async def test_a_new_cycle_keeps_what_it_has_answered_before_a_member_of_the_last_one(seconds: float) -> None:
    first, second, third = THREE
    decider = grouping(*THREE, cards=(1, 1, 1, 1), minimum=2)
    await decider.ask(second, *decider.names)
    decider.now += seconds
    assert len(await decider.cycle(first, second, third, minimum=3)) == 3


@pytest.mark.parametrize(("removed", "counted"), [([], 4), (["default/a"], 3)])
async def test_members_are_counted_once_and_only_while_they_exist(removed: list[str], counted: int) -> None:
    late = member("late")
    decider = grouping(*THREE, cards=(1, 1, 1, 1))
    await decider.cycle(*THREE, minimum=3)
    decider.group(5)
    decider.cluster.add(late)
    for each in removed:
        decider.cluster.remove(each)
    failed = (await decider.ask(late, *decider.names))["FailedNodes"]
    assert failed["n1"].startswith(f"only {counted} of the 5 pods")


async def test_a_member_with_scheduling_gates_takes_no_room() -> None:
    gated = member("gated", 700)
    gated["spec"]["schedulingGates"] = [{"name": "later"}]
    decider = grouping(gated, *THREE[:2], cards=(1, 1), minimum=2)
    assert await decider.cycle(*THREE[:2], minimum=2) == ["n1", "n2"]


async def test_a_group_may_need_more_nodes_than_kube_scheduler_offers_at_once() -> None:
    pods = [member(f"m{at:03}") for at in range(120)]
    decider = grouping(*pods, cards=(1,) * 150, minimum=120)
    chosen = set()
    for at, each in enumerate(pods):
        offered = [decider.names[(100 * at + number) % 150] for number in range(100)]
        chosen |= set((await decider.ask(each, *offered))["NodeNames"])
    assert len(chosen) == 120


async def test_a_node_that_another_part_refuses_gets_no_member() -> None:
    def refuse_n1(pod: Any, need: Any, decision: FilterDecision, facts: Any) -> Turns[FilterDecision]:
        yield from ()
        passing = [each for each in decision.passing if each != "n1"]
        return replace(decision, passing=passing, failed={**decision.failed, "n1": "no"})

    decider = Grouping(1, 1)
    decider.hooks = Hooks(restricting=(refuse_n1, *decider.hooks.restricting))
    decider.group(2)
    for each in THREE[:2]:
        decider.cluster.add(each)
    assert await decider.cycle(*THREE[:2], minimum=2) == []


def test_a_list_with_a_newer_group_of_the_same_name_keeps_its_minimum() -> None:
    minimums = MinimumCounts()
    policy = {"schedulingPolicy": {"gang": {"minCount": 3}}}
    for uid in ("old", "new"):
        sent = {"metadata": {"name": "gang", "uid": uid}, "spec": policy}
        list_all(minimums, [msgspec.convert(sent, PodGroup)])
    assert minimums.of_group == {"default/gang": ("default/gang", 3)}


async def test_a_restart_in_a_cycle_loses_only_that_cycle() -> None:
    decider = grouping(*THREE)
    await decider.ask(THREE[0], *decider.names)
    again = Grouping(1, 1, 1)
    again.group(3)
    for each in THREE:
        again.cluster.add(each)
    assert await again.cycle(*THREE, minimum=3) == ["n1", "n2", "n3"]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([1, 2]), min_size=1, max_size=4),
    st.lists(st.lists(st.sampled_from([300, 400, 600, 1000]), min_size=1, max_size=4), min_size=1, max_size=3),
)
async def test_every_group_is_whole_or_has_nothing(cards: list[int], groups: list[list[int]]) -> None:
    decider = Grouping(*cards)
    for at, sizes in enumerate(groups):
        pods = [member(f"g{at}-{number}", size, f"g{at}") for number, size in enumerate(sizes)]
        decider.group(len(pods), f"g{at}")
        for each in pods:
            decider.cluster.add(each)
        bound = await decider.cycle(*pods, minimum=len(pods))
        assert len(bound) in (0, len(pods))
        assert sum(booked_cards(decider, each["metadata"]["uid"]) != "nothing" for each in pods) == len(bound)
    assert all(
        amounts["millicores"] <= 1000
        for name in decider.names
        for amounts in decider.ledger.usage(name).amounts.values()
    )
