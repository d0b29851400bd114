"""The pages name everything that the code has for users, and nothing that does not exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gas.commands import all_commands
from gas.daemon.flags import flags_of
from gas.decision import names as decision
from gas.placement import card_rules, refusal
from gas.plugin.kubelet.device_server import Outcome
from gas.values.card_records import ANNOTATION
from gas.values.cards import Card
from gas.vocabularies.intel import names
from scripts.reference import NODE_ANNOTATIONS, NODE_LABELS, POD_ANNOTATIONS, PROGRAMS, metrics

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
DEPLOY = ROOT / "deploy" / "base"
PATHS = {
    **{name: ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")},
    **{page.relative_to(DOCS).as_posix(): page for page in sorted(DOCS.rglob("*.md"))},
}
PAGES = {name: path.read_text(encoding="utf-8") for name, path in PATHS.items()}
"""The text of every page by its path below docs/, or by its name if it is at the top."""
EXTENDER, PODS, NODES = PAGES["extender.md"], PAGES["pods.md"], PAGES["nodes.md"]
TROUBLESHOOTING = PAGES["troubleshooting.md"]

OTHER_NAMES = {flag.other_name for program in PROGRAMS for flag in flags_of(program)}
OWN_FLAGS = {program.program: {flag.name for flag in flags_of(program)} for program in PROGRAMS} | {
    f"{program} {command.name}": {name.lstrip("-") for option in command.params for name in option.opts}
    for command in all_commands.loaded()
    for program in ("kubectl gas", "gas")
}
IGNORED_FLAGS = {flag.name for program in PROGRAMS for group in program.core.ignored for flag in group.flags}
OTHERS_FLAGS = {
    "kube-scheduler": {
        "config",
        "contention-profiling",
        "kube-api-burst",
        "kube-api-content-type",
        "kube-api-qps",
        "lock-object-name",
        "lock-object-namespace",
        "profiling",
    },
    "kube-apiserver": {"admission-control-config-file"},
    "kubelet": {"root-dir"},
    "kubectl": {"grace-period"},
    "helm": {"server-side"},
    "koord-manager": {"noderesource-plugins"},
}
"""Flags of other programs that the pages name, by program."""
COMMAND = re.compile(rf"(?:sudo )?(?:/\S*/)?({'|'.join(OWN_FLAGS)})(?![\w.-])([^#|;]*)")
"""A command of this project, with or without sudo and path: ``sudo gas doctor -o=json``."""
SOURCES = "\n".join(file.read_text(encoding="utf-8") for file in sorted((ROOT / "gas").rglob("*.py")))

LABELS_OF_CARDS = tuple(
    label for label in vars(names).values() if isinstance(label, str) and re.match(f"{re.escape(names.PREFIX)}.", label)
)
CLOSED_PLACES = {
    names.DISABLE_CARD: "cardN",
    names.DESCHEDULE_CARD: "cardN",
    names.PREFER_CARD: "",
    names.DISABLE_TILE: "cardN_gtM",
    names.DESCHEDULE_TILE: "cardN_gtM",
    names.PREFER_TILE: "cardN",
}
"""Telemetry labels, and the text that follows the name of each."""
RULES_OF_PODS = sorted(
    {name for name in vars(names).values() if isinstance(name, str) and name.startswith("gas-")}
    - CLOSED_PLACES.keys()
    - {row[0] for row in NODE_ANNOTATIONS}
)
"""Annotations that users write on pods: every other name of the vocabulary that begins with gas-."""


METRICS = {row[0] for rows in metrics().values() for row in rows}


def table_rows(page: str) -> Iterator[list[str]]:
    """Yield the cells of every row of every table, without code quotes."""
    for line in page.splitlines():
        if line.startswith("| "):
            yield [cell.strip().replace("`", "") for cell in line.strip().strip("|").split("|")]


def code_spans(page: str) -> list[str]:
    text = re.sub(r"^ *```.*?^ *```$", "", page, flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"`([^`\n]+)`", text)


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^ *```{language}\n(.*?)^ *```$", page, re.DOTALL | re.MULTILINE)


def own_commands(page: str) -> list[tuple[str, str]]:
    """Return this project's commands in code spans and shell blocks: the program and the rest of the line."""
    lines = "\n".join(blocks(page, "sh")).replace("\\\n", " ").splitlines()
    found = (COMMAND.match(line.strip()) for line in [*lines, *code_spans(page)])
    return [(match[1], match[2]) for match in found if match]


