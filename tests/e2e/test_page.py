"""The page in a real Chromium: what people see, with the mouse, the keyboard, a screen reader and on a phone."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import pytest

from gas.inspection import gather
from gas.inspection.connection import Where
from gas.inspection.page import view as views
from gas.inspection.page.program import show_page
from sandbox.api.kinds import NODES, PODS
from sandbox.api.server import ApiServer
from tests.doctor.sandbox_cluster import Beside, doctor_server, write_kubeconfig
from tests.e2e.browser import Browser, browser, chromium
from tests.inspection.example_cluster import (
    EXAMPLE_USE,
    GB,
    create_pod,
    example_nodes,
    example_pods,
    fill,
    gpu_node_json,
    record,
    running,
    waiting,
    with_real_uids,
)

if chromium() is None:
    pytest.skip("Chromium is not installed: run tests/e2e/set-up.sh as root on Debian", allow_module_level=True)

AXE = "axe-core@4.14.0"
LIVE = "document.getElementById('live').textContent === 'live'"
MEASURED = "document.getElementById('totals').textContent.includes('Memory used')"
VIEWS = (
    "#/map",
    "#/nodes",
    "#/pods",
    "#/waiting",
    "#/namespaces",
    "#/decisions",
    "#/node/gpu-1",
    "#/pod/default/train-0",
    "#/pod/default/big",
)
READY = {
    "#/map": "document.querySelector('canvas')",
    "#/decisions": "document.querySelector('main').textContent.includes('ecision')",
}
INSIDE = (
    "((x, y) => [...document.querySelector('canvas').getContext('2d').getImageData(x * devicePixelRatio,"
    " y * devicePixelRatio, 1, 1).data].slice(0, 3).join())"
)
"""Returns the colour of a point of the map."""

LONG = "x" * 253
HOSTILE = (
    "<img src=x onerror=\"document.title='taken'\">",
    "\u202egnp.exe \u05d0\u05d1 \u2066x",
    "\x1b]0;taken\x07\x1b[2J\x00",
    "javascript:document.title='taken'",
    "]]>--></textarea></script><script>document.title='taken'</script>",
)


class Shown(NamedTuple):
    tab: Browser
    url: str
    server: ApiServer

    async def view(self, name: str) -> None:
        """Show a view and wait until it is there."""
        await self.leave(name)
        until = READY.get(name, "document.querySelector('main table, main .way, main .numa')")
        await self.tab.until(f"location.hash === {name!r} && {until}")

    async def leave(self, name: str) -> None:
        """Go to another view, and wait until nothing of this one is shown."""
        await self.tab.value(
            f"location.hash === {name!r} || (document.querySelector('main > *').left = true, location.hash = {name!r})"
        )
        await self.tab.until("![...document.querySelectorAll('main > *')].some((each) => each.left)")

    async def search(self, text: str) -> None:
        await self.tab.value(
            f"(() => {{ const field = document.getElementById('search'); field.value = {text!r};"
            " field.dispatchEvent(new Event('input')); })()"
        )

    async def choose(self, resource: str) -> None:
        """Choose the resource that cards are coloured by."""
        await self.tab.value(
            "(() => { const field = document.querySelector('.tools select');"
            f" field.value = [...field.options].find((each) => each.text === {resource!r}).value;"
            " field.dispatchEvent(new Event('change')); })()"
        )

    async def shows(self, text: str) -> None:
        """Wait until the view shows a text."""
        await self.tab.until(f"document.querySelector('main').innerText.includes({json.dumps(text)})")

    async def text(self, selector: str = "main") -> str:
        return str(await self.tab.value(f"document.querySelector({selector!r}).innerText"))


@pytest.fixture
async def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Shown]:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setattr(gather, "USE_TIMEOUT", 60.0)  # use that comes late would make rows anew
    beside = Beside()
    server = doctor_server(beside)
    async with server:
        fill(server, example_nodes(), example_pods())
        beside.objects.update(with_real_uids(server, EXAMPLE_USE))
        kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", server.url)
        url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(show_page(Where(kubeconfig=str(kubeconfig)), 0, url.set_result))
        try:
            async with browser() as tab:
                await tab.size(1280, 800)
                await tab.open(await url)
                await tab.until(f"{LIVE} && document.querySelector('canvas')")
                yield Shown(tab, url.result(), server)
                assert tab.problems == []
                assert [each for each in tab.urls if not each.startswith((url.result(), "about:"))] == []
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)


async def test_the_map_leads_to_a_node_and_from_there_to_a_pod_with_the_mouse(page: Shown) -> None:
    await page.tab.until(MEASURED)
    box = await page.tab.value("(({x, y}) => [x, y])(document.querySelector('canvas').getBoundingClientRect())")
    x, y = box[0] + 20, box[1] + 60
    await page.tab.hover(x, y)
    await page.tab.until("!document.querySelector('.tip').hidden")
    tip = await page.text(".tip")
    assert "gpu-1 card0" in tip
    assert "memory.max: 12.0 of 16.0 GB booked" in tip
    assert "Data Center GPU Flex 170" in tip
    await page.tab.click(x, y)
    await page.tab.until("location.hash === '#/node/gpu-1' && document.querySelectorAll('.card a').length === 2")
    assert "NUMA node 0" in await page.text()
    link = "[...document.querySelectorAll('.card a')].find((a) => a.textContent === 'default/train-0')"
    await page.tab.until(link)
    await page.tab.value(f"{link}.click()")
    await page.shows("gas-container-cards=card0")


async def test_the_map_can_be_used_with_the_keyboard_and_a_screen_reader(page: Shown) -> None:
    await page.tab.value("document.querySelector('canvas').focus()")
    for key, heard in (
        ("ArrowRight", "gpu-1 card1: memory.max: 10.0 of 16.0 GB booked"),
        ("ArrowRight", "gpu-2 card0"),
        ("End", "gpu-10 card1"),
        ("Home", "gpu-1 card0"),
    ):
        await page.tab.press(key)
        await page.tab.until(f"document.getElementById('announcer').textContent.startsWith({heard!r})")
    await page.tab.press("Enter")
    await page.tab.until("location.hash === '#/node/gpu-1' && document.activeElement.id === 'main'")
    await page.tab.press("/")
    await page.tab.until("document.activeElement.id === 'search'")


async def test_everything_that_can_be_reached_has_a_name_and_every_view_fits_a_phone(page: Shown) -> None:
    for view in VIEWS:
        await page.view(view)
        tree = (await page.tab.call("Accessibility.getFullAXTree"))["nodes"]
        nameless = [
            node["role"]["value"]
            for node in tree
            if not node["ignored"]
            and any(each["name"] == "focusable" and each["value"].get("value") for each in node.get("properties", ()))
            and not node.get("name", {}).get("value")
            and node["role"]["value"] not in ("RootWebArea", "main", "generic", "MenuListPopup")
        ]
        assert nameless == [], view
    for dark in (False, True):
        await page.tab.size(390, 780, dark=dark)
        for view in VIEWS:
            await page.view(view)
            assert await page.tab.value("document.documentElement.scrollWidth - innerWidth") <= 0, view
        ground = await page.tab.value("getComputedStyle(document.body).backgroundColor")
        assert (sum(int(each) for each in ground[4:-1].split(",")) < 200) == dark


async def test_changes_arrive_without_reloading_and_without_making_everything_anew(page: Shown) -> None:
    await page.tab.until(MEASURED)  # use arrives later than bookings, and changes the rows
    await page.view("#/nodes")
    await page.tab.value("document.querySelector('tbody').children[1].mark = document.mark = 'kept'")
    create_pod(page.server, running("new", "gpu-10", "card1", i915=1, memory_max=8 * GB))
    create_pod(page.server, waiting("late", i915=1, memory_max=15 * GB))
    await page.tab.until("document.querySelector('tbody').children[2].textContent.includes('11.0/16.0 GB')")
    await page.tab.until("document.getElementById('waiting-count').textContent === '2'")
    assert await page.tab.value("document.querySelector('tbody').children[1].mark + document.mark") == "keptkept"
    await page.view("#/waiting")
    await page.tab.until("document.querySelectorAll('tbody tr').length === 2")
    page.server.api.delete(PODS, "default", "late", {"gracePeriodSeconds": 0})
    await page.tab.until("document.querySelectorAll('tbody tr').length === 1 && document.title === '(1) Waiting · gas'")
    await page.view("#/nodes")
    await page.search("arc")
    await page.tab.until("document.querySelectorAll('tbody tr').length === 1")
    await page.shows("gpu-10")
    await page.search("web")
    await page.tab.until("document.getElementById('hits').textContent === 'Pods: shop/web-7d '")
    await page.tab.value("document.querySelector('nav a:nth-of-type(3)').click()")
    await page.tab.until("location.hash === '#/pods?search=web' && document.querySelectorAll('tbody tr').length === 1")
    await page.shows("shop/web-7d")


async def test_the_address_has_filter_sort_and_search(page: Shown) -> None:
    await page.view("#/nodes")
    await page.choose("memory.max")
    await page.tab.value("document.querySelectorAll('th button')[3].click()")
    await page.tab.value("document.querySelectorAll('th button')[3].click()")
    await page.search("gpu-1")
    await page.tab.until("document.querySelectorAll('tbody tr').length === 2")
    found = await page.tab.value("location.href")
    assert found == f"{page.url}#/nodes?search=gpu-1&resource=memory.max&sort=-booked"
    await page.view("#/map")
    assert await page.tab.value("document.title") == "(1) Map · gas"
    await page.tab.open("about:blank")
    await page.tab.open(found)
    await page.tab.until("document.querySelectorAll('tbody tr').length === 2 && document.title === '(1) Nodes · gas'")
    names = "[...document.querySelectorAll('tbody tr')].map((each) => each.children[0].textContent).join()"
    assert await page.tab.value(names) == "gpu-1,gpu-10"
    assert await page.tab.value("document.querySelector('[aria-sort]').ariaSort") == "descending"
    await page.tab.value("document.querySelector('[aria-sort] button').click()")
    await page.tab.until(f"{names} === 'gpu-10,gpu-1'")


@pytest.mark.parametrize("view", ["nodes", "pods", "waiting", "namespaces"])
async def test_each_column_but_the_reason_sorts_a_table_and_shows_it(page: Shown, view: str) -> None:
    await page.view(f"#/{view}")
    count = await page.tab.value("document.querySelectorAll('th').length")
    plain = await page.tab.value(
        "[...document.querySelectorAll('th:not(:has(button))')].map((each) => each.textContent)"
    )
    assert plain == (["Reason"] if view == "waiting" else [])
    for at in range(count - len(plain)):
        await page.tab.value(f"document.querySelectorAll('th button')[{at}].click()")
        await page.tab.until(f"document.querySelectorAll('th button')[{at}].parentNode.ariaSort")
        assert await page.tab.value("document.querySelectorAll('[aria-sort]').length") == 1


async def test_tiles_lead_to_what_they_count(page: Shown) -> None:
    await page.tab.until(MEASURED)
    links = await page.tab.value(
        "[...document.querySelectorAll('#totals a')].map((each) => [each.ariaLabel, each.hash])"
    )
    assert links == [
        ["Nodes: 3", "#/nodes"],
        ["Cards: 6 1 idle", "#/nodes?only=idle"],
        ["memory.max booked: 48% 31 GB of 64 GB", "#/map?resource=memory.max&show=booked"],
        ["millicores booked: 36% 1.8 of 5 cards", "#/map?resource=millicores&show=booked"],
        ["Memory used: 37% 23 GB", "#/map?show=used"],
        ["Need attention: 1 node", "#/nodes?only=attention"],
        ["Need attention: 1 waiting pod", "#/waiting"],
    ]
    await page.view("#/nodes?only=attention")
    assert await page.tab.value("document.querySelectorAll('tbody tr').length") == 1
    await page.shows("gpu-2")
    await page.view("#/waiting")
    await page.shows("1 card with 1 i915 and 14.0 GB of memory.max")


async def test_a_line_in_a_tile_shows_the_last_hours(page: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "SAMPLE_INTERVAL", 0.0)
    await asyncio.sleep(3)
    await page.tab.open("about:blank")
    await page.tab.open(page.url)
    await page.tab.until(
        "[...document.querySelectorAll('.past')].some((each) => each.textContent.startsWith('48% for'))"
    )
    await page.tab.until("document.querySelectorAll('.past path').length === 3")


async def test_a_command_can_be_copied(page: Shown) -> None:
    for view, command in (
        ("#/node/gpu-2", "kubectl gas inspect gpu-2"),
        ("#/pod/default/big", "kubectl gas why big -n default"),
    ):
        await page.view(view)
        await page.tab.value("document.querySelector('.command button').click()")
        await page.tab.until(f"getSelection().toString() === {command!r}")
        await page.tab.until("['Copied', 'Selected'].includes(document.querySelector('.command button').textContent)")


async def test_rows_of_tables_are_stacked_on_a_phone(page: Shown) -> None:
    await page.tab.size(390, 780)
    for view in ("#/nodes", "#/pods", "#/waiting", "#/namespaces"):
        await page.view(view)
        rows = await page.tab.value("[...document.querySelectorAll('tbody tr')].map((each) => each.offsetHeight)")
        assert max(rows) < 250, view
        assert await page.tab.value("document.querySelector('th button').checkVisibility()")


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the script of axe, which checks pages for what keeps people with disabilities from using them."""
    if (npm := shutil.which("npm")) is None:
        pytest.skip("npm is not installed, which fetches axe")
    directory = tmp_path_factory.mktemp("axe")
    subprocess.run([npm, "pack", "--silent", AXE], cwd=directory, check=True, stdout=subprocess.DEVNULL)
    (archive,) = directory.glob("*.tgz")
    with tarfile.open(archive) as packed, packed.extractfile("package/axe.min.js") as script:  # type: ignore[union-attr]
        return script.read().decode()


