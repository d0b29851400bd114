"""Koordinator's rules, with the webhooks and without them, in the extender's own checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gas.objects.stored import NewPod
from gas.placement.need import PodNeed
from gas.values.amounts import MEMORY_MAX
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.known import KNOWN
from gas.vocabularies.pod_checks import PodChecks
from gas.vocabularies.protocol import BadNeed, NeedOptions
from gas.vocabularies.selection import parse_vocabularies
from tests.builders import container, pod_json
from tests.extender.admission.reviews import apply, as_json
from tests.other_words import asking, sharing

VOCABULARIES = Vocabularies(parse_vocabularies("intel,koordinator"))
CHECKS = PodChecks(VOCABULARIES, NeedOptions())
GIB = 2**30
SCHEDULING = "scheduling.koordinator.sh"
HINT = f"{SCHEDULING}/device-allocate-hint"

Cards = tuple[int, int, int, int]
"""Number of cards, and millicores, bytes and percent of memory of each."""


def new(document: Mapping[str, Any]) -> NewPod:
    return msgspec.convert(document, NewPod)


def completed(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pod as the webhook changes it, or as the API server keeps it if it changes nothing."""
    changed: dict[str, Any] = as_json(document)
    for operation in CHECKS.complete(new(document)):
        apply(changed, as_json(operation))
    return changed


def resources(document: Mapping[str, Any], field: str = "containers", index: int = 0) -> dict[str, dict[str, str]]:
    """Return the resources of a container, without the prefix."""
    stated = document["spec"][field][index]["resources"]
    return {
        each: {name.removeprefix("koordinator.sh/"): str(amount) for name, amount in amounts.items()}
        for each, amounts in stated.items()
    }


def cards_of(need: PodNeed, index: int = 0) -> Cards:
    wanted = need.containers[index]
    amounts = dict(wanted.per_card)
    (percent,) = [ratio.part for ratio in wanted.ratios] or [0]
    return wanted.count, amounts.get("millicores", 0), amounts.get(MEMORY_MAX, 0), percent


def read(document: Mapping[str, Any]) -> Cards | str:
    """Return what a pod of one container gets, or why it is refused."""
    try:
        return cards_of(VOCABULARIES.need(new(document), NeedOptions()))
    except BadNeed as bad:
        return str(bad)


def pod_of(**asked: Any) -> dict[str, Any]:
    return pod_json(sharing(**asked))


# contract O1.6 to O1.11, O1.18, O1.19
@pytest.mark.parametrize(
    ("asked", "cards"),
    [
        pytest.param({"ratio": 200}, (2, 0, 0, 100), id="200-percent-are-2-cards"),
        pytest.param({"ratio": 100}, (1, 0, 0, 100), id="100-percent-are-1-card"),
        pytest.param({"ratio": 50}, (1, 0, 0, 50), id="50-percent-are-a-part-of-1-card"),
        pytest.param({"ratio": 200, "core": 100}, (2, 500, 0, 100), id="the-percentage-decides-before-the-compute"),
        pytest.param({"memory": "4Gi"}, (1, 0, 4 * GIB, 0), id="memory-alone-is-1-card"),
        pytest.param({"memory": "4Gi", "core": 200}, (2, 1000, 2 * GIB, 0), id="compute-of-200-is-2-cards"),
        pytest.param({"memory": "4Gi", "core": 100}, (1, 1000, 4 * GIB, 0), id="compute-of-100-is-1-card"),
        pytest.param({"memory": "4Gi", "core": 50}, (1, 500, 4 * GIB, 0), id="other-compute-is-1-card"),
        pytest.param({"ratio": 100, "shared": 4}, (4, 0, 0, 25), id="an-existing-number-stays"),
        pytest.param({"gpu": 200}, (2, 1000, 0, 100), id="the-form-of-before"),
        pytest.param({"gpu": 50}, (1, 500, 0, 50), id="a-part-in-the-form-of-before"),
        pytest.param({"gpu": 150, "shared": 2}, (2, 750, 0, 75), id="the-form-of-before-with-a-number"),
        pytest.param({"memory": "1Gi", "shared": 1}, (1, 0, GIB, 0), id="memory-shared-and-compute-not"),
        pytest.param({"core": 50, "ratio": 100, "shared": 1}, (1, 500, 0, 100), id="compute-shared-and-memory-whole"),
        pytest.param({"core": 50, "memory": 5, "shared": 2}, (2, 250, 3, 0), id="bytes-are-rounded-up"),
        pytest.param({"core": 0, "ratio": 0, "memory": 8}, (1, 0, 8, 0), id="amounts-of-0-are-none"),
    ],
)
def test_pods_that_are_accepted(asked: dict[str, Any], cards: Cards) -> None:
    assert read(completed(pod_of(**asked))) == cards


