"""Check Node Feature Discovery (NFD), which is needed only where a plugin describes its node through it."""

from collections.abc import Iterator, Mapping

from gas.cluster.errors import ApiRefused
from gas.cluster.listing import Lister
from gas.doctor import fix
from gas.doctor.check import Check, Sources
from gas.doctor.checks.daemonsets import install_plugin
from gas.doctor.checks.nodes import LABELS, first_cards
from gas.doctor.checks.plugins import NodePlugin, plugins_on
from gas.doctor.findings import Finding, Unseen, about, not_seen, ok, probe, problem, warning
from gas.doctor.gpus import gpu_nodes, is_labelled_by_plugin, label_writers
from gas.doctor.objects import AnyObject
from gas.doctor.snapshot import Snapshot
from gas.inspection.objects import InspectedNode
from gas.placement.inventory import Inventory
from gas.programs import LAST_WITH_ANNOTATIONS, PLUGIN, Program, flag_value, image_name, image_version, starts
from gas.vocabularies.intel import names

FEATURES = "feature_objects"  # name of the gathered number of NodeFeature objects; None without that kind

NODE_FEATURES = "/apis/nfd.k8s-sigs.io/v1alpha1/nodefeatures"
NFD_LABELS = "nfd.node.kubernetes.io/feature-labels"  # annotation in which NFD lists the labels that it has written

NFD = Program(
    "Node Feature Discovery",
    lambda each: image_name(each).startswith("node-feature-discovery") or starts(each, "nfd-master"),
)


async def _gather(sources: Sources) -> Mapping[str, object]:
    return {FEATURES: await probe(_count(sources))}


async def _count(sources: Sources) -> int | None:
    try:
        listing = await Lister(sources.api, NODE_FEATURES, AnyObject).fetch()
    except ApiRefused as error:
        if error.status == 404:
            return None
        raise
    return len(listing.objects) + listing.undecodable


def feeds_nfd(plugin: NodePlugin) -> bool:
    if plugin.program is PLUGIN:
        return flag_value(plugin.container, "write-node") == "nfd" and plugin.obeys_annotations
    version = image_version(plugin.container)
    return plugin.obeys_annotations and (version is None or version <= LAST_WITH_ANNOTATIONS)


def check_feature_discovery(snapshot: Snapshot) -> Iterator[Finding]:
    """Check that NFD runs and has data if a plugin of a GPU node uses it."""
    if not isinstance(snapshot.pods, Unseen) and not isinstance(snapshot.nodes, Unseen):  # reported by other checks
        yield from about("cluster", [_of_cluster(snapshot)])


def _of_cluster(snapshot: Snapshot) -> Finding:
    fed = {
        node.name: plugin
        for node in gpu_nodes(snapshot)
        for plugin in plugins_on(snapshot, node.name)
        if feeds_nfd(plugin)
    }
    runs = bool(snapshot.running(NFD))
    features: int | Unseen | None = snapshot.gathered.get(FEATURES)
    if not fed:
        state = "runs, but no plugin uses it" if runs else "is not needed: no plugin uses it"
        return ok(f"Node Feature Discovery {state}")
    nodes = ", ".join([*fed][:5]) + (f" and {len(fed) - 5} more" if len(fed) > 5 else "")
    if not runs:
        return problem(
            f"the plugin on {nodes} describes its cards through Node Feature Discovery, but no pod of that runs, so the"
            " node's labels are no longer updated",
            fix.daemonset(next(iter(fed.values())).pod, "edit", note="remove --write-node=nfd, or install NFD"),
        )
    if isinstance(features, Unseen):
        return not_seen("NodeFeature objects", features)
    if not features:
        return problem(
            "Node Feature Discovery runs, but its workers have not reported any node",
            "kubectl get nodefeatures.nfd.k8s-sigs.io --all-namespaces",
        )
    return ok(f"Node Feature Discovery runs and has data of {features} nodes")


def check_label_writers(snapshot: Snapshot) -> Iterator[Finding]:
    """Check that labels from NFD still have a source, and no second writer."""
    vocabularies = snapshot.vocabularies
    for node in gpu_nodes(snapshot):
        if (inventory := vocabularies.facts(node).inventory).cards:
            yield from about(f"node {node.name}", _labels(snapshot, node, inventory))


def _labels(snapshot: Snapshot, node: InspectedNode, inventory: Inventory) -> Iterator[Finding]:
    writers = label_writers(node)
    listed = node.annotations.get(NFD_LABELS, "").split(",")
    if not any("nfd" in each for each in writers):
        if names.GPU_NUMBERS not in listed and names.CARDS not in listed:
            return
        writers.add("nfd")
    plugins = plugins_on(snapshot, node.name)
    if is_labelled_by_plugin(node) and plugins:
        yield warning(
            "both the plugin and Node Feature Discovery write its labels; use only one of them",
            fix.daemonset(plugins[0].pod, "edit", note="its arguments: --write-node=nfd to use NFD alone"),
            found=", ".join(sorted(writers)),
        )
    elif (
        not is_labelled_by_plugin(node)
        and not isinstance(snapshot.pods, Unseen)
        and not any(feeds_nfd(each) for each in plugins)
    ):
        yield warning(
            f"its labels name {first_cards(inventory)} and come from Node Feature Discovery, but no plugin on the node"
            " reports cards to that any more",
            install_plugin(snapshot, node),
        )


CHECKS = (
    Check(
        name="feature-discovery",
        title="Node Feature Discovery",
        findings=check_feature_discovery,
        gather=_gather,
        programs=(NFD,),
    ),
    Check(name=LABELS, findings=check_label_writers),
)
