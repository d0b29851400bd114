"""The whole plugin on a node: from the cards in sysfs to what containers have, and what is written about it."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import grpc
import msgspec
import pytest

from gas.cluster.objects import MERGE_PATCH
from gas.plugin.devices.device_ids import PreferredRequest
from gas.plugin.flags import Environment
from gas.plugin.kubelet.device_server import DeviceServer
from gas.plugin.kubelet.pod_resources import Listing, PodResources
from gas.plugin.kubelet.registration import Phase
from gas.plugin.kubelet_api import podresources_v1_pb2
from gas.plugin.kubelet_api.podresources_v1_pb2_grpc import PodResourcesListerStub
from gas.plugin.matching.gpu_pods import GpuPods
from gas.plugin.matching.matcher import Matcher, Preference
from gas.plugin.matching.pod_resolver import PodResolver
from gas.plugin.receipts.receipt_writer import ReceiptWriter
from gas.values.card_records import parse_card_records
from gas.values.cards import Card
from sandbox.api.kinds import NODES
from sandbox.api.routes import Access
from sandbox.hardware.fake_sysfs import FLEX_170, MAX_1550_XE, add_gpu, fake_gpus
from tests.background import eventually, soon
from tests.builders import container, pod_json
from tests.fake_gpus import remove_gpu
from tests.plugin.node_of_sandbox import NODE, SandboxNode, sandbox_node
from tests.plugin.pods_for_plugin import decided, ids

FLEX = fake_gpus(FLEX_170, 4)
ONE = container(i915=1)


def placed(name: str, cards: str, *containers: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a pod as the extender leaves it: bound, with its cards annotated. ``fields`` are those of `decided`."""
    init, init_cards = fields.pop("init", ()), fields.pop("init_cards", "")
    annotations = decided(cards, init=init_cards, **fields)
    return pod_json(*(containers or (ONE,)), name=name, init=init, annotations=annotations)


def unplaced(name: str, *containers: dict[str, Any]) -> dict[str, Any]:
    """Return a pod that names its node itself."""
    return pod_json(*(containers or (ONE,)), name=name)


async def kubelets_numa_nodes(node: SandboxNode) -> dict[str, int]:
    """Return device id -> NUMA node, as kubelet lists them; devices without a NUMA node are missing."""
    async with grpc.aio.insecure_channel(f"unix://{node.kubelet_dir}/pod-resources/kubelet.sock") as channel:
        stub = PodResourcesListerStub(channel)
        response = await stub.GetAllocatableResources(podresources_v1_pb2.AllocatableResourcesRequest())
    return {id_: numa.ID for device in response.devices for id_ in device.device_ids for numa in device.topology.nodes}