NO_MEMORY = "is not enough, memory is mandatory; add koordinator.sh/gpu-memory or gpu-memory-ratio"


# contract O1.6, O1.7, O1.11, O1.13 to O1.17, O1.19, O1.22
@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (
            {"ratio": 75, "shared": 2, "core": 100},
            "koordinator.sh/gpu-memory-ratio: expected a multiple of gpu.shared, which is 2, found 75",
        ),
        (
            {"memory": 8, "shared": 2, "core": 101},
            "koordinator.sh/gpu-core: expected a multiple of gpu.shared, which is 2, found 101",
        ),
        (
            {"ratio": 150},
            "koordinator.sh/gpu-memory-ratio: expected at most 100 for each of 1 card(s), found 150; raise gpu.shared",
        ),
        (
            {"memory": 8, "core": 300, "shared": 2},
            "koordinator.sh/gpu-core: expected at most 100 for each of 2 card(s), found 300; raise gpu.shared",
        ),
        (
            {"gpu": 150},
            "koordinator.sh/gpu-core: expected at most 100 for each of 1 card(s), found 150; raise gpu.shared",
        ),
        (
            {"gpu": 100, "core": 50},
            "koordinator.sh/gpu states compute and memory already; remove it or koordinator.sh/gpu-core",
        ),
        ({"gpu": 0}, "koordinator.sh/gpu-memory-ratio: expected 1 or more, found 0; memory is mandatory"),
        (
            {"memory": 8, "ratio": 50},
            "koordinator.sh/gpu-memory and koordinator.sh/gpu-memory-ratio both state memory; use only one of them",
        ),
        ({"core": 100}, f"koordinator.sh/gpu-core {NO_MEMORY}"),
        ({"shared": 2}, f"koordinator.sh/gpu.shared {NO_MEMORY}"),
        ({"memory": 0, "shared": 1}, "koordinator.sh/gpu-memory: expected 1 or more, found 0; memory is mandatory"),
        ({"memory": 8, "shared": 0}, "koordinator.sh/gpu.shared: expected 1 card or more, found 0"),
    ],
)
def test_pods_that_are_refused_with_container_resource_and_rule(asked: dict[str, Any], sentence: str) -> None:
    findings = CHECKS.pod(new(completed(pod_of(**asked))))
    assert findings.refusals == (f"container 'main': {sentence}",)


# contract O1.16
@pytest.mark.parametrize(
    ("asked", "name"),
    [({"memory": 8}, "gpu-memory"), ({"ratio": 50, "core": 50}, "gpu-memory-ratio"), ({"gpu": 100}, "gpu")],
)
def test_without_the_webhook_a_pod_needs_its_number_of_cards(asked: dict[str, Any], name: str) -> None:
    rule = "needs koordinator.sh/gpu.shared, the number of cards, which the webhook adds; add it"
    assert read(pod_of(**asked)) == f"container 'main': koordinator.sh/{name} {rule}"
    assert not isinstance(read(pod_of(**asked, shared=1)), str)


# contract O1.13
@pytest.mark.parametrize("vendor", ["nvidia", "dcu"])
@pytest.mark.parametrize("together", [True, False])
def test_whole_cards_of_a_vendor_beside_shares_are_refused(vendor: str, *, together: bool) -> None:
    whole, part = asking("whole", **dict[str, Any]({vendor: 1})), sharing("part", memory=8, shared=1)
    if together:
        whole["resources"] = {
            each: {**whole["resources"][each], **part["resources"][each]} for each in ("requests", "limits")
        }
    document = pod_json(*((whole,) if together else (part, whole)))
    rule = "cannot be combined with resources under koordinator.sh/; use only one of them in the whole pod"
    assert read(completed(document)) == f"container 'whole': {vendor}.com/gpu {rule}"


