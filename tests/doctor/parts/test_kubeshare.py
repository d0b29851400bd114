from __future__ import annotations

import pytest

from tests.doctor.snapshots import extender_pod, findings, plugin_pod, program_pod, worst

KUBESHARE = "--vocabularies=intel,kubeshare"


# contract S1.24
@pytest.mark.parametrize(
    ("image", "found"),
    [
        ("scheduler", "KubeShare's scheduler still runs; it places SharePods without knowing gas-extender's decisions"),
        ("device-manager", "KubeShare's device manager still runs; it makes pods of SharePods as well as gas-extender"),
        ("config-client", "KubeShare's node daemon still runs; only pods that KubeShare made need it"),
        (
            "vgpupod",
            "KubeShare's placeholder still runs; it keeps a card from pods with nvidia.com/gpu, and is needed only to"
            " go back",
        ),
        ("gemini-hook-init", None),
    ],
)
def test_what_is_left_of_kubeshare_is_reported(image: str, found: str | None) -> None:
    other = program_pod("kubeshare-1", f"registry.example/kubeshare-{image}:200429")
    pods = (extender_pod(KUBESHARE), plugin_pod(KUBESHARE), other)
    messages = [each.message for each in worst(findings("vocabularies", pods=pods))]
    assert [each for each in messages if "still runs" in each] == [found] * (found is not None)
    pods = (extender_pod(), plugin_pod(), other)
    assert not worst(findings("vocabularies", pods=pods))