class TestDevices:
    async def test_a_pod_that_the_watch_shows_late_gets_its_card(self, monkeypatch: pytest.MonkeyPatch) -> None:
        show = GpuPods.changed
        monkeypatch.setattr(GpuPods, "changed", lambda *args: asyncio.get_running_loop().call_later(0.2, show, *args))
        async with sandbox_node(*FLEX) as node, node.running_plugin("--allocation-policy=packed"):
            assert await node.got(node.create(placed("a", "card3"))) == ["card3"]

    async def test_decisions_by_position_are_read_again_when_the_cards_change(self) -> None:
        asking = {"name": "main", "resources": {"limits": {"aliyun.com/gpu-mem": "2"}}}
        async with sandbox_node(FLEX[1]) as node, node.running_plugin("--vocabularies=aliyun,intel") as plugin:
            node.create(pod_json(asking, name="a", annotations={"ALIYUN_COM_GPU_MEM_IDX": "0"}))
            await eventually(lambda: plugin.node.pods.users().keys() == {Card(1)})
            add_gpu(node.tree, FLEX[0])
            await plugin.scanner.scan_once()
            assert plugin.node.pods.users().keys() == {Card(0)}

    # contract D1.5, D1.12
    async def test_a_container_gets_exactly_the_card_written_on_its_pod(self) -> None:
        async with sandbox_node(*FLEX) as node, node.running_plugin():
            pod = node.create(placed("a", "card2"))
            assert await node.got(pod) == ["card2"]
            given = node.given(pod)
            assert given is not None
            assert given.device_nodes == {
                "/dev/dri/card2": f"{node.tree}/dev/dri/card2",
                "/dev/dri/renderD130": f"{node.tree}/dev/dri/renderD130",
            }
            assert {path.rpartition("-")[2] for path in given.mounts} == {"card", "render"}
            assert given.env == {}
            assert node.count("allocations_total", resource="i915", outcome="as-decided") == 1
            assert node.count("matches_total", confidence="known") == 1

    async def test_pods_created_at_once_get_theirs_whatever_kubelets_order(self) -> None:
        async with sandbox_node(*fake_gpus(FLEX_170, 8)) as node, node.running_plugin("--shared-dev-num=4"):
            cards = [f"card{number * 5 % 8}" for number in range(20)]
            pods = [node.create(placed(f"p{i}", card, ts=1000 - i)) for i, card in enumerate(cards)]
            assert [await node.got(pod) for pod in pods] == [[card] for card in cards]
            assert node.count("allocations_total", resource="i915", outcome="as-decided") == 20

    async def test_init_containers_and_sidecars_get_theirs(self) -> None:
        async with sandbox_node(*FLEX) as node, node.running_plugin():
            init = (container("prepare", i915=1), container("side", always=True, i915=1))
            pod = node.create(
                placed(
                    "a",
                    "card0|card1,card2",
                    container("b", i915=1),
                    container("c", i915=2),
                    init=init,
                    init_cards="card3|card3",
                )
            )
            assert await node.got(pod, "c") == ["card1", "card2"]
            assert [node.cards(pod, name) for name in ("prepare", "side", "b")] == [["card3"], ["card3"], ["card0"]]

    @pytest.mark.parametrize(
        ("hierarchy", "mask"),
        [
            pytest.param(None, "1,2", id="flat-counts-tiles-through-all-cards"),
            pytest.param("COMPOSITE", "0.1,1.0", id="composite-names-card-and-tile"),
        ],
    )
    async def test_tiles_become_a_mask(self, hierarchy: str | None, mask: str) -> None:
        async with sandbox_node(*fake_gpus(MAX_1550_XE, 2)) as node, node.running_plugin():
            wanting = container(xe=2, tiles=2)
            if hierarchy:
                wanting["env"] = [{"name": "ZE_FLAT_DEVICE_HIERARCHY", "value": hierarchy}]
            pod = node.create(placed("a", "card0,card1", wanting, tiles="card0:gt1,card1:gt0"))
            await node.got(pod)
            given = node.given(pod)
            assert given is not None
            assert given.env == {"ZE_AFFINITY_MASK": mask}

    async def test_cards_of_both_drivers_are_handed_out_side_by_side(self) -> None:
        gpus = (*fake_gpus(FLEX_170, 2), *fake_gpus(MAX_1550_XE, 2, first=2))
        async with sandbox_node(*gpus) as node, node.running_plugin():
            i915 = node.create(placed("i915", "card1"))
            xe = node.create(placed("xe", "card3", container(xe=1)))
            assert (await node.got(i915), await node.got(xe)) == (["card1"], ["card3"])

    # contract P2.4
    @pytest.mark.parametrize(
        ("flags", "numa_nodes"),
        [
            pytest.param([], {}, id="by-default-kubelet-learns-no-numa-node"),
            pytest.param(["--topology-hints"], {"card0-0": 0, "card1-0": 1}, id="on-request-it-does"),
        ],
    )
    async def test_kubelet_learns_numa_nodes_only_on_request(
        self, flags: list[str], numa_nodes: dict[str, int]
    ) -> None:
        async with sandbox_node(*fake_gpus(FLEX_170, 2, numa_nodes=2)) as node, node.running_plugin(*flags):
            assert await kubelets_numa_nodes(node) == numa_nodes

    @pytest.mark.parametrize(
        ("flags", "resource"),
        [
            pytest.param(["--enable-monitoring"], "monitoring", id="one"),
            pytest.param(["--enable-monitoring", "--split-monitoring"], "i915_monitoring", id="split"),
        ],
    )
    async def test_monitoring_sees_every_card_and_its_engine(self, flags: list[str], resource: str) -> None:
        async with sandbox_node(*FLEX) as node, node.running_plugin(*flags):
            await eventually(lambda: node.allocatable().get(resource) == "1")
            watching = {"name": "main", "resources": {"limits": {f"gpu.intel.com/{resource}": "1"}}}
            pod = node.create(unplaced("watcher", watching))
            assert await node.got(pod) == ["card0", "card1", "card2", "card3"]
            given = node.given(pod)
            assert given is not None
            assert "/dev/mei3" in given.device_nodes

    async def test_a_card_that_goes_and_comes_back_takes_only_its_own_ids_along(self) -> None:
        async with sandbox_node(*FLEX) as node, node.running_plugin("--shared-dev-num=2") as plugin:
            assert node.allocatable().get("i915") == "8"
            remove_gpu(node.tree, FLEX[1])
            await plugin.scanner.scan_once()
            await eventually(lambda: node.allocatable().get("i915") == "6")
            assert node.count("cards", driver="i915", state="unhealthy") == 1
            add_gpu(node.tree, FLEX[1])
            await plugin.scanner.scan_once()
            await eventually(lambda: node.allocatable().get("i915") == "8")


