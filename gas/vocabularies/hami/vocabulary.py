"""HAMi's vocabulary: ``nvidia.com/gpu`` with ``gpumem``, ``gpumem-percentage`` and ``gpucores``, of each card."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from gas.daemon import flag_values as values
from gas.daemon.flags import CommandFlags, PartFlags, flag
from gas.decision.annotations import MalformedAnnotation
from gas.decision.names import TIMESTAMP
from gas.objects.json_patch import Operation, Patch, pointer
from gas.objects.stored import NewPod, Node, Pod
from gas.placement.choice import Choice, ContainerChoice
from gas.placement.inventory import NO_COMPANY, Inventory
from gas.placement.need import ContainerNeed, PodNeed, Role
from gas.placement.order import DEFAULT_ORDER
from gas.placement.ratio import PERCENT, amounts_on
from gas.values.amounts import (
    MEMORY_MAX,
    MILLICORES,
    MILLICORES_OF_A_CARD,
    MalformedQuantity,
    MemoryUnit,
    parse_quantity,
    sorted_amounts,
)
from gas.values.card_facts import CardFacts
from gas.values.cards import Card
from gas.values.quoted import listed, quoted
from gas.vocabularies.hami import names, rules, texts
from gas.vocabularies.hami.names import KEYS, RESOURCES, Resources
from gas.vocabularies.hami.rules import MILLICORES_OF_PERCENT, Defaults
from gas.vocabularies.node_parts import allocatable_amount, allocatable_resources, recorded_cards
from gas.vocabularies.pod_parts import (
    ALONE,
    CARD_ORDER,
    PREFERENCES,
    need_facts,
    requested,
    requests_any,
    started_containers,
    unknown_resources,
    with_preferences,
    with_resources,
)
from gas.vocabularies.protocol import (
    BadNeed,
    ContainerFacts,
    DeviceOptions,
    NeedFacts,
    NeedOptions,
    NodeDescription,
    NodeFacts,
    Vocabulary,
)

_MIB = MemoryUnit.MIB.bytes

T = TypeVar("T")


def parse_resources(text: str) -> Resources:
    """Parse ``gpu=example.com/vgpu,gpumem=example.com/vmem``; those that are not named keep their names."""
    pairs = [tuple(part.strip() for part in each.partition("=")[::2]) for each in text.split(",") if each.strip()]
    renamed = {KEYS.get(key, key): name for key, name in pairs}
    resources = replace(RESOURCES, **renamed) if renamed.keys() <= set(KEYS.values()) else None
    every = [] if resources is None else [getattr(resources, each) for each in KEYS.values()]
    if len(renamed) < len(pairs) or len(set(every)) < len(KEYS) or not all(name.count("/") == 1 for name in every):
        raise ValueError(
            f"different full names of {', '.join(KEYS)}, as in gpu=example.com/vgpu,gpumem=example.com/vmem"
        )
    return resources or RESOURCES


def _flag(form: str, parse: Callable[[str], T], default: str, text: str, **more: str) -> T:
    both = "with the vocabulary hami. Set the same for gas-extender and gas-plugin."
    return flag(f"hami-{form}", parse, default, f"{text}, {both}", group="Vocabularies", **more)


@dataclass(frozen=True, slots=True, kw_only=True)
class HamiFlags(PartFlags):
    resources: Resources = _flag(  # noqa: RUF009 - it cannot be changed, like those of the other flags
        "resources=KEY=NAME,…",
        parse_resources,
        f"gpu={RESOURCES.gpu}",
        f"Other names of HAMi's resources {', '.join(KEYS)}",
        unset="each with nvidia.com/ before it",
    )
    places: int = _flag(
        "split-count=N", values.positive, "10", "How many containers may share one card, deviceSplitCount of HAMi"
    )
    cards: int = _flag("default-gpus=N", values.positive, "1", "Cards of a container that only states other amounts")
    memory: int = _flag(
        "default-memory=MIB", values.whole, "0", "MiB of each card of a container that states no memory; 0 means all"
    )
    cores: int = _flag(
        "default-cores=PERCENT", values.whole, "0", "Compute of each card of a container that states memory only"
    )
    factor: int = _flag("memory-factor=N", values.positive, "1", "MiB that 1 gpumem means")
    runtime_class: str = _flag(
        "runtime-class=NAME", str, "", "The webhook gives this runtimeClassName to pods without one", unset="none"
    )


@dataclass(frozen=True, slots=True)
class _Stated:
    """A card as a node states it."""

    card: Card
    memory: int  # bytes
    places: int  # 0 if it cannot be given to containers now
    healthy: bool
    millicores: int = MILLICORES_OF_A_CARD
    model: str = ""  # only of a node without records, as are NUMA nodes
    numa_node: int | None = None


@dataclass(frozen=True, kw_only=True)
class Hami(Vocabulary):
    """The vocabulary of pods that request parts of NVIDIA's cards as with HAMi; all amounts are of each card.

    A card has some device ids, one for each container that may share it. Nodes that gas-plugin has not recorded yet
    state their cards in HAMi's annotation. Of pods that HAMi has bound, the amounts in its annotation are booked.
    """

    name = "hami"
    reference = names.REFERENCE
    component = names.COMPONENT
    flags = HamiFlags
    user_annotations = PREFERENCES | names.USER_ANNOTATIONS
    replaces = frozenset({RESOURCES.gpu})
    asking = completed = names.ASKING
    metadata = frozenset({names.ALLOCATED, TIMESTAMP})
    choice_annotations = frozenset({names.NODE, names.TIME, names.ALLOCATED}) | names.LEFT_OVER
    label_annotations = frozenset({names.NODE})
    written = names.WRITTEN
    own: Resources = RESOURCES
    defaults: Defaults = field(default_factory=Defaults)
    places: int = 10
    runtime_class: str = ""

    def with_flags(self, flags: CommandFlags) -> Vocabulary:
        given = flags.of(HamiFlags)
        defaults = Defaults(cards=given.cards, memory=given.memory, cores=given.cores, factor=given.factor)
        return Hami(own=given.resources, defaults=defaults, places=given.places, runtime_class=given.runtime_class)

    @property
    def resources(self) -> tuple[str, ...]:
        return (self.own.gpu,)

    @property
    def managed_resources(self) -> tuple[str, ...]:
        return (*self.own.asking, self.own.priority)

    @property
    def ignored_resources(self) -> frozenset[str]:
        return frozenset(self.managed_resources) - {self.own.gpu}

    def matches(self, pod: Pod) -> bool:
        return any(requests_any(pod, name) for name in self.own.asking)

    # Pods

    def need(self, facts: NeedFacts, options: NeedOptions) -> PodNeed:
        annotations = facts.annotations
        need = rules.with_choices(rules.pod_need(facts, self.own, self.defaults, bound=False), annotations)
        own, policies = rules.card_order(annotations), rules.card_policies(annotations)
        default = rules.SPREAD if options.card_order == DEFAULT_ORDER else options.card_order
        preferred = with_preferences(need, annotations, options, default)
        return replace(
            preferred,
            order=preferred.order if own is None or annotations.get(CARD_ORDER) else own,
            near=preferred.near or "numa" in policies or ("topology-aware" in policies and need.cards > 1),
            node_score=preferred.node_score or rules.node_score(annotations),
        )

    def booked_need(self, facts: NeedFacts) -> PodNeed:
        need = rules.pod_need(facts, self.own, self.defaults, bound=True)
        if (places := _decided_by_hami(facts.annotations)) is None:
            return replace(need, idle=False, unfilled=frozenset())
        asking, apps = self._asking(facts)
        of_container = texts.aligned(places, asking, apps)
        if of_container is None:
            of_container = {asking[0] if asking else 0: texts.total(places)}
        containers = tuple(_stated_need(each, of_container.get(at, {})) for at, each in enumerate(facts.containers))
        is_exclusive = any((MILLICORES, MILLICORES_OF_A_CARD) in each.per_card for each in containers)
        company = ALONE if is_exclusive else NO_COMPANY
        return PodNeed(containers, company=company, count_resources=need.count_resources)

    def _asking(self, facts: NeedFacts) -> tuple[list[int], list[int]]:
        """Return the positions of all containers that ask for cards, and of the app containers among them."""
        asking = [at for at, each in enumerate(facts.containers) if requested(each, self.own.gpu)]
        return asking, [at for at in asking if facts.containers[at].role is Role.APP]

    def contradiction(self, pod: Pod) -> str:
        try:
            places, facts = _decided_by_hami(pod.annotations), need_facts(pod)
            if places is None or texts.aligned(places, *self._asking(facts)) is not None:
                return ""
            asking = len(self._asking(facts)[0])
        except (BadNeed, MalformedAnnotation):
            return ""
        return (
            f"annotation {names.ALLOCATED}: expected cards of the {asking} container(s) that ask for cards, found those"
            f" of {len(places)}; all of these cards are booked"
        )

    # Choices

    def write(self, pod: Pod, need: PodNeed, choice: Choice, time_ns: int, node: NodeFacts | None) -> Mapping[str, str]:
        """Return HAMi's annotations; none if a card has no UUID, since its tools know cards by nothing else."""
        uuids = {card: uuid for uuid, card in node.uuids.items()} if node is not None else {}
        if node is None or not all(card in uuids for each in choice.containers for card in each.cards):
            return {}
        capacity = node.inventory.capacity

        def share(container: ContainerNeed, card: Card) -> texts.Share:
            taken = amounts_on(capacity.get(card, {}), dict(container.per_card), container.ratios)
            return texts.Share(taken.get(MEMORY_MAX, 0) // _MIB, taken.get(MILLICORES, 0) // MILLICORES_OF_PERCENT)

        places = [
            [(uuids[card], share(container, card)) for card in chosen.cards]
            for container, chosen in zip(need.containers, choice.containers, strict=True)
        ]
        return {
            names.NODE: node.name,
            names.TIME: str(time_ns // 10**9),
            names.ALLOCATED: texts.format_allocated(places),
        }

    def read(self, pod: Pod, need: PodNeed, node: NodeFacts | None) -> Choice | None:
        """Return the cards that HAMi has decided, as far as the node's UUIDs name them; None if they name none."""
        places = _decided_by_hami(pod.annotations)
        if places is None or node is None or pod.annotations.get(names.NODE, pod.node_name) != pod.node_name:
            return None
        cards = texts.cards_of(places, need, node.uuids)
        return Choice(tuple(map(ContainerChoice, cards))) if any(cards) else None

    # Nodes

    def source(self, node: Node) -> Hashable:
        problems: list[str] = []
        stated = self._stated(node, problems)
        return (stated, self._cordoned(node, problems), tuple(problems)) if stated or problems else ()

    def facts(self, node: Node) -> NodeFacts | None:
        problems: list[str] = []
        stated = self._stated(node, problems)
        if not stated and not problems:
            return None
        capacity: dict[Card, Mapping[str, int]] = {}
        groups: dict[int, list[Card]] = {}
        for each in stated:
            if each.healthy:
                amounts = {names.PLACES: each.places, MEMORY_MAX: each.memory, MILLICORES: each.millicores}
                capacity[each.card] = {name: amount for name, amount in amounts.items() if amount}
                if each.numa_node is not None:
                    groups.setdefault(each.numa_node, []).append(each.card)
        inventory = Inventory(
            capacity=capacity,
            disabled=self._cordoned(node, problems),
            numa_groups=tuple(map(tuple, groups.values())) or None,
            models={each.card: each.model for each in stated if each.model},
        )
        return NodeFacts(inventory=inventory, problems=tuple(problems))

    def uuids(self, node: Node) -> Mapping[str, Card]:
        return {each.id: card for card, each in texts.numbered(_registered(node, [])).items()}

    def _stated(self, node: Node, problems: list[str]) -> tuple[_Stated, ...]:
        """Return the cards that the node states in these words."""
        allocatable = allocatable_resources(node)
        if self.own.gpu not in allocatable and names.REGISTER not in node.annotations:
            return ()
        is_offered = bool(allocatable_amount(allocatable, self.own.gpu, problems))
        register = _registered(node, problems)
        if recorded := recorded_cards(node):
            places = {each.id: each.count for each in register if each.count}
            return tuple(
                _Stated(
                    each.card,
                    each.memory or 0,
                    is_offered * places.get(each.uuid, self.places),
                    each.healthy,
                    each.millicores,
                )
                for each in recorded
                if each.driver == "nvidia" and not each.card.is_instance
            )
        return tuple(
            _Stated(
                card,
                each.devmem * _MIB,
                is_offered * each.count * (each.mode in ("", names.HAMI_CORE)),
                each.health,
                model=texts.model_of(each),
                numa_node=each.numa,
            )
            for card, each in texts.numbered(register).items()
        )

    def _cordoned(self, node: Node, problems: list[str]) -> frozenset[Card]:
        """Return the cards on which nothing new may start."""
        entries = {each.strip() for each in node.annotations.get(names.CORDON, "").split(",")} - {""}
        if not entries:
            return frozenset()
        known = {each.uuid: each.card for each in recorded_cards(node) if each.uuid} or self.uuids(node)
        if unknown := sorted(entries - known.keys()):
            problems.append(
                f"annotation {names.CORDON}: expected UUIDs of the node's cards, found {listed(unknown[:3])}; they are"
                " ignored"
            )
        return frozenset(known[each] for each in entries & known.keys())

    # Devices

    def ids_per_card(self, card: CardFacts, options: DeviceOptions) -> Mapping[str, int]:
        return {self.own.gpu: self.places} if card.driver == "nvidia" and not card.card.is_instance else {}

    def fewer_ids(self, resource: str) -> str:
        return "lower --hami-split-count of plugin and extender"

    def describe(self, cards: Sequence[CardFacts], options: DeviceOptions) -> NodeDescription:
        own = [card for card in cards if self.ids_per_card(card, options)]
        registered = texts.registered(own, self.places)
        return NodeDescription(annotations={names.REGISTER: texts.format_register(registered)} if registered else {})

    def environment(self, pod: Pod, container: str, cards: Sequence[CardFacts], node: NodeFacts) -> Mapping[str, str]:
        found = (each for each in need_facts(pod).containers if each.name == container)
        priority = next((each.requests.get(self.own.priority) for each in found), None)
        return {} if priority is None else {names.PRIORITY: str(priority)}

    # New pods

    def faults(self, pod: Pod) -> Sequence[str]:
        return [
            *unknown_resources(pod, self.own.gpu, self.own.asking),
            *(
                f"container {quoted(each.name)} is privileged and would see all cards; remove that or {self.own.gpu}"
                for each, _ in started_containers(pod)
                if each.is_privileged
            ),
        ]

    def warnings(self, pod: Pod, options: NeedOptions) -> Sequence[str]:
        try:
            return list(self._warnings(pod))
        except BadNeed:  # which refuses the pod
            return ()

    def _warnings(self, pod: Pod) -> Iterator[str]:
        resources = self.own
        for container in need_facts(pod).containers:
            asked, where = rules.amounts_of(container, resources), f"container {quoted(container.name)}"
            mib = asked.get(resources.gpumem, 0) * self.defaults.factor
            if mib and asked.get(resources.gpumem_percentage):
                yield f"{where}: {resources.gpumem_percentage} has no effect beside {resources.gpumem}"
            if 0 < mib < rules.LEAST_MIB:
                yield f"{where}: {resources.gpumem} means only {mib} MiB of each card"
            if (cores := asked.get(resources.gpucores, 0)) > PERCENT:
                yield f"{where}: {resources.gpucores}: {cores} means {PERCENT}, a whole card"
        policies = rules.card_policies(pod.annotations)
        if unknown := sorted({*policies} - {"", *rules.CARD_POLICIES}):
            yield f"{names.CARD_POLICY}: {listed(unknown[:3])} is not known and means spread"
        if (policy := pod.annotations.get(names.NODE_POLICY)) not in (None, "binpack", "spread"):
            yield f"{names.NODE_POLICY}: {quoted(policy[:40])} is not known and means binpack"
        need = rules.pod_need(need_facts(pod), resources, self.defaults, bound=True)
        if "topology-aware" in policies and need.cards < 2:
            yield f"{names.CARD_POLICY}: topology-aware has no effect on a pod with one card"

    def complete(self, pod: NewPod) -> Patch:
        """Return the number of cards and the compute that HAMi's webhook adds, and the runtime class."""
        patch: list[Operation] = []
        for part, containers in (("initContainers", pod.spec.init_containers), ("containers", pod.spec.containers)):
            for at, container in enumerate(containers or ()):
                limits = (container.resources.limits if container.resources is not None else None) or {}
                stated = {
                    name: text for name, text in {**limits, **container.requests}.items() if name in self.own.asking
                }
                try:
                    asked = {name: parse_quantity(text) for name, text in stated.items()}
                except MalformedQuantity:
                    continue
                wanted = rules.completed(asked, self.own, self.defaults)
                texts_of = {name: str(stated.get(name, amount)) for name, amount in wanted.items()}
                patch += with_resources(container, ("spec", part, str(at)), texts_of)
        if self.runtime_class and self.matches(pod) and not pod.spec.runtime_class_name:
            patch.append(Operation("add", pointer("spec", "runtimeClassName"), self.runtime_class))
        return tuple(patch)


HAMI = Hami()


def _decided_by_hami(annotations: Mapping[str, str]) -> tuple[texts.Place, ...] | None:
    """Return the places in which HAMi has written a pod's cards; None if it has not. Raises BadNeed."""
    text = annotations.get(names.ALLOCATED)
    if not text or annotations.get(TIMESTAMP):
        return None
    try:
        return texts.parse_allocated(text) or None
    except MalformedAnnotation as malformed:
        raise BadNeed(str(malformed)) from None


def _stated_need(container: ContainerFacts, place: texts.Place) -> ContainerNeed:
    """Return the need of a container of a pod that HAMi has bound: of each card the largest amounts that it states."""
    if not place:
        return ContainerNeed(container.name, role=container.role)
    per_card = {
        names.PLACES: 1,
        MEMORY_MAX: max(share.mib for share in place.values()) * _MIB,
        MILLICORES: max(share.percent for share in place.values()) * MILLICORES_OF_PERCENT,
    }
    amounts = sorted_amounts({name: amount for name, amount in per_card.items() if amount})
    return ContainerNeed(container.name, len(place), amounts, container.role)


def _registered(node: Node, problems: list[str]) -> tuple[texts.Registered, ...]:
    """Return the cards in HAMi's annotation of a node; none, and a problem, if it cannot be read."""
    if not (text := node.annotations.get(names.REGISTER)):
        return ()
    try:
        return texts.parse_register(text)
    except ValueError as invalid:
        problems.append(f"annotation {names.REGISTER}: {invalid}; it is ignored")
        return ()
