"""Report what is left of Aliyun's system after a change-over, and nodes that count in another unit."""

from collections.abc import Iterator

from gas.doctor import fix
from gas.doctor.check import Check
from gas.doctor.checks.plugins import VOCABULARIES
from gas.doctor.checks.schedulers import edit
from gas.doctor.findings import Finding, Unseen, problem, warning
from gas.doctor.gpus import gpu_nodes
from gas.doctor.snapshot import Snapshot
from gas.programs import Program, image_name, starts
from gas.vocabularies.aliyun.names import GPU_MEM
from gas.vocabularies.aliyun.vocabulary import ALIYUN

PLUGIN = Program("Aliyun's device plugin", lambda each: starts(each, "gpushare-device-plugin-v2"))
EXTENDER = Program("Aliyun's extender", lambda each: image_name(each) == "k8s-gpushare-schd-extender")


def check_leftovers(snapshot: Snapshot) -> Iterator[Finding]:
    words = next((each for each in snapshot.vocabularies if each.name == ALIYUN.name), None)
    if words is None:
        return
    elsewhere = {node.name for node in gpu_nodes(snapshot)}
    for node in snapshot.checked_nodes:
        facts = words.facts(node)
        for sentence in facts.problems if facts is not None and node.name not in elsewhere else ():
            yield warning(sentence, fix.kubectl("describe", "node", node.name), where=f"node {node.name}")
    look = fix.kubectl("get", "daemonsets,deployments", "-A", "-l", "app=gpushare", note="and delete it")
    for program, effect in ((PLUGIN, f"gas-plugin offers no {GPU_MEM} there"), (EXTENDER, "nothing should call it")):
        for pod, _ in snapshot.running(program):
            yield warning(f"{program} still runs; {effect}", look, where=f"pod {pod.key}")
    for scheduler in snapshot.schedulers:
        seen = scheduler.configuration
        for entry in [] if seen is None or isinstance(seen, Unseen) else seen.extenders or ():
            if GPU_MEM in entry.managed and not entry.is_about_gpus:
                sentence = "kube-scheduler calls Aliyun's extender, which does not know what gas-extender decides"
                remove = edit(scheduler, "remove Aliyun's entry")
                yield problem(sentence, remove, where=scheduler.file, found=entry.url_prefix)
    labelled = [node.name for node in snapshot.checked_nodes if node.labels.get("gpushare") == "true"]
    if labelled and not snapshot.running(PLUGIN):
        sentence = "these nodes have Aliyun's label gpushare=true; if no nodeSelector of gas-plugin has it, remove it"
        remove = fix.kubectl("label", "nodes", "-l", "gpushare=true", "gpushare-")
        yield warning(sentence, remove, where="nodes", found=", ".join(labelled[:8]))


CHECKS = (Check(name=VOCABULARIES, findings=check_leftovers, programs=(PLUGIN, EXTENDER)),)
