"""Report what is left of HAMi after a change-over."""

from collections.abc import Iterator

from gas.doctor import fix
from gas.doctor.check import Check
from gas.doctor.checks.plugins import VOCABULARIES
from gas.doctor.findings import Finding, problem, warning
from gas.doctor.snapshot import Snapshot
from gas.programs import Program, image_name, starts
from gas.vocabularies.hami.vocabulary import HAMI

SCHEDULER = Program("HAMi's scheduler", lambda each: image_name(each) == "hami" and starts(each, "scheduler"))
LOCK = "hami.io/mutex.lock"  # node annotation with which HAMi binds one pod at a time


def check_leftovers(snapshot: Snapshot) -> Iterator[Finding]:
    if HAMI.name not in [each.name for each in snapshot.vocabularies]:
        return
    for pod, _ in snapshot.running(SCHEDULER):
        yield problem(
            "HAMi's scheduler still runs and decides cards as well as gas-extender",
            fix.pod(pod, "describe", "pod", note="scale its Deployment to 0, docs/from-hami.md"),
            where=f"pod {pod.key}",
        )
    for node in snapshot.checked_nodes:
        if LOCK in node.annotations:
            yield warning(
                f"HAMi's lock is left on the node: annotation {LOCK}; gas ignores it, and HAMi would wait for it",
                fix.kubectl("annotate", "node", node.name, f"{LOCK}-"),
                where=f"node {node.name}",
            )


CHECKS = (Check(name=VOCABULARIES, findings=check_leftovers, programs=(SCHEDULER,)),)
