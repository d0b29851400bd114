"""List the planted faults: single changes to the product that the simulation must find (`simulation.planting`)."""

import difflib

from gas.values.errors import GasError
from simulation.planting import ROOT, PlantedFault


class UnknownFault(GasError):
    def __init__(self, name: str) -> None:
        near = difflib.get_close_matches(name, [each.name for each in PLANTED], 3, 0.5)
        rather = f"did you mean {' or '.join(map(repr, near))}" if near else "simulation/planted.py lists the names"
        super().__init__(f"no planted fault has the name {name!r}; {rather}")


def planted_fault(name: str) -> PlantedFault:
    """Return the fault of a name. Raises UnknownFault."""
    fault = next((each for each in PLANTED if each.name == name), None)
    if fault is None:
        raise UnknownFault(name)
    return fault


_FAULTS = (
    PlantedFault(
        "book in filter",
        "Filter.__call__",
        "Y.decider.decisions.filtered(A.pod.uid, D.passing, Z)",
        "from gas.extender.wire import BindingArgs\n"
        "pod = A.pod\n"
        "names = BindingArgs(pod.metadata.name, pod.metadata.namespace or '', pod.uid, D.passing[0])\n"
        "import contextlib\n"
        "with contextlib.suppress(Exception):\n"
        "    Y.decider.reserve(names, pod, now=0.0)\n"
        "Y.decider.decisions.filtered(A.pod.uid, D.passing, Z)",
    ),
    PlantedFault(
        "no version in the Binding", "objects.bind_pod", '{**A, "resourceVersion": V, **B}', "{**A, **B}", 300
    ),
    PlantedFault(
        "cards released when a pod is deleted, before it has ended",
        "Pods.changed",
        "P.is_over",
        "P.is_over or P.metadata.deletion_timestamp",
    ),
    PlantedFault("a lost 410", "Watch.run", "(401, 429)", "(401, 410, 429)"),
    PlantedFault("settled at the first read", "settled_pod", "P.node_name or Y >= Z", "True", 190),
    PlantedFault("settled without changing the pod's version", "settled_pod", "await R.change_version(*A)", within=300),
    PlantedFault(
        "a Binding without a response counts as failed",
        "Binder._bind_version",
        "except OutcomeUnknown:\n    raise",
        "except OutcomeUnknown:\n    outcome = Event.REFUSED\n    raise",
        130,
    ),
    PlantedFault(
        "two leaders for a second", "LeaderElection.leads", "X < Y.renew_deadline", "X < Y.duration + 1.0", 600
    ),
    PlantedFault("a Lease that expires too early", "LeaderElection._has_expired", "X >= (Y or Z)", "X >= 7.0"),
    PlantedFault(
        "a new leader that does not catch up",
        "Extender._catch_up",
        "X = Y._core",
        "X = Y._core\nif Y._may_list.is_set():\n    return",
    ),
    PlantedFault("pods that are missing in a list are kept", "Pods.complete", "X.forget(U)", within=50),
    PlantedFault(
        "a deletion taken for a change", "Watch._take", 'X.deleted if Y.type == "DELETED" else X.changed', "X.changed"
    ),
    PlantedFault(
        "bookings of ended pods are kept",
        "Pods.changed",
        "if P.is_over:\n    A\nelse:\n    B",
        "if P.is_over:\n    pass\nelse:\n    B",
    ),
    PlantedFault(
        "half of what is booked counts as free", "FreeCapacity.__init__", "H - B.get(N, 0)", "H - B.get(N, 0) // 2"
    ),
    PlantedFault("the verdict of a node is not forgotten when it changes", "Verdicts.forget", "X.states.forget(Y)"),
    PlantedFault(
        "refused pods are not requeued", "Requeuer._has_refused_pods", "return X", "return False", part="requeuing"
    ),
    PlantedFault(
        "a new leader requeues nothing", "Requeuer.requeue_all", "X._freed.add(*A)", within=70, part="requeuing"
    ),
    PlantedFault(
        "a reviewed Binding that does not demand the pod's version",
        "ReviewedBindings._given",
        'P.metadata.resource_version or ""',
        '""',
        130,
        part="binding_reviews",
    ),
    PlantedFault(
        "bindings of the previous leader are not ended",
        "Extender._catch_up",
        "await end_earlier_bindings(*A, **B)",
        "isinstance(self.leader, Alone) and await end_earlier_bindings(*A, **B)",
        330,
    ),
    PlantedFault(
        "a single replica does not end the Bindings of the process before it",
        "Extender._catch_up",
        "await end_earlier_bindings(*A, **B)",
        "not isinstance(self.leader, Alone) and await end_earlier_bindings(*A, **B)",
        150,
    ),
    PlantedFault(
        "a pod bound elsewhere by others keeps its reservation",
        "Pods._book",
        "B is not None and B.node != P.node_name",
        "False",
        140,
    ),
    PlantedFault(
        "an older read is believed over the watch", "Pods.changed", "if P.uid in X._gone:\n    return", within=850
    ),
    PlantedFault(
        "cards chosen before the wait for the API server",
        "Binder._bind_version",
        "A = X.decider.reserve(B, *C, **D)",
        "A = X.decider.reserve(B, *C, **D)\nX.decider.ledger.release(B.pod_uid)",
    ),
    PlantedFault(
        "a renewal counts from its response", "LeaderElection._take", "X._renewed = Y", "X._renewed = X._clock() + 4.0"
    ),
    PlantedFault(
        "a leader that never stops when it cannot renew",
        "LeaderElection.leads",
        "X._renewed is not None and Y < Z",
        "X._renewed is not None",
    ),
    PlantedFault(
        "exclusion is left out when needs are compared",
        "Company",
        'exclusion: X = ""',
        'import dataclasses\nexclusion: X = dataclasses.field(default="", compare=False)',
    ),
    PlantedFault(
        "exclusion matters only to pods that have one", "CARD_RULES", "N.company.exclusion or X", "N.company.exclusion"
    ),
    PlantedFault(
        "affinity with any pod",
        "Company.has_affinity",
        "any(X.affinity == Y for Z in A)",
        "any(X.affinity for Z in A)",
        450,
    ),
    PlantedFault(
        "the name of a card is not booked", "Decider._with_name", "if X := Y.get(Z):\n    return A", within=60
    ),
    PlantedFault(
        "pods of the same priority are evicted",
        "Preemption._evictable",
        "X.priority >= P.priority",
        "X.priority > P.priority",
        40,
        part="preemption",
    ),
    PlantedFault(
        "all less important pods are evicted",
        "Preemption._evictable",
        "Evictable(*A, **B, must_go=not X or Y, **C)",
        "Evictable(*A, **B, must_go=True, **C)",
        600,
        part="preemption",
    ),
    PlantedFault("no receipts", "ReceiptWriter._missing", "X.append((P, R))", within=160),
    PlantedFault(
        "receipts are not believed", "written_cards", "if R is not None:\n    X = footprint(*A)\n    B", within=160
    ),
    PlantedFault("not ready counts as ready", "check_ready", "if X:\n    raise NotReady(Y)", "return", 80),
    PlantedFault(
        "init containers are not booked",
        "_footprint",
        "for N, A in X.items():\n    P[N] = max(Y, Z)",
        "for N, A in (X if container.role is not Role.INIT else staying.get(card, {})).items():\n    P[N] = max(Y, Z)",
    ),
    PlantedFault(
        "parts of cards are rounded down", "intel.need._container_need", "-(-A // R.count)", "A // R.count", 80
    ),
    PlantedFault(
        "tiles of ended pods are kept",
        "NodeSums._add",
        "_add_count(X.tiles, C, I, N)",
        "_add_count(X.tiles, C, I, max(N, 0))",
        70,
    ),
    PlantedFault("whole cards are shared", "Vendor.booked_need", "ALONE if X else Company()", "Company()", 120),
    PlantedFault("Aliyun's pods take no compute", "Aliyun._container", "(Ratio(MILLICORES, *A, **B),)", "()"),
    PlantedFault(
        "a percentage of memory is divided twice",
        "koordinator.vocabulary._container_need",
        "Ratio(MEMORY_MAX, S.memory_ratio)",
        "Ratio(MEMORY_MAX, S.memory_ratio // S.cards)",
        120,
    ),
    PlantedFault(
        "Koordinator's annotation names the next card", "format_device_allocated", "minor_of(X)", "minor_of(X) + 1"
    ),
    PlantedFault(
        "a leader that comes back does not catch up",
        "Readiness.chosen",
        "X._has_caught_up = False\nif Y:\n    A\nif L:\n    B",
        "if Y:\n    A\nif L and not X._has_caught_up:\n    B",
        220,
    ),
    PlantedFault("the devices that were decided are not preferred", "Matcher.prefer", "ids_for_cards(*A)", "()"),
    PlantedFault("anti-affinity is ignored", "Company.has_no_anti_affinity", "return X", "return True", 60),
    PlantedFault("a lost race for the Lease counts as won", "LeaderElection._take", "L.debug(M)\nreturn", "L.debug(M)"),
    PlantedFault(
        "reservations that vanish from a list are kept", "Pods.complete", "X.report(U, Event.VANISHED)", within=80
    ),
    PlantedFault("all pages of a list but the last are forgotten", "Lister._fetch_all", "R += T(X)", "R = T(X)", 90),
    PlantedFault(
        "the times of decisions go back with the clock",
        "Decider._next_timestamp",
        "return max(X, Y + 1)",
        "return X",
        190,
    ),
    PlantedFault(
        "names of ended pods are kept",
        "NodeSums._add",
        "_add_count(X.names, C, P, N)",
        "_add_count(X.names, C, P, max(N, 0))",
        390,
    ),
    PlantedFault("shares of cards are rounded down", "_thousandths", "ROUND_CEILING", '"ROUND_FLOOR"'),
    PlantedFault(
        "containers get the device nodes of the next card",
        "allocation.gpus_of",
        "F = tuple(sorted((G for G in X if G.card in W), key=K))",
        "G = sorted(X, key=K)\nF = tuple(b for a, b in zip(G, [*G[1:], *G[:1]], strict=True) if a.card in W)",
    ),
    PlantedFault("no room is kept for nominated pods", "Promises.to_others", "F[N] = C", within=150),
    PlantedFault(
        "a receipt for another pod of that name", "patch_pod_metadata", '{**A, "uid": X, **B}', "{**A, **B}", 320
    ),
    PlantedFault(
        "the webhook for new pods states no memory for shares",
        "KubeShareAdmission.complete",
        "W[N.MEMORY] = X",
        'W[N.MEMORY] = "0"',
        60,
    ),
    PlantedFault("containers of a pod share tiles", "choose_tiles", "H.update(dict.fromkeys(*A))", within=60),
    PlantedFault("earlier bindings that cannot be ended are left open", "_unchanged.work", "L.append(P)", within=330),
    PlantedFault(
        "the labels of a card's pods are left out when nodes are compared",
        "NodeSums.state",
        "R.append(company[C])",
        within=860,
    ),
    PlantedFault(
        "refused pods that the watch has not shown are not requeued",
        "Requeuer._has_refused_pods",
        "U in W or R.time > L",
        "U in W",
        220,
        part="requeuing",
    ),
    PlantedFault(
        "nodes with free cards are forgotten when a write fails",
        "Requeuer.run",
        "X._freed.put_back(F)",
        within=310,
        part="requeuing",
    ),
    PlantedFault(
        "a reservation that is taken back requeues nothing",
        "Bookings.report",
        "if B is not None and A is State.UNKNOWN:\n    X",
        "if B is not None and A is State.UNKNOWN and event is Event.GONE:\n    X",
        60,
    ),
    PlantedFault("a replica binds when it leads no more", "Binder._bind_version", "check_ready(X)", within=370),
    PlantedFault(
        "silent watches are never noticed",
        "ApiServer.stream",
        "aiohttp.ClientTimeout(**A, sock_read=X, **B)",
        "aiohttp.ClientTimeout(**A, sock_read=None, **B)",
        200,
    ),
    PlantedFault(
        "earlier bindings are left open if pods cannot be listed",
        "end_earlier_bindings",
        "note(*A)",
        "return",
        400,
        part="binding_reviews",
    ),
    PlantedFault(
        "a Binding of a pod without cards may bind the next one",
        "_only_for",
        "ALLOWED if W.metadata.uid else R",
        "ALLOWED",
        210,
        part="binding_reviews",
    ),
    PlantedFault(
        "a pod is given cards however often no Binding follows",
        "ReviewedBindings.check_patience",
        "(W := X.wait(*A)) > 0",
        "False",
        250,
        part="binding_reviews",
    ),
    PlantedFault(
        "a write that took the API server too long counts as refused",
        "status_error",
        "OutcomeUnknown if W else ApiUnavailable",
        "ApiUnavailable",
        400,
    ),
    PlantedFault("the rest of a part of a watch is dropped", "LineSplitter.feed", "X._pieces.append(R)", within=60),
    PlantedFault(
        "annotations that a pod was created with are not cleared",
        "Vocabularies.write_choice",
        "return O | F",
        "return F",
        400,
    ),
    PlantedFault(
        "a booking that is replaced stays in the sums", "Ledger.hold", "if B is not None:\n    X._take(U)", within=400
    ),
    PlantedFault(
        "deleted pods go on waiting",
        "Pods.deleted",
        "if X:\n    Y.forget(P.uid)",
        "if P.node_name:\n    Y.forget(P.uid)",
    ),
    PlantedFault(
        "pods of all namespaces are bound in one",
        "objects.bind_pod",
        'P.metadata.namespace or "default"',
        '"default"',
        300,
    ),
    PlantedFault("a filter does not wait for the bind before it", "Filter.__call__", "await X.wait(U)", within=460),
    PlantedFault("denied cards are given", "CARD_RULES", "I.resolve(N.denied)", "NO_CARDS"),
    PlantedFault(
        "disabled cards are given", "CARD_RULES", "lambda N, J, U: I.disabled", "lambda N, J, U: NO_CARDS", 40
    ),
    PlantedFault("NUMA nodes do not matter", "candidates._groups", "N.scope is Scope.NUMA and G is not None", "False"),
    PlantedFault("linked cards get tiles of the same number", "first_fit_pairs", "(X, Y.index)", "(X, X)", 120),
    PlantedFault(
        "all nodes are scored by what is left of one",
        "Scores._cost",
        "X._shares.setdefault(S.cards, {})",
        "X._shares.setdefault(0, {})",
        120,
        part="scoring",
    ),
    PlantedFault("tiles are counted from each card on", "affinity_mask", "first += count", "pass", 160),
    PlantedFault(
        "receipts leave out init containers",
        "given_cards",
        "if D.index in I:\n    G[D.index] = I[D.index]",
        "pass",
        440,
    ),
    PlantedFault("victims free only cards", "_Search._is_short", "return X", "return False", 170),
    PlantedFault(
        "the first victims found are the best", "_Search.note", "X.best is None or F < Y", "X.best is None", 40
    ),
    PlantedFault("disruption budgets do not count", "Preemption._evictable", "tuple(B)", "()", 40, "preemption"),
    PlantedFault(
        "a pod bound without cards gets all of its node's",
        "Pods._follow",
        "if B is None:\n    return Trouble(S, unannotated=True)",
        "if B is None:\n"
        "    has = self._facts(pod.node_name).inventory.capacity\n"
        "    self._hold(uid, pod, written, Footprint({card: tuple(sorted(of.items())) for card, of in has.items()}))\n"
        "    return Trouble(S, unannotated=True)",
        170,
    ),
    PlantedFault("pods that a late list lacks are gone", "Pods.learn", "X._apart.add(U)", within=300),
    PlantedFault("what others change on a node stays", "NodeWriter.changed", "X._look.set()", within=150),
    PlantedFault("a response hides what others changed since", "NodeWriter._write", "X._node is Y", "True", 300),
    PlantedFault("a failed write of a node is not repeated", "NodeWriter.run", "X._look.set()", within=300),
    PlantedFault(
        "the pod of a SharePod runs again after its end",
        "SharePods._reconcile",
        "not S.restarts_after(S.phase)",
        "False",
        250,
        part="sharepods",
    ),
    PlantedFault(
        "the next pod of a SharePod stays on its node",
        "sharepod.pod_of",
        'A.pop(CHOSEN_NODE, None) == S.get("nodeName")',
        "A.pop(CHOSEN_NODE, None) is A",
        150,
        part="sharepods",
    ),
    PlantedFault(
        "a new leader looks at no SharePods", "SharePods.look_at_all", "X._add(K)", within=150, part="sharepods"
    ),
    PlantedFault(
        "a SharePod without a pod is not tried again",
        "SharePods._add_later",
        "X.call_later(*A)",
        within=300,
        part="sharepods",
    ),
    PlantedFault(
        "a nomination counts as a missed bind", "PendingBinds.moved", "if A is Event.NOMINATED:\n    X", "pass", 150
    ),
    PlantedFault(
        "a promise counts against its own pod",
        "Promises.to_others",
        "A >= P.priority and B != P.uid",
        "A >= P.priority",
        100,
    ),
    PlantedFault(
        "a nomination outlives its pod",
        "Bookings.nominate",
        "if N == O:\n    return",
        "if N == O or not (N or self._ledger.booking(uid)):\n    return",
        300,
    ),
    PlantedFault("a promise on a node that is gone", "Promises._in_order", "if F is None:\n    return R", "pass", 400),
    PlantedFault(
        "nominations are lost when pods are listed",
        "Pods.listed",
        "X.changed(P)",
        'X.changed(P)\nX._bookings.nominate(P.uid, P.key, "")',
        400,
    ),
    PlantedFault(
        "what is promised is given to pods of lower priority",
        "Promises.to_others",
        "A >= P.priority",
        "A <= P.priority",
        500,
    ),
    PlantedFault(
        "what is promised is given to pods of the same priority",
        "Promises.to_others",
        "A >= P.priority",
        "A > P.priority",
        100,
    ),
    PlantedFault("a bind takes promised cards", "Decider.reserve", "X.promises.to_others(P).get(N, ())", "()", 600),
    PlantedFault("a filter offers promised cards", "Decider._filter", "X.promises.to_others(P)", "{}", 100),
    PlantedFault(
        "a nomination ends with its pod, and not with the bind",
        "Bookings.nominate",
        "if N == O:\n    return",
        "if N == O or (not N and self._ledger.booking(uid) is not None):\n    return",
        60,
    ),
    PlantedFault(
        "one card is promised to two pods", "Promises._in_order", "X._cards(N, I, B)", "X._cards(N, I, [])", 100
    ),
    PlantedFault(
        "promises are not chosen again when their node changes", "Decider._changed", "X.promises.forget(N)", within=600
    ),
    PlantedFault(
        "a nomination for another node keeps the first one",
        "Bookings.nominate",
        "del X[U], Y[O][U]",
        "del X[U]",
        60,
    ),
    PlantedFault(
        "the first nomination of a pod stays",
        "Bookings.nominate",
        "if N == O:\n    return",
        "if N == O or (N and O):\n    return",
        300,
    ),
    PlantedFault(
        "the least important pods are promised cards first", "Promises._promise", "-P.priority", "P.priority", 300
    ),
    PlantedFault(
        "cards that are booked are promised", "Promises._cards", "X.sums(N, B).usage()", 'X.sums("", B).usage()', 150
    ),
    PlantedFault(
        "a plan for a group ignores what others are promised",
        "PodGroups._plan",
        "Planner(N, V, P)",
        "Planner(N, V, {})",
        300,
        part="pod_groups",
    ),
    PlantedFault(
        "a refused group keeps its promises",
        "PodGroups.restrict",
        "if F < M:\n    X._end(*A)",
        within=300,
        part="pod_groups",
    ),
    PlantedFault(
        "a member of a group passes on all nodes",
        "PodGroups.restrict",
        "replace(D, passing=[P.node], **K)",
        "D",
        300,
        part="pod_groups",
    ),
    PlantedFault("promises to a group end at once", "pod_groups.PROMISE", "10.0", "0.0", 300, part="pod_groups"),
    PlantedFault(
        "bound members of a group are not counted",
        "PodGroups._fitting",
        "len(S | A.keys() | P.keys())",
        "len(A.keys() | P.keys())",
        300,
        part="pod_groups",
    ),
    PlantedFault(
        "a member is planned for nodes that it is not offered",
        "PodGroups._plan",
        "Member(P.uid, N, O)",
        "Member(P.uid, N, None)",
        300,
        part="pod_groups",
    ),
    PlantedFault(
        "what a group is promised does not count for others",
        "Promises._in_order",
        "F = [E for Y in Z if A]",
        "F = []",
        300,
    ),
    PlantedFault("what a group is promised stays after the bind", "Promises.moved", "X.drop(M.uid)", within=300),
)

