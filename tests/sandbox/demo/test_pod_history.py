"""The devices in the containers of a pod, compared with the decision written on the pod."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox.demo.pod_history import InsidePod, inside_pod
from sandbox.kubelet.containers import ContainerDevices, Containers


def given(*cards: int, mask: str = "") -> ContainerDevices:
    nodes = {f"/dev/dri/{name}": "/host" for card in cards for name in (f"card{card}", f"renderD{128 + card}")}
    return ContainerDevices(device_nodes=nodes, env={"ZE_AFFINITY_MASK": mask} if mask else {})


async def inside(annotations: dict[str, str], init: dict[str, ContainerDevices], **apps: ContainerDevices) -> InsidePod:
    containers = Containers()
    for name, what in (*init.items(), *apps.items()):
        containers.start("u", name, what, None)
    pod: dict[str, Any] = {
        "metadata": {"uid": "u", "annotations": annotations},
        "spec": {
            "initContainers": [{"name": name} for name in init],
            "containers": [{"name": name} for name in apps],
        },
    }
    return inside_pod(pod, containers)


async def test_the_devices_of_one_container() -> None:
    found = await inside({"gas-container-cards": "card2"}, {}, main=given(2, mask="0,1"))
    assert found == InsidePod(cards="card2", devices="card2 renderD130 ZE_AFFINITY_MASK=0,1", as_decided=True)


async def test_devices_of_several_containers_are_listed_with_the_containers_names() -> None:
    written = {"gas-init-container-cards": "card0", "gas-container-cards": "card0||card3,card1"}
    found = await inside(written, {"i": given(0)}, a=given(0), none=given(), b=given(1, 3))
    assert found.cards == "(card0) card0||card1,card3"
    assert found.devices == "i: card0 renderD128; a: card0 renderD128; b: card1 renderD129 card3 renderD131"
    assert found.as_decided


@pytest.mark.parametrize(
    ("annotations", "init", "apps", "as_decided"),
    [
        pytest.param({"gas-container-cards": "card1"}, {}, {"a": given(2)}, False, id="another-card"),
        pytest.param({"gas-container-cards": "card1,card2"}, {}, {"a": given(2)}, False, id="too-few"),
        pytest.param({"gas-container-cards": "card1|"}, {}, {"a": given(), "b": given(1)}, False, id="other-container"),
        pytest.param({"gas-container-cards": "cardX"}, {}, {"a": given(1)}, False, id="unreadable"),
        pytest.param({}, {}, {"a": given(1)}, False, id="nothing-written"),
        pytest.param({"gas-container-cards": "card1"}, {"i": given(1)}, {"a": given(1)}, False, id="none-for-init"),
        pytest.param({"gas-container-cards": ""}, {}, {"a": given()}, True, id="no-cards-at-all"),
        pytest.param({"gas-init-container-cards": "card1"}, {"i": given(1)}, {"a": given()}, True, id="init-only"),
    ],
)
async def test_the_decision_is_compared_with_the_devices_container_by_container(
    annotations: dict[str, str], init: dict[str, ContainerDevices], apps: dict[str, ContainerDevices], as_decided: bool
) -> None:
    assert (await inside(annotations, init, **apps)).as_decided is as_decided
