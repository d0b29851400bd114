from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from gas.extender.admission.app import LARGEST_REVIEW
from gas.extender.admission.review import ALLOWED, BadReview, ReviewResult, decode_review, encode_result
from gas.extender.pod_webhooks.reviews import TEMPLATES, PodReviews
from gas.objects.stored import Node
from gas.placement.choice import Choice
from gas.placement.need import PodNeed
from gas.placement.place import place
from gas.placement.refusal import Refusal
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.intel.vocabulary import INTEL
from gas.vocabularies.known import DEFAULT
from gas.vocabularies.koordinator.vocabulary import KOORDINATOR
from gas.vocabularies.pod_checks import PodChecks, counted
from gas.vocabularies.protocol import NeedOptions, NodeFacts
from tests.builders import container, described_node, node, pod_json, requesting
from tests.extender.admission.reviews import patched, review, review_json
from tests.lines import at_most

BOTH = pod_json(container(i915=1, xe=1))
GPU = pod_json(container(i915=1))
PLAIN = pod_json(container(), annotations={"gas-same-gpu": "nonsense"})
REFUSED = (
    "container 'main' asks for both gpu.intel.com/i915 and gpu.intel.com/xe; use only one of them in the whole pod"
)
NO_CARD = (
    "container 'main' asks for 'gpu.intel.com/millicores' but for no card; add gpu.intel.com/i915 or gpu.intel.com/xe"
    " to the container, or remove the request"
)
UNKNOWN = "annotation 'gas-alow' is not known and has no effect; did you mean gas-allow?"
MOST_LINES = 1_000_000
NEVER = "no node of the cluster could run the pod now, even without other pods: "


def reviews(scheduler_name: str | None = None, nodes: Sequence[NodeFacts] | None = None) -> PodReviews:
    checks = PodChecks(DEFAULT, NeedOptions(), scheduler_name)
    return PodReviews(checks, nodes=lambda: None if nodes is None else counted(nodes))


async def test_a_need_that_no_node_can_have_is_refused() -> None:
    assert await reviews().validate(review(BOTH)) == ReviewResult(refusal=REFUSED)


async def test_amounts_without_a_card_are_refused_with_all_faults_and_warnings() -> None:
    both = pod_json(container("a", i915=1, xe=1), container(millicores=1), annotations={"gas-alow": "card0"})
    refusal = f"{REFUSED.replace('main', 'a')}; {NO_CARD}"
    assert await reviews().validate(review(both)) == ReviewResult(refusal=refusal, warnings=(UNKNOWN,))


async def test_a_gpu_pod_that_no_node_could_hold_is_created_with_a_warning() -> None:
    small = DEFAULT.facts(node(cards=1))
    large = pod_json(container(i915=1, memory_max="9G"))
    warning = f"{NEVER}no card has 9.0 GB of memory.max free (2 nodes)"
    assert await reviews(nodes=[small, small]).validate(review(large)) == ReviewResult(warnings=(warning,))
    assert await reviews(nodes=[small]).validate(review(GPU)) == ALLOWED
    assert await reviews(nodes=None).validate(review(large)) == ALLOWED


@pytest.mark.parametrize("resource", ["aliyun.com/gpu-mem", "nvidia.com/gpu"])
async def test_a_pod_of_a_vocabulary_that_is_switched_off_is_allowed_unchanged(resource: str) -> None:
    other = pod_json({"name": "a", "resources": {"requests": {resource: "1"}}}, annotations={"gas-same-gpus": "a"})
    webhooks = reviews("gas-scheduler", nodes=[])
    assert await webhooks.validate(review(other)) == ALLOWED
    assert await webhooks.complete(review(other)) == ALLOWED


async def test_a_pod_that_names_its_node_is_not_scheduled_so_it_is_only_warned_of() -> None:
    named = pod_json(container(i915=1, xe=1), node="n1")
    assert await reviews().validate(review(named)) == ReviewResult(warnings=(REFUSED,))


