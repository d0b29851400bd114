"""The part that scores nodes and serves the verb prioritize."""

from dataclasses import dataclass

from gas.daemon import flag_values as values
from gas.daemon.flags import PartFlags, flag
from gas.extender.part import Additions, Core, Part
from gas.placement.order import NODE_SCORES, NodeScore


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringFlags(PartFlags):
    node_score: NodeScore = flag(
        "node-score=POLICY",
        values.one_of(NodeScore),
        "none",
        f"How nodes are scored for kube-scheduler, one of {NODE_SCORES}. With none there is no prioritize verb; "
        "otherwise the pod annotation gas-node-score overrides the policy.",
        group="Scoring nodes",
    )


def _build(core: Core) -> Additions:
    from gas.extender.scoring.scoring import Prioritize, Scoring
    from gas.extender.server import ServedVerb

    scoring = Scoring(core.flags.of(ScoringFlags).node_score, core.decider)
    verb = Prioritize(core.decider, scoring, core.metrics, why_not_ready=core.why_not_ready)
    return Additions(
        hooks=scoring.hooks, verbs={"prioritize": ServedVerb(verb)}, documents={"/debug/demand": scoring.demand_json}
    )


SCORING = Part(
    flags=ScoringFlags,
    is_on=lambda flags: flags.of(ScoringFlags).node_score is not NodeScore.NONE,
    build=_build,
    verbs=frozenset({"prioritize"}),
)
