"""Write what is generated in deploy/: ``make manifest``. A test checks that every file is current.

- Files that state names of the vocabularies. Most of each is written by hand, and only the names are filled in. What a
  vocabulary has to state here is declared in its own package, see `gas.vocabularies.protocol`.
- The configurations of kube-scheduler, made of the configurator's own template, which is the one that people change.
- The roles of the extender: `scripts.roles`.
- Files of the chart, which must be complete, so it has copies of files that stand elsewhere.
- deploy/gas.yaml, one file that `kubectl apply -f` installs, made of the overlay `both`.
"""

import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from gas.decision import names as decision
from gas.values.card_records import ANNOTATION
from gas.vocabularies.known import DEFAULT, KNOWN
from gas.vocabularies.protocol import Beginnings, Component, Vocabulary
from gas.vocabularies.selection import DEFAULT_NAMES
from scripts.roles import role_files

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
OVERLAY = DEPLOY / "overlays/both"
MANIFEST = DEPLOY / "gas.yaml"

_HEADER = """\
# Extender and device plugin in one file: `kubectl apply -f deploy/gas.yaml`. First make the image available to the
# nodes: docs/deploy.md. The extender's pod waits for the Secret extender-secret. `gas-configurator --apply-secret`
# creates it; create it yourself if you have certificates of your own.
# Written from deploy/overlays/both by `make manifest`: change the files there, not this one.
"""

_UNDERSTOOD = {"apiVersion", "kind", "namespace", "resources"}


COPIES = {
    "alerts.yaml": "components/monitoring/alerts.yaml",
    "dashboard.json": "components/monitoring/dashboard.json",
    "own-node-only.yaml": "base/plugin/own-node-only.yaml",
    "sharepods.yaml": "components/sharepods/definition.yaml",
    "webhooks.yaml": "components/admission/webhooks.yaml",
}
"""Files of the chart -> the files of deploy/ that they are copies of; that of an optional part goes with the part."""

WEBHOOKS = DEPLOY / "components/admission/webhooks.yaml"
POLICY = DEPLOY / "base/plugin/own-node-only.yaml"
SCHEMA = DEPLOY / "chart/values.schema.json"
CHART_RESOURCES = DEPLOY / "chart/files/managed-resources.json"

_WIDTH = 120
_LIST = r"\[[^\]]*\]"
_COMPLETING = "  - name: complete.pods.gas\n"

TEMPLATE = ROOT / "configurator/default-scheduler-config.yaml"
FOLDER = DEPLOY / "extender-configuration"

_TELEMETRY_COMMENT = """\
# Makes kube-scheduler call two extenders: Intel's Telemetry Aware Scheduling and this one. kube-scheduler reads this
# apiVersion from 1.25 on. Both extenders are shown the same client certificate, so both must trust the CA that signed
# it.
"""
_TELEMETRY = """\
  - urlPrefix: "https://tas-service.telemetry-aware-scheduling.svc.cluster.local:9001"
    prioritizeVerb: "scheduler/prioritize"
    filterVerb: "scheduler/filter"
    weight: 1
    enableHTTPS: true
    # Pods request this to be seen by this extender; kube-scheduler does not require it on nodes.
    managedResources:
      - name: "telemetry/scheduling"
        ignoredByScheduler: true
    ignorable: true
    tlsConfig:
      insecure: false
      certFile: "/host/certs/client.crt"
      keyFile: "/host/certs/client.key"
"""
_CONFIG_MAP = """\
# The configuration that makes kube-scheduler call the {extenders}, as a ConfigMap: for a kube-scheduler that runs as an
# ordinary pod, mounts this and has --config=…/scheduler-config.yaml. A static pod cannot mount a ConfigMap; there, use
# the configurator.
apiVersion: v1
kind: ConfigMap
metadata:
  name: scheduler-extender-policy
  namespace: kube-system
data:
  # The same as {file}, for kube-scheduler 1.25 and later.
  scheduler-config.yaml: |
{configuration}\
  # The same for Kubernetes 1.22, the last release with --policy-configmap=scheduler-extender-policy.
  # configmap-getter.yaml lets kube-scheduler read it.
  policy.cfg: |
{policy}\
"""


def main() -> None:
    for make in _STEPS:
        for file, text in make().items():
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")


def written() -> dict[Path, str]:
    """Return the text of each file that is written."""
    return {file: text for make in _STEPS for file, text in make().items()}


def _copies() -> dict[Path, str]:
    return {
        DEPLOY / "chart/files" / name: (DEPLOY / original).read_text(encoding="utf-8")
        for name, original in COPIES.items()
        if (DEPLOY / original).exists()
    }


def _one_file() -> dict[Path, str]:
    return {MANIFEST: manifest(OVERLAY)}


def manifest(overlay: Path) -> str:
    """Return the objects of an overlay as one YAML text, with the comments of their files.

    Raises ValueError if a kustomization does more than to list resources.
    """
    documents = [file.read_text(encoding="utf-8").strip() for file in _files(overlay)]
    return _HEADER + "".join(f"---\n{each}\n" for each in documents)