async def test_a_flood_of_warnings_is_cut() -> None:
    many = pod_json(container(i915=1), annotations={f"gas-{number:02}-x": "" for number in range(20)})
    result = await reviews().validate(review(many))
    assert len(result.warnings) == 10
    assert result.warnings[-1] == "and 11 more"


async def test_a_flood_of_faults_is_cut() -> None:
    many = pod_json(*(container(f"c{number}", millicores=1) for number in range(30)))
    result = await reviews().validate(review(many))
    assert result.refusal.count("but for no card") == 9
    assert result.refusal.endswith("; and 21 more")


TOO_LARGE: list[Any] = [
    pytest.param(
        lambda count: pod_json(container(i915=1), *(container(f"c{number}") for number in range(count - 1))),
        500,
        "the pod has 501 containers, expected at most 500; use several pods",
        id="containers",
    ),
    pytest.param(
        lambda count: pod_json(container(i915=1), annotations={f"example.com/{number}": "" for number in range(count)}),
        10_000,
        "the pod has 10001 annotations, expected at most 10000; remove some",
        id="annotations",
    ),
]


@pytest.mark.parametrize(("made", "most", "sentence"), TOO_LARGE)
async def test_a_pod_with_more_of_something_than_any_real_one_is_refused(
    made: Callable[[int], dict[str, Any]], most: int, sentence: str
) -> None:
    webhook = reviews(nodes=[DEFAULT.facts(node(cards=""))]).validate
    assert not (await webhook(review(made(most)))).refusal
    assert await webhook(review(made(most + 1))) == ReviewResult(refusal=sentence)


@pytest.mark.parametrize(("made", "most", "sentence"), TOO_LARGE)
async def test_changes_and_templates_of_such_a_pod_are_warned_of(
    made: Callable[[int], dict[str, Any]], most: int, sentence: str
) -> None:
    large, warned = made(most + 1), ReviewResult(warnings=(sentence,))
    template = workload("apps/deployments", large)
    of_template = ReviewResult(warnings=(f"pods of this template will be refused: {sentence}",))
    both: dict[str, Any] = {"operation": "UPDATE", **of("apps/deployments")}
    webhook = reviews().validate
    assert await webhook(review(large, namespace="kube-system")) == warned
    assert await webhook(review(large, old=GPU, operation="UPDATE")) == warned
    assert await webhook(review(GPU, old=large, operation="UPDATE")) == ALLOWED
    assert await webhook(review(template, **of("apps/deployments"))) == of_template
    assert await webhook(review(template, old=workload("apps/deployments", GPU), **both)) == of_template
    assert await webhook(review(workload("apps/deployments", GPU), old=template, **both)) == ALLOWED


async def test_a_large_pod_without_gpus_is_allowed() -> None:
    assert await reviews().validate(review(pod_json(*(container(f"c{number}") for number in range(501))))) == ALLOWED


NAMES = ",".join(f"a{number}" for number in range(900_000))


def of_resources(count: int) -> dict[str, Any]:
    """Return a pod whose container requests so many resources beside a card."""
    requests = {"gpu.intel.com/i915": 1, **{f"gpu.intel.com/r{number}": 1 for number in range(count)}}
    return pod_json({"name": "main", "resources": {"requests": requests}})


