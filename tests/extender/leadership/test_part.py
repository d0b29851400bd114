"""The flags of leader election, and the namespace of the Lease where none names it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gas.daemon.flags import UsageError
from gas.extender.command_line import parse_flags
from gas.extender.leadership.leadership import own_namespace
from gas.extender.leadership.part import LEADERSHIP, LeadershipFlags


def test_it_is_off_by_default() -> None:
    assert not LEADERSHIP.is_on(parse_flags([]))
    assert parse_flags([]).of(LeadershipFlags) == LeadershipFlags(
        leader_elect=False, lease_namespace="", lease_name="gas-extender"
    )


def test_the_lease_has_the_names_of_the_flags() -> None:
    flags = parse_flags(["--leader-elect=true", "--lease-namespace=kube-system", "--lease-name=x"])
    assert flags.of(LeadershipFlags) == LeadershipFlags(
        leader_elect=True, lease_namespace="kube-system", lease_name="x"
    )
    assert not flags.warnings


def test_a_name_of_the_lease_without_an_election_gives_a_warning() -> None:
    assert parse_flags(["--lease-name=x"]).warnings == ("ignored: --lease-name; set --leader-elect as well",)


def test_a_name_that_no_lease_can_have_is_refused() -> None:
    with pytest.raises(UsageError, match="flag --lease-name: expected a Kubernetes name"):
        parse_flags(["--lease-name=A/b"])


@pytest.mark.parametrize(
    ("environ", "text", "namespace"),
    [
        ({"POD_NAMESPACE": "here"}, None, "here"),
        ({"POD_NAMESPACE": "here"}, "there\n", "here"),
        ({}, "there\n", "there"),
        ({}, None, "default"),
    ],
)
def test_the_namespace_is_that_of_the_environment_or_of_the_service_account(
    tmp_path: Path, environ: dict[str, str], text: str | None, namespace: str
) -> None:
    file = tmp_path / "namespace"
    if text is not None:
        file.write_text(text)
    assert own_namespace(environ, file) == namespace