async def test_axe_finds_nothing_in_any_view(page: Shown, axe: str) -> None:
    await page.tab.until(MEASURED)
    await page.tab.value(f"{axe}; 0")
    for width, dark in ((1280, False), (1280, True), (390, False), (390, True)):
        await page.tab.size(width, 800, dark=dark)
        for view in VIEWS:
            await page.view(view)
            found = await page.tab.value(
                "axe.run({resultTypes: ['violations']}).then(({violations}) => violations.map((each) =>"
                " `${each.impact} ${each.id}: ${each.nodes.map((node) => node.html).join(' ')}`))"
            )
            assert found == [], f"{view}, {width} pixels, {'dark' if dark else 'light'}"


async def test_a_list_that_takes_longer_than_the_next_change_arrives(
    page: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = views.View.pods

    async def late(view: views.View, *wanted: str) -> dict[str, object]:
        await asyncio.sleep(3)
        return await found(view, *wanted)

    monkeypatch.setattr(views.View, "pods", late)
    await page.leave("#/pods")
    for number in range(12):
        create_pod(page.server, waiting(f"late-{number}", i915=1))
        await asyncio.sleep(0.7)
    assert await page.tab.value("document.querySelectorAll('tbody tr').length") > 5


async def test_a_pod_that_waits_shows_the_suggestions_of_kubectl_gas(page: Shown) -> None:
    await page.view("#/pod/default/big")
    await page.tab.until("document.querySelectorAll('.suggestions li').length > 3")
    await page.shows("no card has 14.0 GB of memory.max free")
    await page.shows("nearest: gpu-2 card0 with 10.0 GB of memory.max")
    await page.shows("wait for the end of pod default/train-1 · fits on gpu-1 with card1")
    create_pod(page.server, waiting("small", i915=1, tiles=1))
    await page.tab.until("document.getElementById('waiting-count').textContent === '2'")
    await page.view("#/pod/default/small")
    await page.shows("asks for 1 card with 1 i915 and 1 tile\n")


async def test_a_card_whose_shares_are_all_taken_is_not_shown_as_free(page: Shown) -> None:
    page.server.api.create(NODES, None, gpu_node_json("full", record(0)))
    for at in range(10):
        create_pod(page.server, running(f"share-{at}", "full", "card0", i915=1))
    await page.search("full")
    await page.tab.until("document.querySelector('.tools').innerText.includes('1 of 4 nodes')")
    full = await page.tab.value(f"{INSIDE}(20, 45)")
    box = await page.tab.value("(({x, y}) => [x, y])(document.querySelector('canvas').getBoundingClientRect())")
    await page.tab.hover(box[0] + 20, box[1] + 45)
    await page.shows("i915: 10 of 10 booked, the fullest")
    await page.choose("memory.max")
    await page.tab.until(f"{INSIDE}(20, 45) !== {full!r}")
    await page.leave("#/nodes?search=full&resource=memory.max")
    await page.shows("0.0/16.0 GB")
    await page.choose("the fullest of each card")
    await page.shows("10/10")
    await page.shows("i915")


async def test_a_card_without_the_resource_is_not_shown_as_free(page: Shown) -> None:
    for name in ("plain-1", "plain-2"):  # four cards each, more than have memory
        node = gpu_node_json(name, *map(record, range(4)))
        for kind in ("capacity", "allocatable"):
            node["status"].get(kind, {}).pop("gpu.intel.com/memory.max", None)
        page.server.api.create(NODES, None, node)
    await page.tab.until("document.getElementById('totals').textContent.startsWith('Nodes5')")
    await page.leave("#/nodes")
    await page.leave("#/map")
    chosen = "document.querySelector('.tools select').selectedOptions[0].text"
    assert await page.tab.value(chosen) == "the fullest of each card"
    assert "has no" not in await page.text()
    await page.choose("memory.max")
    await page.shows("has no memory.max")
    ground = await page.tab.value(f"{INSIDE}(2, 2)")
    assert await page.tab.value(f"{INSIDE}(20, 45)") != ground  # a card of gpu-1
    await page.search("plain")
    await page.tab.until(f"{INSIDE}(20, 45) === {ground!r}")
    await page.leave("#/nodes?search=plain&resource=memory.max")
    await page.tab.until("document.querySelectorAll('tbody tr').length === 2")
    assert await page.tab.value("document.querySelector('tbody tr').children[3].textContent") == "\u2013"


async def test_texts_of_others_are_shown_as_text(page: Shown) -> None:
    node = gpu_node_json("n" * 63, *(record(at, model=text) for at, text in enumerate(HOSTILE)))
    node["status"]["nodeInfo"]["kernelVersion"] = LONG
    pod = waiting(LONG, i915=1, memory_max=99 * GB)
    pod["metadata"]["annotations"] = {"gas-card-order": HOSTILE[4]}
    broken = waiting("broken", i915=1)
    broken["metadata"]["annotations"] = {"gas-card-order": HOSTILE[0]}
    page.server.api.create(NODES, None, node)
    for each in (pod, broken):
        create_pod(page.server, each)
    await page.tab.until("document.getElementById('totals').textContent.startsWith('Nodes4')")
    await page.tab.until("document.getElementById('waiting-count').textContent === '3'")
    for view in (
        "#/map",
        "#/nodes",
        "#/waiting",
        f"#/node/{'n' * 63}",
        f"#/pod/default/{LONG}",
        "#/pod/default/broken",
    ):
        await page.view(view)
        await asyncio.sleep(0.3)
        assert (
            await page.tab.value("document.querySelectorAll('main img, main script, main b b, main iframe').length")
            == 0
        )
        assert "taken" not in str(await page.tab.value("document.title"))
        assert await page.tab.value("document.documentElement.scrollWidth - innerWidth") <= 0, view
    await page.view(f"#/node/{'n' * 63}")
    shown = await page.text()
    for text in (HOSTILE[0], HOSTILE[3], HOSTILE[4]):
        assert text in shown
    assert "\\u202egnp.exe \\u05d0\\u05d1 \\u2066x" in shown
    assert "\\x1b]0;taken\\x07\\x1b[2J" in shown
    assert LONG in shown
    assert not set(shown) & set("\u202e\u2066\u05d0\x1b\x07")


async def test_addresses_that_name_nothing_are_explained(page: Shown) -> None:
    for view in ("#/node/nothing", "#/pod/default/nothing", f"#/node/{quote(HOSTILE[0], safe='')}"):
        await page.leave(view)
        await page.tab.until("document.querySelector('main .reason')")
        await page.shows("expected")
        page.tab.problems.clear()  # the browser logs the status 404
    for view in ("#/%E0%A4%A", "#/node/%E0%A4%A", "#/pod/default", "#/nonsense"):
        await page.view("#/nodes")
        await page.leave(view)
        await page.shows("The page has no address #/")
    await page.leave("#/")
    await page.tab.until("document.querySelector('canvas')")


async def test_a_cluster_without_cards_and_pods_says_so(page: Shown) -> None:
    for pod in example_pods():
        metadata = pod["metadata"]
        page.server.api.delete(PODS, metadata["namespace"], metadata["name"], {"gracePeriodSeconds": 0})
    for name in ("gpu-1", "gpu-2", "gpu-10"):
        page.server.api.delete(NODES, None, name, {})
    await page.tab.until("document.getElementById('totals').textContent.startsWith('Nodes0')")
    await page.shows("No node has cards.")
    for view, text in (
        ("#/nodes", "No node has cards."),
        ("#/pods", "No pod asks for a GPU."),
        ("#/waiting", "No pod waits for a GPU."),
    ):
        await page.leave(view)
        await page.shows(text)


async def test_cards_that_pods_still_hold_are_on_the_map_when_all_plugins_have_gone(page: Shown) -> None:
    for name in ("gpu-1", "gpu-2", "gpu-10"):
        page.server.api.delete(NODES, None, name, {})
        page.server.api.create(NODES, None, {"metadata": {"name": name}})
    await page.tab.until("document.getElementById('totals').textContent.includes('Need attention3 nodes')")
    await page.tab.open("about:blank")
    await page.tab.open(page.url)
    await page.tab.until(f"{LIVE} && document.querySelector('canvas')")
    await page.tab.value("document.querySelector('canvas').focus()")
    await page.tab.press("ArrowRight")
    await page.tab.until("document.getElementById('announcer').textContent.startsWith('gpu-1 card1')")
    await page.view("#/node/gpu-1")
    await page.shows("gone")