@pytest.mark.parametrize(
    ("huge", "refusal"),
    [
        pytest.param(
            of_resources(32_000),
            "container 'main': expected requests of at most 32 resources, found 32001; remove some",
            id="resources",
        ),
        pytest.param(
            of_resources(250_000),
            "container 'main': expected requests of at most 32 resources, found 250001; remove some",
            id="8-MB-of-resources",
        ),
        pytest.param(
            pod_json(container(i915=1), annotations={"gas-allow": NAMES}),
            f"gas-allow: expected at most 32768 characters, found {len(NAMES)}; shorten it",
            id="names",
        ),
        pytest.param(
            pod_json(container(i915=1), annotations={"gas-allow": "a," * 3_900_000}),
            "gas-allow: expected at most 32768 characters, found 7800000; shorten it",
            id="short-names",
        ),
        pytest.param(
            pod_json(container(i915=1), annotations={"gas-same-gpu": NAMES}),
            f"gas-same-gpu: expected at most 32768 characters, found {len(NAMES)}; shorten it",
            id="containers",
        ),
    ],
)
async def test_a_huge_review_takes_a_short_time(huge: dict[str, Any], refusal: str) -> None:
    body = json.dumps(review_json(huge)).encode()
    assert len(body) <= LARGEST_REVIEW
    checks = PodChecks(Vocabularies([INTEL]), NeedOptions(allowlist=True), None)
    served = PodReviews(checks, nodes=lambda: counted([DEFAULT.facts(node(cards=1))]))
    with at_most(MOST_LINES):
        result = await served.validate(decode_review(body))
    assert result.refusal == refusal


async def test_the_largest_pod_that_is_searched_for_takes_a_short_time() -> None:
    half: list[dict[str, Any]] = [{f"r{number}": 1 for number in range(31)} for _ in range(15)]
    largest = pod_json(
        container(),
        init=(
            *(container(f"s{number}", always=True, i915=1, **each) for number, each in enumerate(half)),
            *(container(f"i{number}", i915=1, **each) for number, each in enumerate(half)),
        ),
    )
    asked = review(largest)
    with at_most(MOST_LINES):
        result = await reviews(nodes=[DEFAULT.facts(node(cards=8))]).validate(asked)
    assert result.warnings[0].startswith(NEVER)


async def test_nodes_are_searched_again_only_if_they_have_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[PodNeed] = []

    def asking(need: PodNeed, *more: Any, **options: Any) -> Choice | Refusal:
        asked.append(need)
        return place(need, *more, **options)

    monkeypatch.setattr("gas.vocabularies.pod_checks.place", asking)
    nodes = [DEFAULT.facts(node(cards=1))]
    webhook = PodReviews(PodChecks(DEFAULT, NeedOptions()), nodes=lambda: counted(nodes)).validate
    large = review(pod_json(container(i915=2)))
    for number in (1, 2):
        assert (await webhook(large)).warnings[0].endswith("(1 node)"), number
    assert len(asked) == 1
    nodes.append(DEFAULT.facts(node(cards=2)))
    assert await webhook(large) == ALLOWED


async def test_the_search_for_a_node_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gas.extender.pod_webhooks.reviews.CLUSTER_TIMEOUT", 0.0)
    different = [DEFAULT.facts(node(cards=1)) for _ in range(20)]
    assert await reviews(nodes=different).validate(review(pod_json(container(i915=2)))) == ALLOWED


@pytest.mark.parametrize("new", [GPU, PLAIN], ids=["gpu", "no-gpu"])
async def test_other_pods_are_allowed(new: dict[str, Any]) -> None:
    assert await reviews().validate(review(new)) == ALLOWED


async def test_pods_of_the_system_can_always_be_created() -> None:
    assert await reviews().validate(review(BOTH, namespace="kube-system")) == ReviewResult(warnings=(REFUSED,))
    assert await reviews("gas-scheduler").complete(review(GPU, namespace="kube-system")) == ALLOWED


async def test_a_static_pod_can_always_be_created() -> None:
    mirror = pod_json(container(i915=1, xe=1), annotations={"kubernetes.io/config.mirror": "x"})
    assert await reviews().validate(review(mirror)) == ReviewResult(warnings=(REFUSED,))


@pytest.mark.parametrize(
    "other",
    [
        {"operation": "DELETE"},
        {"operation": "CONNECT", "subresource": "exec"},
        {"subresource": "binding"},
        {"subresource": "eviction"},
        {"resource": "services"},
        {"resource": "pods", "group": "metrics.k8s.io"},
    ],
)
async def test_reviews_without_a_rule_are_allowed_unread(other: dict[str, str]) -> None:
    assert await reviews().validate(review(5, **other)) == ALLOWED
    assert await reviews("gas-scheduler").complete(review(5, **other)) == ALLOWED


