"""The commands on a cluster in the sandbox's API server: what they print, and their exit codes."""

from __future__ import annotations

import asyncio
import csv
import errno
import io
import json
import logging
import sys

import pytest
import yaml

from gas.commands import complete, run
from sandbox.api.kinds import PODS
from tests.cluster.scripted_server import ScriptedServer, refuse
from tests.inspection.conftest import Kubectl
from tests.inspection.example_cluster import GB, create_pod, plugin_pod, use_path


async def test_top_shows_booked_and_used_of_each_card(kubectl: Kubectl) -> None:
    rows = await kubectl.data("top")
    assert [(row["node"], row["card"]) for row in rows] == [
        (node, card) for node in ("gpu-1", "gpu-2", "gpu-10") for card in ("card0", "card1")
    ]
    first = rows[0]
    assert first["memory.max"] == {"booked": 12 * GB, "capacity": 16 * GB}
    assert first["millicores"] == {"booked": 800, "capacity": 1000}
    assert first["used"] == int(9.4 * GB)
    assert first["busy"] == 0.93
    assert first["holders"] == ["default/train-0"]
    assert rows[3]["health"] == "unhealthy"
    assert rows[3]["memory.max"] is None


async def test_a_command_does_not_change_what_others_log(kubectl: Kubectl) -> None:
    before = logging.getLogger("gas").level
    await kubectl.data("top")
    assert logging.getLogger("gas").level == before


async def test_top_nodes_adds_up_the_cards_of_each_node(kubectl: Kubectl) -> None:
    first, second, _ = await kubectl.data("top", "nodes")
    assert first["memory.max"] == {"booked": 22 * GB, "capacity": 32 * GB}
    assert (first["cards"], first["pods"], first["health"]) == (2, 2, "ok")
    assert second["health"] == "1 ok, 1 unhealthy"
    assert first["used"] == int(9.4 * GB) + int(9.9 * GB)


async def test_pods_of_the_namespace_of_the_context_are_listed(kubectl: Kubectl) -> None:
    assert [row["name"] for row in await kubectl.data("pods")] == ["big", "notebook", "train-0", "train-1"]
    config = json.loads(kubectl.kubeconfig.read_text())
    config["contexts"][0]["context"]["namespace"] = "shop"
    kubectl.kubeconfig.write_text(json.dumps(config))
    assert [row["name"] for row in await kubectl.data("pods")] == ["web-7d"]
    assert [row["name"] for row in await kubectl.data("pods", "--context", "viewer", "-n", "shop")] == ["web-7d"]
    assert len(await kubectl.data("pods", "-A")) == 5


async def test_a_kubeconfig_without_a_list_of_contexts_ends_with_3(kubectl: Kubectl) -> None:
    kubectl.kubeconfig.write_text("contexts: 3")
    result = await kubectl("pods")
    assert result.code == 3
    assert "expected a kubeconfig" in result.err