class TestWithoutDecision:
    async def test_a_pod_that_names_its_node_is_adopted(self) -> None:
        async with sandbox_node(*FLEX) as node, node.running_plugin():
            pod = node.create(unplaced("a"))
            (card,) = await node.got(pod)
            await soon(lambda: node.annotations("a")["gas-allocated-cards"] == card)
            assert node.count("adopted_pods_total") == 1
            assert node.count("mismatches_total") == 0
            await eventually(lambda: [reason for reason, _ in node.events("a")] == ["GPUCardsAdopted"])

    async def test_the_allocation_policy_chooses(self) -> None:
        async with sandbox_node(*FLEX) as node, node.running_plugin("--shared-dev-num=2", "--allocation-policy=packed"):
            pods = [node.create(unplaced(f"p{number}")) for number in range(4)]
            assert sorted([await node.got(pod) for pod in pods]) == [["card0"], ["card0"], ["card1"], ["card1"]]

    async def test_cards_promised_to_a_pod_that_waits_are_taken_last(self) -> None:
        async with sandbox_node(*FLEX) as node, node.running_plugin():
            names = ["card0", "card1", "card2"]
            pods = [node.create(unplaced("undecided")), *(node.create(placed(f"on-{card}", card)) for card in names)]
            assert await node.got(pods[0]) == ["card3"]
            assert [await node.got(pod) for pod in pods[1:]] == [[card] for card in names]

    # contract P2.8
    async def test_without_the_resource_manager_annotations_count_for_nothing(self) -> None:
        async with sandbox_node(*FLEX) as node:
            flags = ("--resource-manager=false", "--allocation-policy=packed", "--shared-dev-num=2")
            async with node.running_plugin(*flags):
                pods = [node.create(placed(f"p{number}", "card3")) for number in range(2)]
                assert [await node.got(pod) for pod in pods] == [["card0"], ["card0"]]
                assert not [name for name in node.node()["metadata"]["labels"] if name.startswith("gpu.intel.com/")]