async def test_a_pod_that_cannot_be_read_is_a_bad_review() -> None:
    with pytest.raises(BadReview):
        await reviews().validate(review({"spec": []}))
    with pytest.raises(BadReview):
        await reviews().complete(review({"spec": []}))


@pytest.mark.parametrize(
    ("new", "present", "after"),
    [
        pytest.param(GPU, None, "gas-scheduler", id="none"),
        pytest.param(GPU, "default-scheduler", "gas-scheduler", id="default"),
        pytest.param(GPU, "other", "other", id="chosen-by-the-user"),
        pytest.param(GPU, "gas-scheduler", "gas-scheduler", id="complete"),
        pytest.param(PLAIN, "default-scheduler", "default-scheduler", id="no-gpu"),
        pytest.param(pod_json(container(i915=1), node="n1"), "default-scheduler", "default-scheduler", id="has-node"),
    ],
)
async def test_the_scheduler_of_gpu_pods_is_completed(new: dict[str, Any], present: str | None, after: str) -> None:
    pod = json.loads(json.dumps(new))
    if present is not None:
        pod["spec"]["schedulerName"] = present
    webhook = reviews("gas-scheduler").complete
    once = changed(pod, await webhook(review(pod)))
    assert once["spec"]["schedulerName"] == after
    assert await webhook(review(once)) == ALLOWED


async def test_without_the_flag_the_scheduler_stays() -> None:
    assert "schedulerName" not in changed(GPU, await reviews().complete(review(GPU)))["spec"]


@pytest.mark.parametrize("is_forged", [False, True], ids=["new", "forged"])
@pytest.mark.parametrize(
    ("new", "is_marked"),
    [
        pytest.param(GPU, True, id="no-fault"),
        pytest.param(pod_json(container(i915=1), annotations={"gas-allow": "card0"}), True, id="with-annotations"),
        pytest.param(pod_json(requesting({"koordinator.sh/gpu": 50})), True, id="no-fault-once-completed"),
        pytest.param(BOTH, False, id="fault"),
        pytest.param(pod_json(container(i915=1), annotations={"gas-alow": "card0"}), False, id="warning"),
        pytest.param(pod_json(container(i915=9)), False, id="warning-of-the-nodes"),
        pytest.param(PLAIN, False, id="no-gpu"),
    ],
)
async def test_only_pods_without_fault_are_marked_as_checked(
    new: dict[str, Any], *, is_marked: bool, is_forged: bool
) -> None:
    both = Vocabularies([INTEL, KOORDINATOR])
    shares = {f"koordinator.sh/gpu{each}": 100 for each in (".shared", "-core", "-memory-ratio", "-memory")}
    nodes = [both.facts(node(cards=1)), both.facts(msgspec.convert(described_node("n2", shares), Node))]
    webhook = PodReviews(PodChecks(both, NeedOptions(allowlist=True)), nodes=lambda: counted(nodes)).complete
    mark, others = {"gas-checked": "true"}, new["metadata"].get("annotations") or {}
    pod = {**new, "metadata": {**new["metadata"], "annotations": others | mark}} if is_forged else new
    once = changed(pod, await webhook(review(pod)))
    assert (once["metadata"].get("annotations") or {}) == others | (mark if is_marked else {})
    assert await webhook(review(once)) == ALLOWED