# contract O1.10
def test_the_webhook_adds_nothing_to_whole_cards_of_a_vendor() -> None:
    checks = PodChecks(Vocabularies(parse_vocabularies("koordinator,vendor")), NeedOptions())
    document = new(pod_json(asking(nvidia=2)))
    assert checks.complete(document) == ()
    assert checks.pod(document).refusals == ()


# contract O1.7, O1.12
@pytest.mark.parametrize("field", ["requests", "limits"])
def test_requests_and_limits_are_both_set_and_a_complete_pod_is_not_changed(field: str) -> None:
    document = pod_of(ratio=200, core=100)
    stated = document["spec"]["containers"][0]["resources"]
    stated |= {field: stated[field] | {"cpu": "1"}}
    if field == "requests":
        del stated["limits"]
    after = completed(document)
    whole = {"gpu-memory-ratio": "200", "gpu-core": "100", "gpu.shared": "2"}
    other = {"limits": "requests", "requests": "limits"}[field]
    assert resources(after) == {field: whole | {"cpu": "1"}, other: whole}
    assert CHECKS.complete(new(after)) == ()


# contract O1.30
@pytest.mark.parametrize("selector", [None, {"a": "b"}, {"koordinator.sh/gpu-isolation-provider": "own"}])
def test_a_pod_that_chooses_its_isolation_is_kept_to_the_nodes_that_have_it(selector: dict[str, str] | None) -> None:
    isolation = {"koordinator.sh/gpu-isolation-provider": "HAMi-core"}
    document = pod_of(memory=8, shared=1)
    document["metadata"]["labels"] = isolation
    document["spec"] |= {"nodeSelector": selector} if selector else {}
    after = completed(document)
    assert after["spec"]["nodeSelector"] == isolation | (selector or {})
    assert CHECKS.complete(new(after)) == ()


# contract O1.11, O1.12
def test_the_form_of_before_is_replaced() -> None:
    after = completed(pod_of(gpu="0.2k"))
    whole = {"gpu-memory-ratio": "200", "gpu-core": "200", "gpu.shared": "2"}
    assert resources(after) == {"requests": whole, "limits": whole}
    assert CHECKS.complete(new(after)) == ()


# contract O1.23
def test_init_containers_follow_the_same_rules() -> None:
    document = pod_json(sharing(memory=8), init=(sharing("first", ratio=200), sharing("side", always=True, ratio=150)))
    after = completed(document)
    assert resources(after, "initContainers")["limits"]["gpu.shared"] == "2"
    sentence = (
        "koordinator.sh/gpu-memory-ratio: expected at most 100 for each of 1 card(s), found 150; raise gpu.shared"
    )
    assert read(after) == f"container 'side': {sentence}"


def test_amounts_that_cannot_be_read_are_left_to_the_check() -> None:
    document = pod_json(sharing("a", memory="much"), sharing("b", ratio=50))
    after = completed(document)
    assert "gpu.shared" not in resources(after)["requests"]
    assert resources(after, index=1)["requests"]["gpu.shared"] == "1"
    assert str(read(after)).startswith("container 'a', 'koordinator.sh/gpu-memory': expected a quantity")


def test_pods_of_other_words_are_not_changed() -> None:
    assert CHECKS.complete(new(pod_json(container(i915=1)))) == ()
    assert CHECKS.complete(new(pod_json(container()))) == ()


def test_a_pod_with_too_many_containers_is_not_completed() -> None:
    document = pod_of(gpu="1")
    document["spec"]["containers"] += [container(f"c{number}") for number in range(499)]
    assert CHECKS.complete(new(document))
    document["spec"]["containers"].append(container("last"))
    assert CHECKS.complete(new(document)) == ()


def test_limits_that_are_not_the_requests_are_left_to_the_api_server() -> None:
    unlike = sharing(core=50, ratio=50, shared=1)
    unlike["resources"] = {
        "requests": unlike["resources"]["requests"],
        "limits": sharing(core=60, ratio=50, shared=1)["resources"]["limits"],
    }
    assert CHECKS.complete(new(pod_json(unlike))) == ()


def test_a_sum_that_kubernetes_cannot_count_is_refused() -> None:
    most = pod_json(sharing(memory=2**63 - 1, shared=1), container("plain"))
    assert isinstance(read_need(new(most)), PodNeed)
    half = sharing(memory=2**62, shared=1)
    assert str(read(pod_json(half, {**half, "name": "b"}))).startswith("the pod's containers ask for more than 2^63-1")


