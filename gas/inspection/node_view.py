"""Show everything about one node: what Kubernetes says, its cards with their pods, tiles, NUMA nodes and links."""

from gas.inspection.cluster import Cluster
from gas.inspection.output import Look, table_lines
from gas.inspection.report import Report
from gas.inspection.rows import NO_RECORD, card_report, card_rows, cause, resources
from gas.placement.inventory import NOTHING, Inventory, free_tiles
from gas.placement.refusal import in_words
from gas.values.amounts import TILES
from gas.values.quoted import escaped


def node_data(cluster: Cluster, name: str) -> dict[str, object]:
    """Return the node as data for JSON and YAML. Raises Missing."""
    node = cluster.node(name)
    facts = cluster.decider.nodes.facts(name)
    inventory = facts.inventory if facts is not None else Inventory(capacity={})
    usage = cluster.decider.ledger.usage(name)
    holders, records = cluster.holders(name), cluster.records(name)
    cards: list[dict[str, object]] = []
    for card, row in zip(cluster.cards(name), card_rows(cluster, name, resources(cluster)), strict=True):
        shown: dict[str, object] = dict(row)
        if TILES in inventory.capacity.get(card, NOTHING):
            shown["freeTiles"] = free_tiles(inventory, usage, card)
        shown["cause"] = cause(card, facts, records.get(card, NO_RECORD))
        shown["held"] = [
            {
                "pod": booking.pod,
                "amounts": dict(booking.footprint.amounts[card]),
                "tiles": sorted(booking.footprint.tiles.get(card, ())),
            }
            for booking in holders.get(card, {}).values()
        ]
        cards.append(shown)
    taints = [f"{taint.key}:{taint.effect}" for taint in node.spec.taints or ()]
    return {
        "node": name,
        "ready": node.is_ready,
        "cordoned": bool(node.spec.unschedulable),
        "taints": taints,
        "kernel": node.kernel_version,
        "problems": list(facts.problems) if facts is not None else [],
        "numaGroups": [list(map(str, group)) for group in inventory.numa_groups or ()],
        "links": [
            f"{one.card} gt{one.index} - {other.card} gt{other.index}" for one, other in dict.fromkeys(inventory.links)
        ],
        "boards": [list(map(str, board)) for board in inventory.boards],
        "cards": cards,
    }


def node_lines(cluster: Cluster, name: str, look: Look) -> list[str]:
    """Return the node as text. Raises Missing."""
    data = node_data(cluster, name)
    state = ["ready" if data["ready"] else "not ready"]
    if data["cordoned"]:
        state.append("cordoned")
    lines = [f"Node      {escaped(name)}", f"State     {', '.join(state)}"]
    for title, key in (
        ("Kernel", "kernel"),
        ("Taints", "taints"),
        ("NUMA", "numaGroups"),
        ("Boards", "boards"),
        ("Links", "links"),
    ):
        if text := _text(data[key]):
            lines.append(f"{title:<10}{escaped(text)}")
    problems = data["problems"]
    for problem in problems if isinstance(problems, list) else ():
        lines.append(f"Problem   {escaped(str(problem))}")
    facts, records = cluster.decider.nodes.facts(name), cluster.records(name)
    for card in cluster.cards(name):
        if closed := cause(card, facts, records.get(card, NO_RECORD)):
            lines.append(f"Closed    {card}: {escaped(closed)}")
    report = card_report(cluster, only_node=name)
    lines.append("")
    if not report.rows:
        return [*lines, "The node has no known GPU card."]
    columns = tuple(column for column in report.columns if column.name not in ("node", "holders"))
    lines += table_lines(Report(columns, report.rows), wide=True, look=look)
    holders = cluster.holders(name)
    for card in cluster.cards(name):
        if held := holders.get(card):
            lines += ["", f"Pods on {card}"]
            for booking in held.values():
                amounts = in_words(booking.footprint.amounts[card])
                tiles = "".join(f" gt{index}" for index in sorted(booking.footprint.tiles.get(card, ())))
                lines.append(f"  {escaped(booking.pod)}  {amounts}{', tiles' if tiles else ''}{tiles}")
    return lines


def _text(value: object) -> str:
    if isinstance(value, list):
        return "; ".join(" ".join(each) if isinstance(each, list) else str(each) for each in value)
    return str(value) if value else ""
