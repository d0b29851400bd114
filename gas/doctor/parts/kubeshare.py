"""Report what is left of KubeShare after a change-over."""

from collections.abc import Iterator

from gas.doctor import fix
from gas.doctor.check import Check
from gas.doctor.checks.plugins import VOCABULARIES
from gas.doctor.findings import Finding, warning
from gas.doctor.snapshot import Snapshot
from gas.programs import Program, image_name
from gas.vocabularies.kubeshare.vocabulary import KUBESHARE

EFFECTS = {
    Program("KubeShare's scheduler", lambda each: image_name(each) == "kubeshare-scheduler"): (
        "it places SharePods without knowing gas-extender's decisions"
    ),
    Program("KubeShare's device manager", lambda each: image_name(each) == "kubeshare-device-manager"): (
        "it makes pods of SharePods as well as gas-extender"
    ),
    Program("KubeShare's node daemon", lambda each: image_name(each) == "kubeshare-config-client"): (
        "only pods that KubeShare made need it"
    ),
    Program("KubeShare's placeholder", lambda each: image_name(each) == "kubeshare-vgpupod"): (
        "it keeps a card from pods with nvidia.com/gpu, and is needed only to go back"
    ),
}
"""KubeShare's programs, and what they do beside gas."""


def check_leftovers(snapshot: Snapshot) -> Iterator[Finding]:
    if KUBESHARE.name not in [each.name for each in snapshot.vocabularies]:
        return
    for program, effect in EFFECTS.items():
        for pod, _ in snapshot.running(program):
            yield warning(
                f"{program} still runs; {effect}",
                fix.pod(pod, "delete", "pod", note="or the DaemonSet that owns it, docs/from-kubeshare.md"),
                where=f"pod {pod.key}",
            )


CHECKS = (Check(name=VOCABULARIES, findings=check_leftovers, programs=tuple(EFFECTS)),)