async def test_a_closed_standard_error_changes_no_exit_code(kubectl: Kubectl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", None)
    assert (await kubectl("waste")).code == 0


async def test_pods_that_wait_have_the_reason_of_the_extender(kubectl: Kubectl) -> None:
    (big,) = [row for row in await kubectl.data("pods") if row["state"] == "Waiting"]
    assert big["note"] == "no card has 14.0 GB of memory.max free; nearest: gpu-2 card0 with 10.0 GB of memory.max"
    assert big["node"] is None
    assert "big" in (await kubectl("pods", "--where", "note~14.0 GB")).out


async def test_labels_select_nodes_and_pods(kubectl: Kubectl) -> None:
    rows = await kubectl.data("top", "nodes", "-l", "zone in (a,b),zone!=b")
    assert [row["node"] for row in rows] == ["gpu-1"]
    result = await kubectl("pods", "-l", "app=none")
    assert (result.code, result.out) == (0, "")
    assert "no pod that asks for GPUs was found in namespace default" in result.err


async def test_rows_are_sorted_and_filtered(kubectl: Kubectl) -> None:
    rows = await kubectl.data("top", "--sort-by", "-used", "--where", "health=ok", "--where", "memory.max>30")
    assert [row["used"] for row in rows] == [int(9.9 * GB), int(9.4 * GB), int(2.8 * GB), int(1.2 * GB)]


async def test_the_formats_have_the_same_content(kubectl: Kubectl) -> None:
    rows = await kubectl.data("top")
    assert yaml.safe_load((await kubectl("top", "-o", "yaml")).out) == rows
    written = list(csv.DictReader(io.StringIO((await kubectl("top", "-o", "csv")).out)))
    assert [row["memory.max.booked"] for row in written[:2]] == [str(12 * GB), str(10 * GB)]
    assert [row["holders"] for row in written[:2]] == ["default/train-0", "default/train-1"]


async def test_inspect_shows_the_pods_of_each_card(kubectl: Kubectl) -> None:
    result = await kubectl("inspect", "gpu-1")
    assert result.code == 0
    assert "Pods on card1\n  default/train-1  1 i915, 500 millicores and 10.0 GB of memory.max\n" in result.out
    data = json.loads((await kubectl("inspect", "gpu-1", "-o", "json")).out)
    assert yaml.safe_load((await kubectl("inspect", "gpu-1", "-o", "yaml")).out) == data
    assert (data["ready"], data["cordoned"], data["kernel"]) == (True, False, "6.12.0-amd64")
    assert data["numaGroups"] == [["card0"], ["card1"]]


async def test_a_node_that_does_not_exist_ends_with_1(kubectl: Kubectl) -> None:
    result = await kubectl("inspect", "gpu-9")
    assert result.code == 1
    assert "node 'gpu-9': expected the name of a node" in result.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["nonsense"], "kubectl gas: No such command 'nonsense'; see kubectl gas --help\n", id="command"),
        pytest.param(["tpo"], "Did you mean 'top'?; see kubectl gas --help\n", id="misspelt-command"),
        pytest.param(["why", "shop/"], "expected a pod as NAME or NAMESPACE/NAME, found 'shop/'", id="no-name"),
        pytest.param(["why", "/web-7d"], "found '/web-7d'; see kubectl gas why --help\n", id="no-namespace"),
        pytest.param(["why", "a/b/c"], "found 'a/b/c'; see kubectl gas why --help\n", id="too-many-names"),
        pytest.param(["top", "-o", "xml"], "'xml' is not one of", id="format"),
        pytest.param(["top", "--sort-by", "size"], "expected a column of this report", id="column"),
        pytest.param(["top", "--where", "health"], "expected a condition such as", id="condition"),
        pytest.param(["top", "--where", "used>much"], "expected a number after >, found 'much'", id="number"),
        pytest.param(["top", "-l", "a=b=c"], "expected a label selector such as", id="selector"),
        pytest.param([], "Usage: kubectl gas", id="nothing"),
    ],
)
async def test_a_wrong_command_line_ends_with_2(kubectl: Kubectl, arguments: list[str], words: str) -> None:
    result = await kubectl(*arguments)
    assert result.code == 2
    assert words in result.err


@pytest.mark.parametrize("program", ["gas", "kubectl gas"])
@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["top", "--nonsense"], id="option"),
        pytest.param(["top", "--where", "health"], id="condition"),
        pytest.param(["inspect", "gpu-9"], id="node"),
        pytest.param(["top", "--context", "nowhere"], id="cluster"),
        pytest.param(["pods", "-n", "empty"], id="note"),
    ],
)
async def test_what_is_said_begins_with_the_program_that_the_user_typed(
    kubectl: Kubectl, capsys: pytest.CaptureFixture[str], program: str, arguments: list[str]
) -> None:
    await asyncio.to_thread(run, arguments, program)
    said = capsys.readouterr().err.splitlines()
    assert said
    assert all(line.startswith(f"{program}: ") for line in said)


