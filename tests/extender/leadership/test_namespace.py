"""The namespace of the Lease, where no flag names it."""

from __future__ import annotations

from pathlib import Path

from gas.extender.leadership.leadership import own_namespace

NOWHERE = Path("/nonexistent/namespace")


def test_from_the_environment() -> None:
    assert own_namespace({"POD_NAMESPACE": "here"}, NOWHERE) == "here"


def test_from_the_service_account_unless_the_environment_has_it(tmp_path: Path) -> None:
    file = tmp_path / "namespace"
    file.write_text("there\n")
    assert own_namespace({}, file) == "there"
    assert own_namespace({"POD_NAMESPACE": "here"}, file) == "here"


def test_default_outside_of_a_pod() -> None:
    assert own_namespace({}, NOWHERE) == "default"