def _files(directory: Path) -> Iterator[Path]:
    kustomization = directory / "kustomization.yaml"
    written = yaml.safe_load(kustomization.read_text(encoding="utf-8"))
    if unknown := sorted(written.keys() - _UNDERSTOOD):
        raise ValueError(f"{kustomization}: {', '.join(unknown)}: only resources can be written into one file")
    for name in written["resources"]:
        resource = (directory / name).resolve()
        if resource.is_dir():
            yield from _files(resource)
        else:
            yield resource


# Names of the vocabularies


def vocabulary_files() -> dict[Path, str]:
    """Return the texts of all these files, with what is written by hand as it stands in them."""
    filled = {WEBHOOKS: _webhooks, POLICY: _policy, SCHEMA: _schema}
    texts = {file: fill(file.read_text(encoding="utf-8")) for file, fill in filled.items()}
    resources = {
        each.name: [
            {"name": name, "ignoredByScheduler": name in each.ignored_resources} for name in each.managed_resources
        ]
        for each in KNOWN
    }
    texts[CHART_RESOURCES] = json.dumps(resources, indent=2) + "\n"
    for vocabulary in KNOWN:
        if vocabulary.component is not None:
            file = DEPLOY / "components" / vocabulary.name / "kustomization.yaml"
            texts[file] = _component(vocabulary, vocabulary.component)
    return texts


def _webhooks(text: str) -> str:
    """Fill in by which names the API server knows the pods that it asks about."""
    checking, separator, completing = text.partition(_COMPLETING)
    asking = _condition(checking, [each.asking for each in KNOWN], times=2)
    return asking + separator + _condition(completing, [each.completed for each in KNOWN], times=1)


def _condition(text: str, beginnings: Sequence[Beginnings], *, times: int) -> str:
    resources = _cel_list(name for each in beginnings for name in each.resources)
    annotations = " || ".join(f"name.startsWith('{name}')" for each in beginnings for name in each.annotations)
    text = _filled(text, rf"(){_LIST}(?=\.exists\(beginning,)", resources, times)
    annotated = r"(metadata\.\?annotations\.orValue\(\{\}\)\.exists\(name, )(?:[^()]*\([^()]*\))+(?=\))"
    return _filled(text, annotated, annotations, times)


def _policy(text: str) -> str:
    """Fill in what the plugin may write on its node and the pods there."""
    written = [each.written for each in KNOWN]
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
    ignored = ", all but the first with ignoredByScheduler: true" if vocabulary.ignored_resources else ""
    comment = (
        f"{component.about} In kube-scheduler's configuration, {', '.join(vocabulary.managed_resources)} must be among"
        f" the extender's managedResources{ignored}; see docs/{vocabulary.reference.page}."
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


# Configurations of kube-scheduler


def scheduler_configurations() -> dict[Path, str]:
    """Return the texts of all configurations, the template among them."""
    template = _with_resources(TEMPLATE.read_text(encoding="utf-8"))
    head, extenders, entries = template.partition("extenders:\n")
    both = _TELEMETRY_COMMENT + head[head.index("apiVersion:") :] + extenders + _TELEMETRY + entries
    return {
        TEMPLATE: template,
        FOLDER / "scheduler-config.yaml": template,
        FOLDER / "scheduler-config-tas+gas.yaml": both,
        FOLDER / "scheduler-extender-configmap.yaml": _config_map(template, "scheduler-config.yaml", "extender"),
        FOLDER / "tas+gas-extender-configmap.yaml": _config_map(both, "scheduler-config-tas+gas.yaml", "extenders"),
    }


def _with_resources(text: str) -> str:
    """Return the template with the resources of the default vocabulary."""
    entries = (f'      - name: "{name}"\n        ignoredByScheduler: false\n' for name in DEFAULT.managed_resources)
    filled, found = re.subn(r"(?<=    managedResources:\n)(?:      .*\n)+", "".join(entries), text)
    if found != 1:
        raise ValueError(f"{TEMPLATE}: expected managedResources once, found them {found} times")
    return filled


def _config_map(configuration: str, file: str, extenders: str) -> str:
    return _CONFIG_MAP.format(
        extenders=extenders,
        file=file,
        configuration=_indented(configuration),
        policy=_indented(json.dumps(_of_1_22(yaml.safe_load(configuration)["extenders"]), indent=2) + "\n"),
    )


def _of_1_22(extenders: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the extenders in the form of Kubernetes 1.22, which spells one field otherwise."""
    spelled = [{key.replace("enableHTTPS", "enableHttps"): value for key, value in each.items()} for each in extenders]
    return {"kind": "Policy", "apiVersion": "v1", "extenders": spelled}


def _indented(text: str) -> str:
    return "".join(f"    {line}" if line.strip() else line for line in text.splitlines(keepends=True))


_STEPS = (vocabulary_files, scheduler_configurations, role_files, _copies, _one_file)
"""What is written, in this order: later files are made of earlier ones."""

if __name__ == "__main__":
    main()
