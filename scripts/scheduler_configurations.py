"""The configurations of kube-scheduler in deploy/extender-configuration, as texts; `scripts.manifest` writes them.

The configurator's own template is the one that people change: the others are made of it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

from gas.vocabularies.known import DEFAULT

ROOT = Path(__file__).resolve().parent.parent
TEMPLATE = ROOT / "configurator/default-scheduler-config.yaml"
FOLDER = ROOT / "deploy/extender-configuration"

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
        policy=_indented(json.dumps(_policy(yaml.safe_load(configuration)["extenders"]), indent=2) + "\n"),
    )


def _policy(extenders: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the extenders in the form of Kubernetes 1.22, which spells one field otherwise."""
    spelled = [{key.replace("enableHTTPS", "enableHttps"): value for key, value in each.items()} for each in extenders]
    return {"kind": "Policy", "apiVersion": "v1", "extenders": spelled}


def _indented(text: str) -> str:
    return "".join(f"    {line}" if line.strip() else line for line in text.splitlines(keepends=True))
