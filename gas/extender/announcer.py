"""Write events on pods and nodes about what only the extender can see."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice

from cachetools import TTLCache

from gas.cluster.events import Events, Involved
from gas.extender.decider import Decider
from gas.extender.decisions import PodRefusal
from gas.extender.hooks import Corrected, InvalidNode, Mismatch, Observer, Problem
from gas.extender.metrics import Metrics
from gas.objects.stored import Pod

ADVICE = "see gas doctor"
REPEAT = 300.0  # seconds before an event is written again for a pod that waits for the same reasons
MOST_AT_ONCE = 100  # pods for which events about unknown memory are written at a time
MOST_REFUSED = 10_000  # pods and reasons that are remembered for that


@dataclass(eq=False)
class Announcer(Observer):
    """Write events about what the decider reports, while this replica decides."""

    events: Events
    decider: Decider
    metrics: Metrics
    acts: Callable[[], bool]  # returns whether this replica decides; while it does not, nothing is announced
    # returns whether `announce_all` was called as well, which announces states that last
    has_begun: Callable[[], bool]
    _announced: TTLCache[tuple[str, frozenset[str]], None] = field(
        init=False, default_factory=lambda: TTLCache(MOST_REFUSED, REPEAT)
    )

    def found(self, problem: Problem) -> None:
        match problem:
            case InvalidNode(node, problems) if self.has_begun():
                self._post_invalid(node, problems)
            case Mismatch(pod, sentence) if self.has_begun():
                self._post_mismatch(pod, sentence)
            case Corrected(pod):
                self.metrics.corrections.inc()
                if self.acts():
                    sentence = "kubelet gave the pod other cards than were decided; the ledger now follows the receipt"
                    self._post_on(pod, "GPUAllocationCorrected", sentence)

    def announce_all(self) -> None:
        """Announce all current mismatches and invalid nodes, when this replica starts to decide."""
        for bound in self.decider.pods.in_trouble.values():
            if bound.trouble is not None:
                self._post_mismatch(bound.object, bound.trouble.sentence)
        for name, facts in self.decider.nodes:
            if facts.problems:
                self._post_invalid(name, facts.problems)

    def pod_refused(self, pod: Pod, refusal: PodRefusal) -> None:
        """Announce that no node has room for a pod, if the reason can only be seen card by card."""
        key = (pod.uid, frozenset(refusal.reasons))
        # A question may be about a pod that does not exist.
        if refusal.only_seen_by_cards and key not in self._announced and pod.uid in self.decider.pods.waiting:
            self._announced[key] = None
            self._post_on(pod, "NoGPUCardFits", refusal.summary())

    def announce_unknown_memory(self, waiting: Iterable[tuple[Pod, str]]) -> None:
        """Announce some pods that wait because the memory of cards is unknown, each with its sentence."""
        new = ((pod, sentence) for pod, sentence in waiting if (pod.uid, frozenset((sentence,))) not in self._announced)
        for pod, sentence in islice(new, MOST_AT_ONCE):
            self._announced[pod.uid, frozenset((sentence,))] = None
            self._post_on(pod, "GPUMemoryUnknown", sentence)

    def _post_invalid(self, node: str, problems: tuple[str, ...]) -> None:
        # kubectl describe looks for a node's events under its name as UID, as kubelet writes them.
        self._post(Involved(kind="Node", name=node, uid=node), "InvalidGPULabels", "; ".join((*problems, ADVICE)))

    def _post_mismatch(self, pod: Pod, sentence: str) -> None:
        self._post_on(pod, "GPUBookingMismatch", f"{sentence}; {ADVICE}")

    def _post_on(self, pod: Pod, reason: str, message: str) -> None:
        namespace = pod.metadata.namespace or "default"
        self._post(Involved(kind="Pod", name=pod.metadata.name, uid=pod.uid, namespace=namespace), reason, message)

    def _post(self, involved: Involved, reason: str, message: str) -> None:
        self.events.post(involved, severity="Warning", reason=reason, message=message)