class TestMismatches:
    # contract P3.7
    async def test_a_decided_card_that_is_missing_is_reported_as_a_warning(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with sandbox_node(*FLEX) as node, node.running_plugin():
            pod = node.create(placed("a", "card7"))
            (card,) = await node.got(pod)
            await soon(lambda: node.annotations("a")["gas-allocated-cards"] == card)
            assert node.count("mismatches_total") == 1
            sentence = f"kubelet gave other cards than decided: container 'main' got {card} instead of card7"
            await eventually(lambda: ("GPUAllocationMismatch", sentence) in node.events("a"))
            assert sentence in [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
            assert node.count("allocations_total", resource="i915", outcome="otherwise") == 1

    async def test_a_card_that_another_pod_has_already(self) -> None:
        async with sandbox_node(*FLEX) as node, node.running_plugin():
            first = node.create(placed("first", "card1"))
            assert await node.got(first) == ["card1"]
            second = node.create(placed("second", "card1"))
            (card,) = await node.got(second)
            await soon(lambda: node.annotations("second")["gas-allocated-cards"] == card)
            assert "gas-allocated-cards" not in node.annotations("first")

    async def test_a_receipt_that_is_removed_is_written_again(self) -> None:
        async with sandbox_node(*FLEX) as node, node.running_plugin():
            pod = node.create(unplaced("a"))
            (card,) = await node.got(pod)
            await soon(lambda: node.annotations("a")["gas-allocated-cards"] == card)
            # Counted a moment after the node's API server shows it.
            await soon(lambda: node.count("receipts_written_total") == 1)
            node.annotate("a", {"gas-allocated-cards": "card3" if card != "card3" else "card0"})
            await soon(lambda: node.annotations("a")["gas-allocated-cards"] == card)
            await soon(lambda: node.count("receipts_written_total") == 2)

    async def test_masks_that_two_pods_exchanged(
        self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """They share a card, so no receipt is missing. Kubelet takes them up against ``gas-ts`` and says nothing."""
        list_pods, resolve, is_away = PodResources.pods, PodResolver.resolve, True
        asked = asyncio.Event()

        async def pods(self: PodResources) -> Listing | None:
            return None if is_away else await list_pods(self)

        async def pod(self: PodResources, namespace: str, name: str) -> None:
            return None

        async def resolve_when_both_are_known(self: PodResolver, request: PreferredRequest) -> Preference:
            asked.set()
            await eventually(lambda: len(list(plugin.node.pods)) == 2)
            return await resolve(self, request)

        monkeypatch.setattr(PodResources, "pods", pods)
        monkeypatch.setattr(PodResources, "pod", pod)
        monkeypatch.setattr(PodResolver, "resolve", resolve_when_both_are_known)
        wanting = container(xe=1, tiles=1)
        async with (
            sandbox_node(*fake_gpus(MAX_1550_XE, 1)) as node,
            node.running_plugin("--shared-dev-num=2") as plugin,
        ):
            created = [node.create(placed("a", "card0", wanting, tiles="card0:gt0", ts=2))]
            await asked.wait()  # kubelet has taken the first one up
            created.append(node.create(placed("b", "card0", wanting, tiles="card0:gt1", ts=1)))
            assert [await node.got(pod) for pod in created] == [["card0"], ["card0"]]
            masks = [given.env["ZE_AFFINITY_MASK"] for pod in created if (given := node.given(pod)) is not None]
            assert masks[0] == "1"
            is_away = False
            # The second gets its own when the watch has shown by then that kubelet is done with the first.
            wrong = sum(mask != own for mask, own in zip(masks, "01", strict=True))
            await eventually(lambda: node.count("tile_mismatches_total") == wrong)
            sentence = "container 'main' was given ZE_AFFINITY_MASK=1 instead of ZE_AFFINITY_MASK=0"
            await eventually(lambda: node.events("a") == [("GPUEnvironmentMismatch", sentence)])
            assert sentence in [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
            assert node.count("mismatches_total") == 0
            assert "gas-allocated-cards" not in node.annotations("a")


class TestRestarts:
    async def test_the_plugin_comes_back_with_all_devices_and_its_pods(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with sandbox_node(*FLEX) as node:
            async with node.running_plugin():
                pod = node.create(placed("before", "card1"))
                assert await node.got(pod) == ["card1"]
            assert not list((node.kubelet_dir / "device-plugins").glob("gpu.intel.com*.sock"))
            await eventually(lambda: "i915" not in node.allocatable())
            with monkeypatch.context() as before_any_comparison:
                before_any_comparison.setattr(ReceiptWriter, "compare", lambda _writer: asyncio.sleep(0))
                async with node.running_plugin() as plugin:
                    holders = plugin.node.pods.holders("gpu.intel.com/i915", ids("card1-0"))
                    assert [(holder.pod.key, holder.is_certain) for holder in holders] == [("default/before", True)]
            async with node.running_plugin():
                await eventually(lambda: node.allocatable().get("i915") == "4")
                later = node.create(placed("later", "card2"))
                assert await node.got(later) == ["card2"]
                assert "gas-allocated-cards" not in node.annotations("before")

    async def test_kubelet_comes_back_and_the_plugin_registers_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        restarted: list[Matcher] = []
        monkeypatch.setattr(Matcher, "kubelet_restarted", lambda matcher: restarted.append(matcher))  # noqa: PLW0108
        async with sandbox_node(*FLEX) as node, node.running_plugin() as plugin:
            pod = node.create(placed("before", "card1"))
            assert await node.got(pod) == ["card1"]
            assert len({server.calls.last_end for server in plugin.registrations}) == 1  # all know of kubelet's calls
            await node.stop_kubelet()
            await eventually(lambda: plugin.readiness.why_not() is not None)
            await node.start_kubelet()
            await eventually(lambda: plugin.readiness.why_not() is None)
            await eventually(lambda: node.count("registrations_total", resource="i915") == 2)
            assert restarted == [plugin.node.pods] * 2
            later = node.create(placed("later", "card2"))
            assert await node.got(later) == ["card2"]
            assert await node.got(pod) == ["card1"]

    async def test_a_plugin_that_is_there_before_kubelet_waits_for_it(self) -> None:
        async with sandbox_node(*FLEX, kubelet=False) as node, node.running_plugin(watched=False) as plugin:
            await eventually(lambda: "kubelet has not started" in (plugin.readiness.why_not() or ""))
            assert node.count("ready") == 0
            await node.start_kubelet()
            await eventually(lambda: plugin.readiness.why_not() is None)
            assert (node.count("ready"), node.count("registered", resource="i915")) == (1, 1)

    async def test_the_one_that_stands_back_leaves_the_node_to_the_other_one(self) -> None:
        """The newer one has kubelet."""
        unlike = (*fake_gpus(FLEX_170, 1), *fake_gpus(MAX_1550_XE, 1, first=1))

        def capacity() -> str:
            return str(node.node()["metadata"].get("annotations", {}).get("gas-card-capacity", ""))

        def writes() -> float:
            return {name: value for name, _, value in old.node.samples()}["gas_plugin_node_writes_total"]

        flags = "--shared-dev-num=2", "--vocabularies=intel,vendor"  # of which the latter has no card here
        async with sandbox_node(*unlike) as node, node.running_plugin(*flags) as old:
            await eventually(lambda: "card0=i915:2," in capacity())
            async with node.running_plugin("--shared-dev-num=4"):
                states = {Phase.STANDING_BACK, Phase.NO_CARDS}
                await eventually(lambda: {each.state for each in old.registrations.values()} == states)
                await eventually(lambda: "GPUResourceOfAnotherPlugin" in dict(node.events(NODE)))
                await eventually(lambda: "card0=i915:4," in capacity())
                before = writes()
                # A change of the node, which the watch of the one that stands back shows as well.
                node.annotate_node({"gas-card-capacity": "nonsense"})
                await eventually(lambda: "card0=i915:4," in capacity())
                await asyncio.sleep(0.5)  # a writer that is not held writes at once
                assert writes() == before
            await eventually(lambda: "card0=i915:2," in capacity())

    async def test_pods_are_watched_as_long_as_kubelets_calls_are_served(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Otherwise the pod in the middle would wait for a watch that has ended, and then get any cards."""
        close = DeviceServer.close
        watched: list[bool] = []

        async def observed_close(server: DeviceServer) -> None:
            await close(server)
            watched.append(_is_running("Watch.run"))

        async with sandbox_node(*fake_gpus(FLEX_170, 1)) as node, node.running_plugin():
            assert _is_running("Watch.run")
            monkeypatch.setattr(DeviceServer, "close", observed_close)
        assert watched
        assert all(watched)
        assert not _is_running("Watch.run")


class TestWithoutTheCluster:
    async def test_devices_are_handed_out_while_the_api_server_is_away(self) -> None:
        async with sandbox_node(*FLEX) as node, node.running_plugin(api_url="http://127.0.0.1:9"):
            pod = node.create(placed("a", "card2"))
            assert len(await node.got(pod)) == 1
            assert node.count("allocations_total", resource="i915", outcome="unknown") == 1

    async def test_a_node_that_may_not_be_written_is_reported_with_the_missing_rule(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        def allowed(access: Access) -> bool:
            return not (
                access.user == "plugin" and access.resource in ("nodes/status", "pods") and access.verb == "patch"
            )

        async with sandbox_node(*FLEX) as node:
            node.server.settings.authorize = allowed
            async with node.running_plugin():
                pod = node.create(placed("a", "card2"))
                assert await node.got(pod) == ["card2"]
                await eventually(lambda: 'give its role the verb "patch" on resource "nodes/status"' in caplog.text)
                adopted = node.create(unplaced("b"))
                await node.got(adopted)
                await eventually(lambda: 'give its role the verb "patch" on resource "pods"' in caplog.text)


class TestTheNode:
    async def test_the_node_describes_its_cards(self) -> None:
        gpus = fake_gpus(MAX_1550_XE, 4, numa_nodes=2, per_board=2)
        async with sandbox_node(*gpus) as node:
            async with node.running_plugin("--shared-dev-num=5", environment=Environment(pci_grouping_level=3)):
                await soon(lambda: node.node()["metadata"]["labels"]["gpu.intel.com/numa-gpu-map"] == "0-0.1_1-2.3")
                await eventually(lambda: node.allocatable().get("tiles") == "8")
                said = node.node()
            assert said["metadata"]["labels"]["gpu.intel.com/gpu-numbers"] == "0.1.2.3"
            assert said["metadata"]["labels"]["gpu.intel.com/pci-groups"] == "0.1_2.3"
            assert node.allocatable().keys() >= {"millicores", "tiles", "memory.max"}
            records, problems = parse_card_records(said["metadata"]["annotations"]["gas-cards"])
            assert problems == ()
            assert [(each.card, each.pci_address, each.model) for each in records] == [
                (gpu.card, gpu.pci_address, "Data Center GPU Max 1550") for gpu in gpus
            ]

    async def test_links_that_another_program_writes_are_in_the_records_of_the_cards(self) -> None:
        def links() -> dict[int, list[int]]:
            records, problems = parse_card_records(node.node()["metadata"]["annotations"]["gas-cards"])
            assert problems == ()
            return {int(each.card): [int(card) for card in each.links] for each in records}

        def label(text: str | None) -> None:
            body = msgspec.json.encode({"metadata": {"labels": {"gpu.intel.com/xe-links": text}}})
            node.server.api.patch(NODES, None, NODE, (MERGE_PATCH, body))

        async with sandbox_node(*fake_gpus(MAX_1550_XE, 3, first=1)) as node, node.running_plugin():
            await soon(lambda: links() == {1: [], 2: [], 3: []})
            label("0.0-1.0_0.1-2.1_0.1-1.1")
            await soon(lambda: links() == {1: [2, 2, 3], 2: [1, 1], 3: [1]})
            label(None)
            await soon(lambda: links() == {1: [], 2: [], 3: []})

    async def test_fake_cards_are_reported_as_a_warning(self, caplog: pytest.LogCaptureFixture) -> None:
        async with sandbox_node(*FLEX) as node, node.running_plugin():
            assert "THE GPUS OF THIS NODE ARE FAKE" in caplog.text
            await eventually(lambda: [reason for reason, _ in node.events(NODE)] == ["FakeGPUs"])
            assert node.count("fake_gpus") == 1


def _is_running(function: str) -> bool:
    """Return whether a task of this function runs that was not cancelled."""
    return any(
        getattr(task.get_coro(), "__qualname__", "") == function and not task.cancelling()
        for task in asyncio.all_tasks()
    )