@pytest.mark.parametrize("program", ["gas", "kubectl gas"])
async def test_output_that_cannot_be_written_is_reported_in_the_name_of_the_program(
    kubectl: Kubectl, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    class Full(io.StringIO):
        def write(self, _text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    for arguments in (["top"], ["top", "--watch"]):
        with monkeypatch.context() as patch:
            patch.setattr("sys.stdout", Full())
            assert await asyncio.wait_for(asyncio.to_thread(run, arguments, program), 20) == 3
            sys.stdout.close()  # the null device, which takes the place of the output
        assert capsys.readouterr().err.startswith(f"{program}: cannot write to standard output: No space left")


async def test_a_cluster_that_cannot_be_reached_ends_with_3(kubectl: Kubectl, caplog: pytest.LogCaptureFixture) -> None:
    result = await kubectl("pods", "--kubeconfig", "/does/not/exist")
    assert result.code == 3
    assert "the file does not exist" in result.err
    assert not caplog.text
    result = await kubectl("top", "--context", "nowhere")
    assert result.code == 3


@pytest.mark.parametrize(
    ("document", "words"),
    [
        pytest.param({"trouble": "it is broken", "pods": []}, "for node gpu-2: it is broken", id="trouble"),
        pytest.param({"trouble": "x" * 501}, f"for node gpu-2: '{'x' * 40}'…", id="long-trouble"),
        pytest.param([1], "for node gpu-2: expected the document /usage of gas-plugin", id="something-else"),
        pytest.param(
            {"pods": [{"uid": "u", "cards": {"crad0": {}}}]}, "for node gpu-2: the use of pod 'u'", id="malformed-card"
        ),
        pytest.param(
            {"pods": [{"uid": "u", "cards": {"card0": {"memoryUsed": 10**400}}}]},
            "for node gpu-2: expected the document /usage",
            id="more-than-any-card-has",
        ),
        pytest.param(None, "for node gpu-2: the API server refused GET", id="missing"),
    ],
)
async def test_use_that_cannot_be_read_is_reported_and_the_rest_is_shown(
    kubectl: Kubectl, document: object, words: str
) -> None:
    if document is None:
        del kubectl.beside.objects[use_path("gpu-2")]
    else:
        kubectl.beside.objects[use_path("gpu-2")] = document
    result = await kubectl("top")
    assert result.code == 0
    assert f"use is not shown {words}" in result.err
    assert "93%" in result.out


async def test_a_plugin_is_believed_about_the_pods_of_its_own_node_only(kubectl: Kubectl) -> None:
    of_both = kubectl.beside.objects.pop(use_path("gpu-1"))["pods"] + kubectl.beside.objects[use_path("gpu-2")]["pods"]
    kubectl.beside.objects[use_path("gpu-2")] = {"pods": of_both}
    used = {row["name"]: row["used"] for row in await kubectl.data("pods", "-A")}
    assert (used["train-0"], used["web-7d"]) == (None, int(1.2 * GB))


async def test_nodes_whose_use_cannot_be_read_for_one_reason_share_a_sentence(kubectl: Kubectl) -> None:
    for name in ("gpu-1", "gpu-2"):
        del kubectl.beside.objects[use_path(name)]
    result = await kubectl("top")
    assert "use is not shown for 2 nodes such as gpu-1: the API server refused GET /usage of the plugin" in result.err


async def test_one_node_without_measurements_is_named(kubectl: Kubectl) -> None:
    kubectl.server.api.delete(PODS, "kube-system", "gas-plugin-gpu-2", {"gracePeriodSeconds": 0})
    create_pod(kubectl.server, plugin_pod("gpu-2"))
    result = await kubectl("top")
    assert "use is not shown for node gpu-2: the plugin there does not measure it" in result.err


async def test_without_plugins_that_measure_a_line_says_so(kubectl: Kubectl) -> None:
    for name in ("gpu-1", "gpu-2", "gpu-10"):
        kubectl.server.api.delete(PODS, "kube-system", f"gas-plugin-{name}", {"gracePeriodSeconds": 0})
    sentence = "use is not shown: no plugin measures it; see gas-plugin --usage"
    for command in (["top", "-o", "wide"], ["top", "--where", "used>1"], ["waste"]):
        assert sentence in (await kubectl(*command)).err
    result = await kubectl("top")
    assert "USED" not in result.out
    assert sentence not in result.err  # it would come with every command


async def test_the_command_only_reads(kubectl: Kubectl) -> None:
    for arguments in (["top"], ["top", "nodes"], ["pods", "-A"], ["inspect", "gpu-1"]):
        await kubectl(*arguments)
    asked = [line.split() for line in kubectl.beside.asked]
    assert {agent for agent, _, _ in asked} == {"kubectl-gas"}
    assert {method for _, method, _ in asked} == {"GET"}


async def test_commands_names_and_options_are_completed(kubectl: Kubectl) -> None:
    assert complete(["in"]) == "inspect\tShow everything about one NODE.\n:4\n"
    assert complete(["top", ""]).splitlines() == ["nodes", "cards", "pods", ":4"]
    assert "--watch\tDraw again whenever something changes." in complete(["top", "--w"])
    for words, candidates in {
        ("inspect", "gpu-1"): "gpu-1\ngpu-10\n:4\n",
        ("pods", "-n", "s"): "shop\n:4\n",
        ("pods", "--context", ""): "admin\nviewer\n:4\n",
        ("top", "nodes", "--sort-by", "me"): "memory.max\n:4\n",
        ("waste", "--where", "u"): "unused\n:4\n",
        ("pods", "-s", "http://127.0.0.1:1", "-n", ""): ":4\n",
    }.items():
        assert await asyncio.to_thread(complete, words) == candidates


async def test_the_account_and_the_server_are_those_of_the_command_line(kubectl: Kubectl) -> None:
    async with ScriptedServer(route=lambda _seen: refuse(403)) as server:
        result = await kubectl("top", "-s", server.url, "--token", "t", "--as", "jane", "--as-group", "dev")
    assert result.code == 3
    expected = {"authorization": "Bearer t", "impersonate-user": "jane", "impersonate-group": "dev"}
    assert expected.items() <= server.seen[0].headers.items()
    assert (await kubectl("top", "--as-group", "dev")).code == 2


async def test_a_server_that_sends_nothing_ends_a_command_with_a_sentence(kubectl: Kubectl) -> None:
    async with ScriptedServer() as silent:
        for command in (["top"], ["top", "--watch"]):
            result = await kubectl(*command, "-s", silent.url, "--request-timeout", "200ms")
            assert (result.code, result.out) == (3, "")
            assert f"no response from the API server at {silent.url}" in result.err


@pytest.mark.parametrize("command", ["top", "top nodes", "pods -A", "waste"])
async def test_a_condition_that_no_row_meets_is_named_with_the_number_of_rows(kubectl: Kubectl, command: str) -> None:
    rows = len(await kubectl.data(*command.split()))
    result = await kubectl(*command.split(), "--where", "node=nowhere")
    assert f"none of {rows} rows meet --where" in result.err
    assert "no card was found" not in result.err


async def test_tables_are_printed_without_headers_on_request(kubectl: Kubectl) -> None:
    with_headers = (await kubectl("top")).out
    assert (await kubectl("top", "--no-headers")).out == with_headers.partition("\n")[2]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
async def test_the_completion_script_of_a_shell_is_printed(kubectl: Kubectl, shell: str) -> None:
    result = await kubectl("completion", shell)
    assert result.code == 0
    assert f"_KUBECTL_GAS_COMPLETE={shell}_complete" in result.out


@pytest.mark.parametrize(
    ("shell", "current", "expected"),
    [
        ("bash", "1", "plain,top\n"),
        ("zsh", "1", "plain\ntop\nShow what is booked and used of cards.\n"),
        ("fish", "to", "plain,top\tShow what is booked and used of cards.\n"),
    ],
)
def test_the_script_of_a_shell_gets_candidates(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    shell: str,
    current: str,
    expected: str,
) -> None:
    monkeypatch.setenv("_KUBECTL_GAS_COMPLETE", f"{shell}_complete")
    monkeypatch.setenv("COMP_WORDS", "kubectl-gas to")
    monkeypatch.setenv("COMP_CWORD", current)
    with pytest.raises(SystemExit, match=r"^0$"):
        run([])
    assert capsys.readouterr().out == expected


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        pytest.param(["top", "--sort-by", "-USED"], ["top", "--sort-by", "-used"], id="case-of-a-column"),
        pytest.param(["top", "--where", "Health==ok"], ["top", "--where", "health=ok"], id="two-equals-signs"),
        pytest.param(["top", "node"], ["top", "nodes"], id="singular"),
        pytest.param(["why", "pod/big"], ["why", "big"], id="kind-of-a-pod"),
        pytest.param(["why", "shp/big"], ["why", "big"], id="kind-of-a-sharepod"),
        pytest.param(["inspect", "node/gpu-1"], ["inspect", "gpu-1"], id="kind-of-a-node"),
    ],
)
async def test_what_people_write_for_other_commands_is_understood(
    kubectl: Kubectl, said: list[str], meant: list[str]
) -> None:
    assert await kubectl.data(*said) == await kubectl.data(*meant)