class TestUpdates:
    @pytest.mark.parametrize("subresource", [None, "status"])
    async def test_an_edit_of_what_a_bound_pod_holds_is_a_warning(self, subresource: str | None) -> None:
        old, new = (
            pod_json(container(i915=1), node="n1", uid="u", annotations={"gas-container-cards": cards})
            for cards in ("card0", "card1")
        )
        update: dict[str, Any] = {"operation": "UPDATE", "subresource": subresource}
        result = await reviews().validate(review(new, old=old, **update))
        (warning,) = result.warnings
        assert warning.startswith("'gas-container-cards' says what the bound pod holds; undo the change")
        assert result == ReviewResult(warnings=(warning,))
        assert await reviews().validate(review(new, old=new, **update)) == ALLOWED

    @pytest.mark.parametrize(
        ("user", "count"),
        [
            ("alice", 1),
            ("system:admin", 1),
            ("system:serviceaccount:gas:gas-plugin", 0),
            ("system:node:n1", 0),
        ],
    )
    async def test_a_receipt_is_a_warning_unless_the_device_plugin_may_have_written_it(
        self, user: str, count: int
    ) -> None:
        old = pod_json(container(i915=1), node="n1", uid="u")
        new = pod_json(container(i915=1), node="n1", uid="u", annotations={"gas-allocated-cards": "card1"})
        result = await reviews().validate(review(new, old=old, operation="UPDATE", user=user))
        assert len(result.warnings) == count

    async def test_a_waiting_pod_is_never_refused_again(self) -> None:
        new = pod_json(container(i915=1), annotations={"gas-card-near": "maybe"})
        result = await reviews().validate(review(new, old=GPU, operation="UPDATE"))
        assert result == ReviewResult(warnings=("gas-card-near: expected true or false, found 'maybe'",))

    async def test_an_update_without_the_old_object_is_a_bad_review(self) -> None:
        with pytest.raises(BadReview, match=r"^request\.oldObject: "):
            await reviews().validate(review(GPU, operation="UPDATE"))