def anchors(page: str) -> set[str]:
    """Return the anchors of a page: those that renderers make from headings, and those that are written out."""
    prose = re.sub(r"^ *```.*?^ *```$", "", page, flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    made = {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}
    return made | set(re.findall(r'<a id="([^"]+)">', page))


@pytest.mark.parametrize("page", [page for page in PAGES if page != "CHANGELOG.md"])
def test_a_page_names_only_flags_that_exist(page: str) -> None:
    """The changelog may name flags of the past."""
    known = set().union(*OWN_FLAGS.values(), *OTHERS_FLAGS.values(), IGNORED_FLAGS, OTHER_NAMES, {"h"})
    named = {match[1] for span in code_spans(PAGES[page]) if (match := re.match(r"--?([A-Za-z][\w-]*)", span))}
    assert named <= known


@pytest.mark.parametrize("page", PAGES)
def test_commands_have_only_flags_that_exist(page: str) -> None:
    for program, rest in own_commands(PAGES[page]):
        used = {match[1] for word in rest.split() if (match := re.match(r"--?([A-Za-z][\w-]*)", word))}
        assert used <= OWN_FLAGS[program] | {"h"}, f"{program}{rest}"


def test_every_listed_flag_of_another_program_is_named_by_a_page() -> None:
    spans = {span.lstrip("-").partition("=")[0] for page in PAGES.values() for span in code_spans(page)}
    assert set().union(*OTHERS_FLAGS.values()) <= spans


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_only_metrics_that_exist(page: str) -> None:
    named = set(re.findall(r"gas_(?:extender|plugin)_\w+[a-z]", PAGES[page]))
    assert named <= METRICS


@pytest.mark.parametrize("outcome", Outcome)
def test_the_reference_has_every_outcome_of_a_response_to_kubelet(outcome: Outcome) -> None:
    assert re.search(rf"`gas_plugin_answers_total` .*\b{outcome}\b", PAGES["reference.md"])


def test_pages_name_exactly_the_events_that_the_code_writes() -> None:
    written = set(re.findall(r"\"((?:No|Invalid)?GPU[A-Z][a-z][A-Za-z]+)\"", SOURCES))
    pages = [text for page, text in PAGES.items() if page != "CHANGELOG.md"]
    named = {event for page in pages for event in re.findall(r"\b(?:No|Invalid)?GPU[A-Z][a-z][A-Za-z]+\b", page)}
    assert written == named


@pytest.mark.parametrize("resource", [*names.COUNT_RESOURCES, *names.MONITORING_RESOURCES, names.TILES])
def test_the_page_on_pods_has_the_resource(resource: str) -> None:
    assert f"`{names.PREFIX}{resource}`" in PODS


@pytest.mark.parametrize("annotation", [*RULES_OF_PODS, *decision.WRITTEN_ANNOTATIONS])
def test_the_pages_on_pods_and_names_have_the_annotation(annotation: str) -> None:
    assert f"`{annotation}`" in PODS
    assert annotation in {row[0] for row in POD_ANNOTATIONS}


def test_the_page_on_pods_has_the_label() -> None:
    assert f"`{decision.DESCHEDULE_POD_LABEL}={decision.DESCHEDULE_POD_VALUE}`" in PODS


@pytest.mark.parametrize("label", LABELS_OF_CARDS)
def test_the_pages_on_nodes_and_names_have_the_label(label: str) -> None:
    assert label in {row[0] for row in table_rows(NODES)}
    assert label in {row[0] for row in NODE_LABELS}


@pytest.mark.parametrize(("name", "place"), CLOSED_PLACES.items())
def test_the_page_on_nodes_has_the_telemetry_label(name: str, place: str) -> None:
    assert name + place in {row[0] for row in table_rows(NODES)}


def test_the_page_on_nodes_has_the_telemetry_namespace_and_the_value_for_a_pci_group() -> None:
    assert f"`{names.TELEMETRY_PREFIX}POLICY/`" in NODES
    assert f"`{names.WHOLE_PCI_GROUP}`" in NODES


@pytest.mark.parametrize("annotation", [ANNOTATION, names.CARD_CAPACITY, decision.RELEASED])
def test_the_page_on_nodes_has_the_annotation(annotation: str) -> None:
    assert f"`{annotation}`" in NODES


REFUSALS = [
    each
    for each in (vars(refusal) | vars(card_rules)).values()
    if isinstance(each, type) and issubclass(each, refusal.Refusal) and hasattr(each, "kind")
]


@pytest.mark.parametrize("kind", [each.kind for each in REFUSALS])
def test_the_troubleshooting_page_has_each_kind_of_refusal(kind: str) -> None:
    assert kind in {row[1] for row in table_rows(TROUBLESHOOTING) if len(row) == 3}


@pytest.mark.parametrize(
    "refused",
    [
        refusal.NoRoom(refusal.Shortage(1, 0, (("memory.max", 5_000_000_000),))),
        refusal.NoRoom(refusal.Shortage(2, 1, (("millicores", 500),))),
        refusal.FewerCardsThanWanted("main", 4, 2),
        refusal.ResourceNotOnNode("tiles"),
        card_rules.CardsDisabled((Card(0),)),
        card_rules.CardsDisabled((Card(0), Card(1), Card(2))),
        refusal.NoNumaGroup(None),
        refusal.NoLinkedPairs(1, ()),
        refusal.NoCards(),
        refusal.UnknownNode(),
        refusal.SearchLimitHit(5000),
    ],
    ids=lambda refused: refused.kind,
)
def test_the_troubleshooting_page_has_the_exact_sentence(refused: refusal.Refusal) -> None:
    assert f"`{refused}`" in TROUBLESHOOTING


FOLDERS = ("gas", "configurator", "deploy", "examples", "tests", "scripts", "benchmarks", "simulation", "docs")
PROJECT_PATH = re.compile(rf"(?<![\w/.-])(?:{'|'.join(FOLDERS)})/[\w/+.,{{}}*-]*")


def expanded(path: str) -> Iterator[str]:
    """Yield the paths that a pattern with one pair of braces names: ``gas/{cards,amounts}.py``."""
    before, brace, rest = path.partition("{")
    if not brace:
        yield path
        return
    names_in_braces, _, after = rest.partition("}")
    yield from (f"{before}{name}{after}" for name in names_in_braces.split(","))


def exists(path: str) -> bool:
    """Return whether a path of the project is there: a file, a folder, a module without its ending, a pattern."""
    path = path.rstrip(".,/")
    return any(ROOT.glob(path)) or (ROOT / f"{path}.py").is_file()


@pytest.mark.parametrize("page", [page for page in PAGES if page != "CHANGELOG.md"])
def test_a_page_names_only_files_and_modules_that_exist(page: str) -> None:
    code = "\n".join([*code_spans(PAGES[page]), *blocks(PAGES[page], "sh")])
    named = {each for path in PROJECT_PATH.findall(code) for each in expanded(path)}
    assert sorted(path for path in named if not exists(path)) == []


@pytest.mark.parametrize("page", [page for page in PAGES if page != "CHANGELOG.md"])
def test_a_page_names_only_python_modules_that_exist(page: str) -> None:
    modules = {
        name
        for span in code_spans(PAGES[page])
        for name in re.findall(r"(?<![\w/])(?:gas|configurator)(?:\.\w+)+", span)
    }
    found = (re.sub(r"(\.[A-Z]\w*)+(\.\w+)*$", "", name).replace(".", "/") for name in modules)
    assert sorted(path for path in found if not exists(path)) == []


@pytest.mark.parametrize("page", sorted(PAGES.keys() - {"README.md", "CONTRIBUTING.md", "CHANGELOG.md"}))
def test_the_readme_links_to_every_page_of_docs(page: str) -> None:
    assert f"](docs/{page})" in PAGES["README.md"]


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", PAGES[page]):
        if target.startswith("https://"):
            continue
        file, _, anchor = target.partition("#")
        path = PATHS[page].parent / file if file else PATHS[page]
        assert path.exists(), target
        if anchor:
            assert anchor in anchors(path.read_text(encoding="utf-8")), target


EXERCISES = re.findall(r"^### ([^\n]+)\n(.*?)(?=^### |\Z)", PAGES["CONTRIBUTING.md"], re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(("title", "text"), EXERCISES, ids=[title for title, _ in EXERCISES])
def test_an_exercise_names_the_files_and_a_test(title: str, text: str) -> None:
    files = [path for span in code_spans(text) for path in PROJECT_PATH.findall(span)]
    assert any(path.startswith("gas/") for path in files), title
    assert any(path.startswith("tests/") for path in files), title


def test_the_contributing_page_has_the_exercises() -> None:
    titles = {title for title, _ in EXERCISES}
    assert titles >= {
        "Add a metric",
        "Add a flag",
        "Add a refusal",
        "Add a node label",
        "Add a placement rule",
        "Add a vocabulary",
        "Add a subcommand",
    }
