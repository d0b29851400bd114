"""The files of ``examples/``, as a user applies them."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.e2e.cluster import Cluster
from tests.e2e.kube_api import Object
from tests.e2e.pods import PODS
from tests.e2e.written_cards import PREFIX

EXAMPLES = Path(__file__).parents[2] / "examples"


def add_example_nodes(cluster: Cluster) -> None:
    """Create the nodes of ``nodes/cluster.yaml``."""
    for node in _documents(EXAMPLES / "nodes/cluster.yaml"):
        resources = {name: text for name, text in node["status"]["allocatable"].items() if name.startswith(PREFIX)}
        cluster.add_node(node["metadata"]["name"], labels=node["metadata"]["labels"], resources=resources)


def create_example(cluster: Cluster, name: str) -> set[str]:
    """Create all pods of a file, given by its name without ending, and return their names."""
    pods = _documents(EXAMPLES / f"{name}.yaml")
    for pod in pods:
        cluster.api.create(PODS, pod)
    return {pod["metadata"]["name"] for pod in pods}


def _documents(file: Path) -> list[Object]:
    return list(yaml.safe_load_all(file.read_text()))
