"""The flag of the webhooks of pods."""

from __future__ import annotations

from gas.extender.command_line import parse_flags
from gas.extender.pod_webhooks.part import PodWebhookFlags


def test_the_name_of_the_scheduler_needs_the_port() -> None:
    assert parse_flags([]).of(PodWebhookFlags).scheduler_name is None
    flags = parse_flags(["--admission-scheduler-name=x"])
    assert flags.of(PodWebhookFlags).scheduler_name == "x"
    assert flags.warnings == ("ignored: --admission-scheduler-name; set --admission-port as well",)