def test_only_the_first_misspelt_resources_are_compared_with_all_known_ones() -> None:
    requests = {f"koordinator.sh/gpu-memmory{at}": "5" for at in range(21)}
    faults = CHECKS.pod(new(pod_json({"name": "main", "resources": {"requests": requests}}))).faults
    assert ["did you mean" in each for each in faults] == [True] * 20 + [False]
    assert "; known: koordinator.sh/" in faults[-1]


def test_a_misspelt_resource_is_a_fault_with_the_one_that_is_meant() -> None:
    document = new(pod_json({"name": "main", "resources": {"requests": {"koordinator.sh/gpu-memmory": "5"}}}))
    (fault,) = CHECKS.pod(document).refusals
    assert fault == (
        "container 'main' asks for 'koordinator.sh/gpu-memmory', which no node has; did you mean"
        " koordinator.sh/gpu-memory?"
    )


# contract O1.30
@pytest.mark.parametrize("words", ["koordinator", "vendor"])
@pytest.mark.parametrize(
    ("metadata", "requests", "warnings"),
    [
        ({"annotations": {f"{SCHEDULING}/device-joint-allocate": "{}"}}, {}, [f"{SCHEDULING}/device-joint-allocate"]),
        ({"annotations": {HINT: '{"rdma":{},"gpu":{"vfSelector":{}}}'}}, {}, ["'rdma' in", "vfSelector in"]),
        (
            {"annotations": {HINT: '{"gpu":{"allocateStrategy":"ApplyForAll","exclusivePolicy":"PCIeLevel"}}'}},
            {},
            ["allocateStrategy in", "exclusivePolicy 'PCIeLevel' in"],
        ),
        ({"annotations": {HINT: '{"gpu":{"requiredTopologyScope":"NUMANode"}}'}}, {}, []),
        (
            {"labels": {"koordinator.sh/gpu-isolation-provider": "hami"}},
            {},
            ["gpu-isolation-provider with another value than HAMi-core has no effect"],
        ),
        ({"labels": {"koordinator.sh/gpu-isolation-provider": "HAMi-core"}}, {}, []),
        ({"labels": {"quota.scheduling.koordinator.sh/name": "team"}}, {}, ["which only koord-scheduler reads"]),
        ({}, {"koordinator.sh/rdma": "1"}, ["koordinator.sh/rdma is not given by gas"]),
    ],
)
def test_each_word_without_effect_is_a_warning(
    words: str, metadata: dict[str, Any], requests: dict[str, str], warnings: list[str]
) -> None:
    document = pod_json(asking(nvidia=1) if words == "vendor" else sharing(memory="8Mi", shared=1))
    document["metadata"] |= metadata
    document["spec"]["containers"][0]["resources"]["requests"] |= requests
    checks = PodChecks(Vocabularies(parse_vocabularies("koordinator,vendor")), NeedOptions())
    found = checks.pod(new(document)).warnings
    assert len(found) == len(warnings)
    assert all(part in sentence for part, sentence in zip(warnings, found, strict=True))


def test_koord_scheduler_reads_the_label_of_a_quota() -> None:
    document = pod_of(memory="8Mi", shared=1)
    document["metadata"]["labels"] = {"quota.scheduling.koordinator.sh/name": "team"}
    document["spec"]["schedulerName"] = "koord-scheduler"
    assert CHECKS.pod(new(document)).warnings == ()


# contract O1.27
@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        ([{"ratio": 75, "shared": 2}, {"ratio": 75, "shared": 1}], [(2, 0, 0, 50), (1, 0, 0, 50)]),
        ([{"memory": 9, "core": 30, "shared": 1}, {"core": 10, "shared": 1}], [(1, 200, 5, 0), (1, 200, 5, 0)]),
        ([{"gpu": 50, "shared": 1}, {"ratio": 50, "shared": 1}], [(1, 250, 0, 50), (1, 250, 0, 50)]),
        (
            [{"memory": 9, "shared": 1}, {"ratio": 50, "shared": 1}],
            "container 'c0' and 1 more together: koordinator.sh/gpu-memory and koordinator.sh/gpu-memory-ratio",
        ),
        (
            [{"memory": 9, "core": 25, "shared": 1}, {"memory": 9, "shared": 1}],
            "container 'c0' and 1 more together: koordinator.sh/gpu-core: expected a multiple of gpu.shared",
        ),
        ([{"memory": 9, "shared": 1}, {"memory": 9}], "container 'c1': koordinator.sh/gpu-memory needs koordinator"),
        (
            [{"memory": 9, "shared": 1}, {"memory": 9, "shared": 0}],
            "container 'c1': koordinator.sh/gpu.shared: expected",
        ),
    ],
)
def test_the_rules_are_about_what_the_app_containers_request_together(
    containers: list[dict[str, Any]], expected: list[Cards] | str
) -> None:
    document = new(pod_json(*(sharing(f"c{at}", **asked) for at, asked in enumerate(containers))))
    if isinstance(expected, str):
        assert str(read_need(document)).startswith(expected)
        return
    need = VOCABULARIES.need(document, NeedOptions())
    assert [cards_of(need, at) for at in range(len(containers))] == expected
    assert need.apart == set(range(len(containers)))


