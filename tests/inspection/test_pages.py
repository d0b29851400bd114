"""The page on kubectl gas shows what the commands really print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

from gas.commands import ENTRIES
from sandbox.api.routes import Access
from tests.doctor.sandbox_cluster import doctor_server, write_kubeconfig
from tests.inspection.conftest import Kubectl
from tests.inspection.example_cluster import EXAMPLE_USE, example_nodes, example_pods, fill, with_real_uids

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "kubectl.md").read_text(encoding="utf-8")
_AGE = re.compile(r"\b\d[smhd]\b")
EXAMPLES = [
    (command, output.rstrip("\n"))
    for block in re.findall(r"^```console\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    for command, output in re.findall(r"^\$ kubectl gas ([^\n]*)\n(.*?)(?=^\$ |\Z)", block, re.DOTALL | re.MULTILINE)
]


@pytest.mark.parametrize(("command", "output"), EXAMPLES, ids=[command for command, _ in EXAMPLES])
async def test_an_example_of_the_page_prints_what_the_page_says(
    kubectl: Kubectl, command: str, output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    result = await kubectl(*shlex.split(command))
    assert _AGE.sub("0s", result.out).rstrip("\n") == _AGE.sub("0s", output)


def test_the_page_has_every_command() -> None:
    table = PAGE.partition("| command |")[2].partition("\n\n")[0]
    assert set(re.findall(r"kubectl gas ([a-z]+)", table)) == set(ENTRIES)


async def test_the_rules_of_the_page_are_enough(kubectl: Kubectl, tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    allowed = {
        (resource, verb)
        for rule in yaml.safe_load(block)["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert {verb for _, verb in allowed} == {"get", "list", "watch"}

    def by_the_rules(access: Access) -> bool:
        return (access.resource, access.verb) in allowed or access.user == "admin"

    async with doctor_server(kubectl.beside, authorize=by_the_rules) as server:
        fill(server, example_nodes(), example_pods())
        kubectl.beside.objects.update(with_real_uids(server, EXAMPLE_USE))
        kubeconfig = write_kubeconfig(tmp_path / "viewer", server.url, token="viewer")
        for command, _ in EXAMPLES:
            result = await kubectl(*shlex.split(command), "--kubeconfig", str(kubeconfig))
            assert result.code in (0, 1), result.err
            assert "403" not in result.err
