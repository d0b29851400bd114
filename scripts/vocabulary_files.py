"""The files of deploy/ that state names of the vocabularies, as texts; `scripts.manifest` writes them.

Most of each file is written by hand, and only the names are filled in. What a vocabulary has to state here is declared
in its own package, see `gas.vocabularies.declared`.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

from gas.decision import names as decision
from gas.values.card_records import ANNOTATION
from gas.vocabularies.declared import Beginnings, Component
from gas.vocabularies.known import KNOWN
from gas.vocabularies.protocol import Vocabulary
from gas.vocabularies.selection import DEFAULT_NAMES

DEPLOY = Path(__file__).resolve().parent.parent / "deploy"
WEBHOOKS = DEPLOY / "components/admission/webhooks.yaml"
POLICY = DEPLOY / "base/plugin/own-node-only.yaml"
SCHEMA = DEPLOY / "chart/values.schema.json"
CHART_RESOURCES = DEPLOY / "chart/files/managed-resources.json"

_WIDTH = 120
_LIST = r"\[[^\]]*\]"
_COMPLETING = "  - name: complete.pods.gas\n"


def vocabulary_files() -> dict[Path, str]:
    """Return the texts of all these files, with what is written by hand as it stands in them."""
    filled = {WEBHOOKS: _webhooks, POLICY: _policy, SCHEMA: _schema}
    texts = {file: fill(file.read_text(encoding="utf-8")) for file, fill in filled.items()}
    texts[CHART_RESOURCES] = json.dumps({each.name: each.pods.resources for each in KNOWN}, indent=2) + "\n"
    for vocabulary in KNOWN:
        if vocabulary.component is not None:
            file = DEPLOY / "components" / vocabulary.name / "kustomization.yaml"
            texts[file] = _component(vocabulary, vocabulary.component)
    return texts


def _webhooks(text: str) -> str:
    """Fill in by which names the API server knows the pods that it asks about."""
    checking, separator, completing = text.partition(_COMPLETING)
    asking = _condition(checking, [each.pods.asking for each in KNOWN], times=2)
    return asking + separator + _condition(completing, [each.admission.completed for each in KNOWN], times=1)


def _condition(text: str, beginnings: Sequence[Beginnings], *, times: int) -> str:
    resources = _cel_list(name for each in beginnings for name in each.resources)
    annotations = " || ".join(f"name.startsWith('{name}')" for each in beginnings for name in each.annotations)
    text = _filled(text, rf"(){_LIST}(?=\.exists\(beginning,)", resources, times)
    annotated = r"(metadata\.\?annotations\.orValue\(\{\}\)\.exists\(name, )(?:[^()]*\([^()]*\))+(?=\))"
    return _filled(text, annotated, annotations, times)


def _policy(text: str) -> str:
    """Fill in what the plugin may write on its node and the pods there."""
    written = [each.devices.written for each in KNOWN]
    lists = {
        "nodeLabels": [name for each in written for name in each.labels],
        "nodeResources": [name for each in written for name in each.resources],
        "nodeAnnotations": [ANNOTATION, *(name for each in written for name in each.annotations)],
        "podAnnotations": [
            decision.ALLOCATED_CARDS,
            decision.ALLOCATED_INIT_CARDS,
            *(name for each in written for name in each.pod_annotations),
        ],
    }
    for variable, names in lists.items():
        lines = "".join(f"        {line}\n" for line in _wrapped(_cel_list(names), 8))
        text = _filled(text, rf"(- name: {variable}\n      expression: >-\n)(?: {{8}}.*\n)+", lines)
    return text


def _schema(text: str) -> str:
    """Fill in the names of the vocabularies."""
    names = json.dumps([each.name for each in KNOWN], indent=2).replace("\n", "\n        ")
    return _filled(text, rf'("vocabularies": {{\s*"type": "array",[^[]*"enum": ){_LIST}', names)


def _component(vocabulary: Vocabulary, component: Component) -> str:
    """Return the kustomize component that switches a vocabulary on in extender and plugin."""
    comment = (
        f"{component.about} In kube-scheduler's configuration, {', '.join(vocabulary.pods.resources)} must be among"
        f" the extender's managedResources; see docs/{vocabulary.reference.page}."
    )
    names = ",".join([DEFAULT_NAMES, vocabulary.name, *component.others])
    patches = "".join(
        f"  - target: {{kind: {kind}, name: {name}}}\n"
        "    patch: |\n"
        f'      - {{op: add, path: /spec/template/spec/containers/0/args/-, value: "--vocabularies={names}"}}\n'
        for kind, name in (("Deployment", "gpu-aware-scheduling"), ("DaemonSet", "gas-plugin.*"))
    )
    head = "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\npatches:\n"
    return "".join(f"# {line}\n" for line in _wrapped(comment, 2)) + head + patches


def _filled(text: str, pattern: str, replacement: str, times: int = 1) -> str:
    """Return the text with what follows the first group of a pattern replaced. Raises ValueError if it is not there."""
    filled, found = re.subn(pattern, lambda match: match[1] + replacement, text)
    if found != times:
        raise ValueError(f"expected {times} match(es) of {pattern}, found {found}")
    return filled


def _cel_list(names: Iterable[str]) -> str:
    quoted = (f"'{name}'" for name in names)
    return f"[{', '.join(quoted)}]"


def _wrapped(text: str, indent: int) -> list[str]:
    return textwrap.wrap(text, _WIDTH - indent, break_long_words=False, break_on_hyphens=False)