def read_need(pod: NewPod) -> PodNeed | BadNeed:
    try:
        return VOCABULARIES.need(pod, NeedOptions())
    except BadNeed as bad:
        return bad


def oracle(asked: Mapping[str, int], *, webhook: bool) -> Cards | None:
    """Return what the contract gives a container, None if it refuses it: written from the text alone."""
    core, memory, ratio, shared = (asked.get(each, 0) for each in ("core", "memory", "ratio", "shared"))
    if "gpu" in asked:
        if asked.keys() & {"core", "memory", "ratio"}:
            return None
        core = ratio = asked["gpu"]
    if (memory > 0) == (ratio > 0):
        return None
    if "shared" not in asked:
        if not webhook:
            return None
        deciding = ratio if ratio else core
        shared = deciding // 100 if deciding and deciding % 100 == 0 else 1
    if shared == 0 or core % shared or ratio % shared or core / shared > 100 or ratio / shared > 100:
        return None
    return shared, core // shared * 10, -(-memory // shared), ratio // shared


PERCENT = st.sampled_from((0, 1, 33, 50, 75, 99, 100, 101, 150, 200, 300)) | st.integers(0, 500)
ASKED = st.fixed_dictionaries(
    {},
    optional={
        "gpu": PERCENT,
        "core": PERCENT,
        "ratio": PERCENT,
        "memory": st.sampled_from((0, 1, 7, 4 * GIB)),
        "shared": st.integers(0, 4),
    },
).filter(bool)


# contract O1.6 to O1.9, O1.11, O1.12, O1.14 to O1.17
@given(ASKED, st.sampled_from(("both", "requests", "limits")), st.booleans())
@example({"core": 200, "memory": 1}, "both", False)
@example({"gpu": 200, "shared": 4}, "limits", True)
def test_the_rules_are_those_of_the_contract_with_the_webhook_and_without(
    asked: dict[str, Any], stated: str, init: bool
) -> None:
    shares = sharing("main", **asked)
    if stated == "limits":  # the API server copies them to the requests before it calls a webhook
        shares["resources"]["requests"] = dict(shares["resources"]["limits"])
    elif stated == "requests":
        del shares["resources"]["limits"]
    first = (shares,) if init else ()
    document = pod_json(container("app"), init=first) if init else pod_json(shares)
    off, on = read(document), completed(document)
    expected = oracle(asked, webhook=False)
    assert off == expected if expected is not None else isinstance(off, str)
    expected_on = oracle(asked, webhook=True)
    assert read(on) == expected_on if expected_on is not None else isinstance(read(on), str)
    assert CHECKS.complete(new(on)) == ()
    if not isinstance(off, str):
        assert off == read(on)
    after = resources(on, "initContainers" if init else "containers")
    assert after["requests"] == after["limits"]
    if "shared" in asked:
        assert after["limits"]["gpu.shared"] == str(asked["shared"])


@given(ASKED, st.text(max_size=60))
def test_every_sentence_is_short_enough_for_an_event(asked: dict[str, Any], name: str) -> None:
    large = {each: amount * 10**15 + 1 if amount else 0 for each, amount in asked.items()}
    for wanted in (asked, large):
        result = read(pod_json(sharing(name, **wanted)))
        assert not isinstance(result, str) or len(result) <= 200


def test_every_vocabulary_may_be_switched_on_beside_it() -> None:
    assert "koordinator" in [each.name for each in KNOWN]
    assert Vocabularies(KNOWN).need(new(pod_of(memory=8, shared=1)), NeedOptions()).wants_cards