def workload(resource: str, pod: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return an object with a template."""
    meta = pod["metadata"]
    template = {"metadata": {"annotations": meta.get("annotations") or {}}, "spec": pod["spec"]}
    if resource == "podtemplates":
        return {"metadata": {"name": "x"}, "template": template}
    spec: dict[str, Any] = {"template": template, **fields}
    if resource == "batch/cronjobs":
        spec = {"schedule": "* * * * *", "jobTemplate": {"spec": spec}}
    return {"metadata": {"name": "x"}, "spec": spec}


def of(resource: str) -> dict[str, str]:
    group, _, name = resource.rpartition("/")
    return {"group": group, "resource": name}


@pytest.mark.parametrize("resource", sorted(TEMPLATES))
class TestTemplates:
    async def test_a_fault_of_a_template_is_a_warning(self, resource: str) -> None:
        result = await reviews().validate(review(workload(resource, BOTH), **of(resource)))
        assert result == ReviewResult(warnings=(f"pods of this template will be refused: {REFUSED}",))

    async def test_limits_count_as_requests_as_they_will_in_the_pod(self, resource: str) -> None:
        limits = {"gpu.intel.com/i915": 1, "gpu.intel.com/xe": 1}
        pod = pod_json({"name": "main", "resources": {"limits": limits}})
        init = pod_json(container(), init=({"name": "main", "resources": {"limits": limits}},))
        requested = pod_json({"name": "main", "resources": {"limits": limits, "requests": dict.fromkeys(limits, 0)}})
        for each, count in ((pod, 1), (init, 1), (requested, 0)):
            result = await reviews().validate(review(workload(resource, each), **of(resource)))
            assert len(result.warnings) == count

    async def test_warnings_and_the_cluster_count_as_for_pods(self, resource: str) -> None:
        pod = pod_json(container(i915=3), annotations={"gas-alow": "card0"})
        webhook = reviews(nodes=[DEFAULT.facts(node(cards=1))]).validate
        never = f"{NEVER}container 'main' asks for 3 cards, but the node has 1 (1 node)"
        assert await webhook(review(workload(resource, pod), **of(resource))) == ReviewResult(warnings=(UNKNOWN, never))

    async def test_an_update_is_warned_of_what_it_adds(self, resource: str) -> None:
        old = workload(resource, pod_json(container(i915=1), annotations={"gas-alow": "card0"}))
        scaled = workload(resource, pod_json(container(i915=1), annotations={"gas-alow": "card0"}), replicas=5)
        worse = workload(resource, pod_json(container(i915=1, xe=1), annotations={"gas-alow": "card1"}))
        update: dict[str, Any] = {"old": old, "operation": "UPDATE", **of(resource)}
        webhook = reviews(nodes=[DEFAULT.facts(node(cards=""))]).validate
        assert await webhook(review(scaled, **update)) == ALLOWED
        result = await webhook(review(worse, **update))
        assert result.warnings == (f"pods of this template will be refused: {REFUSED}",)

    async def test_templates_without_gpus_are_allowed(self, resource: str) -> None:
        assert await reviews().validate(review(workload(resource, PLAIN), **of(resource))) == ALLOWED

    async def test_an_object_without_a_template_is_allowed(self, resource: str) -> None:
        specs: list[dict[str, Any]] = [{}, {"template": None}, {"template": {}}, {"jobTemplate": {"spec": {}}}]
        for new in (*({"spec": spec} for spec in specs), {"template": None}, {"template": {}}, {}):
            assert await reviews().validate(review(new, **of(resource))) == ALLOWED

    async def test_the_system_may_run_what_it_likes(self, resource: str) -> None:
        result = await reviews().validate(review(workload(resource, BOTH), namespace="kube-system", **of(resource)))
        assert result == ReviewResult(warnings=(REFUSED,))

    async def test_scaling_and_status_have_no_rule(self, resource: str) -> None:
        for subresource in ("scale", "status"):
            asked = review(5, old=5, operation="UPDATE", subresource=subresource, **of(resource))
            assert await reviews().validate(asked) == ALLOWED


@pytest.mark.parametrize(
    ("resource", "strategy", "replicas", "warned"),
    [
        pytest.param("deployments", {"strategy": {"maxUnavailable": "25%", "maxSurge": "25%"}}, 3, True, id="default"),
        pytest.param("deployments", {"strategy": {"maxUnavailable": "25%", "maxSurge": "25%"}}, 4, False, id="four"),
        pytest.param("deployments", {"strategy": {"maxUnavailable": 0, "maxSurge": 1}}, 9, True, id="none-missing"),
        pytest.param("deployments", {"strategy": {"maxUnavailable": 1, "maxSurge": 0}}, 1, False, id="one-missing"),
        pytest.param("deployments", {"strategy": None}, 1, False, id="recreate"),
        pytest.param("daemonsets", {"updateStrategy": {"maxUnavailable": 0, "maxSurge": 1}}, None, True, id="daemons"),
        pytest.param("statefulsets", {"updateStrategy": {"partition": 0}}, 1, False, id="stateful-set"),
        pytest.param("deployments", {"strategy": {"maxUnavailable": "9" * 9999 + "%"}}, 1, False, id="hostile"),
    ],
)
async def test_an_update_that_starts_new_pods_first_is_warned_of(
    resource: str, strategy: dict[str, Any], replicas: int | None, *, warned: bool
) -> None:
    fields = {name: {"rollingUpdate": each} for name, each in strategy.items()} | {"replicas": replicas}
    rolling = of(f"apps/{resource}")
    for pod, is_told in ((GPU, warned), (pod_json(container(monitoring=1)), False), (PLAIN, False)):
        new, old = workload(f"apps/{resource}", pod, **fields), workload(f"apps/{resource}", BOTH, **fields)
        for result in (
            await reviews().validate(review(new, **rolling)),
            await reviews().validate(review(new, old=old, operation="UPDATE", **rolling)),
        ):
            assert [each.partition(":")[0] for each in result.warnings] == [
                "a rolling update needs free cards for one more pod, because maxUnavailable is 0"
            ] * is_told


def changed(pod: dict[str, Any], result: ReviewResult) -> Any:
    return patched(pod, json.loads(encode_result(review(pod), result))["response"])