PLANTED = tuple(each for each in _FAULTS if not each.part or (ROOT / "gas" / "extender" / each.part).exists())
"""All faults; those of an optional part only while the extender has the part."""

# faults that `simulation.node_day` must find
NODE_DAY = (
    PlantedFault(
        "cards are forgotten while their driver fails", "CardMemory.update", "A in S.faults or D", "A in S.faults"
    ),
    PlantedFault("a missing card stays healthy", "CardMemory.update", "replace(K.gpu, healthy=False)", "K.gpu"),
    PlantedFault("recorded cards are not taken over", "Scanner.recall", "S.recall(R)"),
    PlantedFault("another plugin's records are removed", "Publisher.publish", "A._others or ()", "()"),
    PlantedFault("the probe never fails", "Scanner.needs_restart", "C.container_fault if L else None"),
    PlantedFault("the probe fails at once", "Scanner.needs_restart", "A >= B", "A >= 0"),
    PlantedFault("the probe fails an hour later", "Scanner.needs_restart", "A >= B", "A >= 3600"),
    PlantedFault("a removed /dev/dri is not noticed", "_was_removed", "A.st_nlink == 0", "False"),
    PlantedFault("PCI devices do not count", "NvmlCards._blind", "_devices(*A) or B", "B"),
    PlantedFault("cards that all fail are not a fault", "NvmlCards.read", "A and len(U) == B and C", "False"),
    PlantedFault("one late reply is a fault", "NvmlCards._reply", "L >= LATE_REPLIES", "True"),
    PlantedFault("a late reply makes a card healthy", "NvmlCards._reply", "A[B] = fault", "raise"),
    PlantedFault("no Xid counts", "Failures.update", "A.xid not in B", "False"),
    PlantedFault("every Xid counts", "Failures.update", "A.xid not in B", "True"),
    PlantedFault("an instance's Xid is its card's", "_concerned", "A if B and C is not None else (D,)", "(D,)"),
    PlantedFault("cards never return", "Failures.update", "A - B >= RECOVERED_AFTER", "False"),
    PlantedFault("a reset does not count", "Failures.update", "F.was_away |= U not in V", "pass"),
    PlantedFault("no proof is needed", "Failures.update", "A.recovery or B", "False"),
    PlantedFault("demands of the driver do not count", "Failures.fault", "A if D else None"),
    PlantedFault("losses have no event", "Losses.update", 'A.set_states("GPUCardUnhealthy", F)', "None"),
)
