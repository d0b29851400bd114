"""All checks together: a healthy cluster, nodes without cards, and long reports."""

from __future__ import annotations

from gas.doctor.all_parts import TITLES, all_findings
from gas.doctor.findings import Finding, Level
from gas.doctor.report import as_json, as_text, exit_code
from gas.programs import PLUGIN
from tests.doctor.snapshots import faults, gpu_pod, plugin_pod, seen_node, snapshot


def test_a_healthy_cluster_has_only_findings_that_are_ok() -> None:
    found = [each for each in all_findings(snapshot()) if each.check != "certificates"]
    assert {each.level for each in found} == {Level.OK}
    assert {each.check for each in found} == TITLES.keys() - {
        "card-health",
        "certificates",
        "daemonsets",
        "dra-drivers",
        "permissions",
        "usage-and-limits",
        "admission",
        "vocabularies",
    }
    assert exit_code(found) == 0


def test_a_node_without_cards_is_skipped_even_with_a_plugin() -> None:
    bare = seen_node("cp", labels={}, resources={})
    changes = {"nodes": (seen_node(), bare), "pods": (plugin_pod(), plugin_pod(node="cp", name="gas-plugin-cp"))}
    for check in ("node-labels", "node-resources", "device-plugins", "clocks"):
        assert faults(check, **changes) == []


def test_the_pods_are_searched_for_a_program_once_not_for_each_node() -> None:
    seen = snapshot(pods=(plugin_pod(), gpu_pod()))
    assert [pod.metadata.name for pod, _ in seen.running(PLUGIN)] == ["gas-plugin-abcde"]
    assert seen.running(PLUGIN) is seen.running(PLUGIN)


def test_long_texts_are_cut() -> None:
    seen = snapshot(pods=(gpu_pod(node=None, message="\x1b" + "x" * 100_000),))
    found = all_findings(seen)
    for shown in (as_text(seen, found, show_all=True, colours=False), as_json(seen, found)):
        assert "x" * 100 in shown.replace("\n          ", "")
        assert len(shown) < 20_000
        assert "\x1b" not in shown


def test_findings_that_say_the_same_of_several_objects_are_one_block() -> None:
    nodes = tuple(seen_node(f"gpu-{number}", resources={"i915": "0"}) for number in range(56))
    seen = snapshot(nodes=nodes, pods=(), calls=(), schedulers=())
    found = all_findings(seen)
    short, long = (as_text(seen, found, show_all=each, colours=False, width=500) for each in (False, True))
    fault = "node gpu-0, node gpu-1, node gpu-2 and 53 more: it has labels about cards, but kubelet does not offer any"
    assert fault in " ".join(short.split())
    assert short.count("it has labels about cards, but kubelet does not offer any") == 1
    assert long.count("it has labels about cards, but kubelet does not offer any") == 56
    assert len(short.splitlines()) < 60 < len(long.splitlines())
    total = f"{sum(each.level is Level.PROBLEM for each in found)} problems, "
    assert total in short
    assert total in long
    assert "gas doctor --verbose shows each" in short
    assert "--verbose" not in long


def test_a_block_says_that_its_numbers_are_those_of_the_first() -> None:
    found = [
        Finding(
            level=Level.WARNING, message=f"it asks for {cards} cards", where=f"pod p{cards}", check="pods", fix=("x",)
        )
        for cards in (3, 30)
    ]
    text = as_text(snapshot(), found, show_all=False, colours=False)
    assert "pod p3, pod p30: it asks for 3 cards (numbers of the first)" in text


def test_a_short_report_counts_the_blocks_that_it_has_no_room_for() -> None:
    found = [
        Finding(level=Level.WARNING, message="a" * length, where="pod p", check="pods", fix=("x",))
        for length in range(1, 61)
    ]
    short, long = (as_text(snapshot(), found, show_all=each, colours=False) for each in (False, True))
    assert (short.count("pod p: a"), long.count("pod p: a")) == (40, 60)
    assert "20 more kinds of findings are not shown" in short
    assert "gas doctor --verbose shows each" in short
