"""The scheduler's requests to the extender, and failures of the extender."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox.api.client import ApiClient
from sandbox.certificates import Authority
from sandbox.scheduler.extender_client import ExtenderAddress, ExtenderFailed, Filtered, connected
from tests.sandbox.objects import pod
from tests.sandbox.scheduler.scripted_extender import ScriptedExtender, serving


@pytest.fixture
def scripted(client: ApiClient) -> ScriptedExtender:
    return ScriptedExtender(client)


@pytest.fixture
async def address(scripted: ScriptedExtender, tmp_path: Path) -> AsyncIterator[ExtenderAddress]:
    async with serving(scripted, tmp_path, ignorable=False) as address:
        yield address


async def _filter(address: ExtenderAddress) -> Filtered:
    async with connected(address) as extender:
        return await extender.filter(pod("p"), ["a", "b"])


async def test_filter_returns_passing_nodes_and_reasons_for_the_others(
    scripted: ScriptedExtender, address: ExtenderAddress
) -> None:
    scripted.refuse = lambda _pod, node: "card0 is disabled" if node == "b" else None
    assert await _filter(address) == Filtered(frozenset("a"), {"b": "card0 is disabled"})


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        pytest.param({"url": "https://127.0.0.1:1"}, "failed filter with extender at URL", id="connection-refused"),
        pytest.param({"path": "/nothing-here"}, "code 404", id="status-404"),
        pytest.param({"error": "not the leader"}, "not the leader", id="its-own-error"),
        pytest.param({"error": 5}, "cannot be decoded", id="response-of-another-form"),
        pytest.param({"other-authority": True}, "CERTIFICATE_VERIFY_FAILED", id="a-server-of-another-authority"),
    ],
)
async def test_unusable_responses_are_failures(
    scripted: ScriptedExtender, address: ExtenderAddress, tmp_path: Path, change: dict[str, Any], sentence: str
) -> None:
    if "url" in change:
        address = replace(address, url=change["url"])
    if "path" in change:
        address = replace(address, url=address.url + change["path"])
    if "other-authority" in change:
        address = replace(address, authority=Authority(tmp_path, "other-authority").certificate)
    scripted.filter_error = change.get("error", "")
    with pytest.raises(ExtenderFailed, match=sentence):
        await _filter(address)


@pytest.mark.parametrize(
    ("value", "asked"),
    [
        pytest.param(pod("p"), True, id="a-container-asks"),
        pytest.param(pod("p", cards=0), False, id="no-container-asks"),
        pytest.param(
            pod("p", cards=0, initContainers=pod("i")["spec"]["containers"]), True, id="an-init-container-asks"
        ),
    ],
)
async def test_the_extender_manages_pods_that_request_a_managed_resource(
    address: ExtenderAddress, value: dict[str, Any], asked: bool
) -> None:
    async with connected(address) as extender:
        assert extender.manages(value) is asked
