"""Pods in the words of every vocabulary, chosen at random, and what they take of cards by the API's objects alone.

Nothing here uses code of the program under test.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from math import ceil
from random import Random

from tests.e2e.kube_api import Object
from tests.e2e.pods import asking, container, pod
from tests.e2e.written_cards import amount, written_containers

GIB = 2**30
FIRST_OF_NVIDIA = 1000
PLACES = {"intel": 10, "koordinator": 100}
"""Containers that a card takes in the words that limit their number."""

_MARKS = {
    "gpu.intel.com/": "intel",
    "aliyun.com/gpu-mem": "aliyun",
    "kubeshare/vgpu": "kubeshare",
    "koordinator.sh/": "koordinator",
    "nvidia.com/gpu": "vendor",
}
"""Beginnings of resources -> the words that they belong to."""


def words_of(written: Object) -> str:
    """Return the words of a pod, by what its containers request."""
    found = {
        words
        for each in written["spec"]["containers"]
        for resource in each["resources"]["limits"]
        for mark, words in _MARKS.items()
        if resource.startswith(mark)
    }
    (words,) = found
    return words


def random_pod(name: str, rng: Random, words: str = "") -> Object:
    """Return a pod in these words, or in random ones, that fits an empty node."""
    if not words:
        (words,) = rng.choices(list(_SHAPES), [weight for _, weight in _SHAPES.values()])
    shape, _ = _SHAPES[words]
    return shape(name, rng)


def _intel(name: str, rng: Random) -> Object:
    cards = rng.choice((1, 1, 1, 2))
    needs = container(
        i915=cards, millicores=cards * rng.choice((100, 300)), memory_max=f"{cards * rng.randint(1, 3)}Gi"
    )
    return pod(name, needs)


def _aliyun(name: str, rng: Random) -> Object:
    several = [asking({"aliyun.com/gpu-mem": rng.randint(1, 2)}, each) for each in ("a", "b")]
    return pod(name, *rng.choice((several, [asking({"aliyun.com/gpu-mem": rng.randint(1, 4)})])))


def _kubeshare(name: str, rng: Random) -> Object:
    share = {
        "kubeshare/gpu_request": rng.choice(("0.1", "0.2", "0.3335", "0.6")),
        "kubeshare/gpu_limit": "1.0",
        "kubeshare/gpu_mem": str(rng.randint(0, 3) * GIB),
        **rng.choice(({}, {}, {"kubeshare/sched_exclusion": "blue"}, {"kubeshare/GPUID": "mine"})),
    }
    return pod(name, asking({"kubeshare/vgpu": 1}), annotations=share)


def _koordinator(name: str, rng: Random) -> Object:
    cards = rng.choice((1, 1, 2))
    parts: dict[str, int] = {"koordinator.sh/gpu.shared": cards}
    parts |= rng.choice(
        (
            {"koordinator.sh/gpu-memory-ratio": cards * 30, "koordinator.sh/gpu-core": cards * 25},
            {"koordinator.sh/gpu-memory-ratio": cards * 45},
            {"koordinator.sh/gpu-memory": cards * 2 * GIB, "koordinator.sh/gpu-core": cards * 50},
        )
    )
    return pod(name, asking(parts))


def _vendor(name: str, rng: Random) -> Object:
    return pod(name, asking({"nvidia.com/gpu": rng.choice((1, 1, 2))}))


_SHAPES: dict[str, tuple[Callable[[str, Random], Object], int]] = {
    "intel": (_intel, 3),
    "aliyun": (_aliyun, 3),
    "kubeshare": (_kubeshare, 4),
    "koordinator": (_koordinator, 3),
    "vendor": (_vendor, 3),
}
"""Words -> the shape of their pods, and how often it comes, relative to the others."""

ALL_WORDS = tuple(_SHAPES)


def over_capacity(pods: Iterable[Object], memory: Mapping[str, int]) -> list[str]:
    """Return sentences about cards of which the bound pods take more than there is, or that pods must not share.

    pods    bound ones that have not ended
    memory  card -> bytes
    """
    found: list[str] = []
    sums: dict[str, Counter[str]] = {card: Counter() for card in memory}
    companies: dict[str, dict[str, str]] = {card: {} for card in memory}
    for each in pods:
        name = each["metadata"]["name"]
        try:
            taken = _taken(each, memory)
        except ValueError as error:
            found.append(f"pod {name}: {error}")
            continue
        for card, amounts in taken.items():
            sums[card].update(amounts)
            companies[card][name] = _company(each)
    for card, taken_of_card in sums.items():
        capacity = {"memory": memory[card], "millicores": 1000, **PLACES}
        found += [
            f"{card}: {taken} of {capacity[what]} {what} are taken by {sorted(companies[card])}"
            for what, taken in taken_of_card.items()
            if taken > capacity[what]
        ]
        if len(set(companies[card].values())) > 1:
            found.append(f"{card}: these pods must not share it: {companies[card]}")
    return found


def _taken(written: Object, memory: Mapping[str, int]) -> dict[str, Counter[str]]:
    """Return card -> what a pod takes of it. Raises ValueError if the cards written on it cannot be its cards."""
    words = words_of(written)
    found: dict[str, Counter[str]] = {}
    for of_container, spec in zip(written_containers(written), written["spec"]["containers"], strict=True):
        limits = {resource: amount(text) for resource, text in spec["resources"]["limits"].items()}
        count = _count(words, limits)
        cards = of_container.cards
        if len(set(cards)) != count or len(cards) != count or not set(cards) <= set(memory):
            raise ValueError(f"container {of_container.name} asks for {count} card(s), written are {cards}")
        wanted = _OF_NVIDIA.get(words)
        if wanted is not None and any(_is_nvidias(card) is not wanted for card in cards):
            raise ValueError(f"container {of_container.name}: {cards} are not cards for the words of {words}")
        for card in cards:
            found.setdefault(card, Counter()).update(_of_container(words, limits, count, memory[card]))
    if words in ("aliyun", "kubeshare"):
        if len(found) != 1:
            raise ValueError(f"its containers have different cards: {sorted(found)}")
        (card,) = found
        found[card].update(_of_pod(words, written["metadata"]["annotations"], found[card], memory[card]))
    return found


_OF_NVIDIA = {"intel": False, "vendor": True}
"""Words that are about the cards of one vendor -> whether it is NVIDIA."""


def _is_nvidias(card: str) -> bool:
    return int(card.removeprefix("card")) >= FIRST_OF_NVIDIA


def _count(words: str, limits: Mapping[str, int]) -> int:
    if words == "aliyun":
        return 1
    names = {
        "intel": "gpu.intel.com/i915",
        "kubeshare": "kubeshare/vgpu",
        "koordinator": "koordinator.sh/gpu.shared",
        "vendor": "nvidia.com/gpu",
    }
    return limits[names[words]]


def _of_container(words: str, limits: Mapping[str, int], count: int, memory: int) -> dict[str, int]:
    """Return what a container takes of each of its cards, without what counts once for the pod."""
    if words == "intel":
        asked = {
            what: limits[f"gpu.intel.com/{name}"] for what, name in (("memory", "memory.max"), ("millicores",) * 2)
        }
        return {"intel": 1} | {what: ceil(Fraction(number, count)) for what, number in asked.items()}
    if words == "aliyun":
        return {"memory": limits["aliyun.com/gpu-mem"] * GIB}
    if words == "koordinator":
        asked_of_card = Fraction(limits.get("koordinator.sh/gpu-memory", 0), count)
        percent = Fraction(limits.get("koordinator.sh/gpu-memory-ratio", 0), count)
        core = Fraction(limits.get("koordinator.sh/gpu-core", 0), count)
        # A part of a byte that a percentage leaves does not count: 45, 30 and 25 percent are a whole card.
        taken = ceil(asked_of_card) + int(memory * percent / 100)
        return {"memory": taken, "millicores": ceil(core * 10), "koordinator": 1}
    return {"memory": memory, "millicores": 1000} if words == "vendor" else {}


def _of_pod(words: str, annotations: Mapping[str, str], taken: Mapping[str, int], memory: int) -> dict[str, int]:
    """Return what counts once for the pod."""
    if words == "aliyun":
        return {"millicores": 1000 * taken["memory"] // memory}
    return {
        "memory": int(annotations["kubeshare/gpu_mem"]),
        "millicores": ceil(Fraction(annotations["kubeshare/gpu_request"]) * 1000),
    }


def _company(written: Object) -> str:
    """Return what all pods of a card must have in common. A whole card has one pod."""
    if words_of(written) == "vendor":
        return f"alone: {written['metadata']['name']}"
    return str(written["metadata"].get("annotations", {}).get("kubeshare/sched_exclusion", ""))
