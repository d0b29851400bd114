"""The file by which our programs find the sandbox's API server, as they find any other."""

from __future__ import annotations

import json
from pathlib import Path


def write_kubeconfig(directory: Path, api_url: str) -> Path:
    """Write it, for a user without credentials. The sandbox asks for none."""
    file = directory / "kubeconfig"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "sandbox",
        "clusters": [{"name": "sandbox", "cluster": {"server": api_url}}],
        "users": [{"name": "sandbox", "user": {}}],
        "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": "sandbox"}}],
    }
    file.write_text(json.dumps(content), encoding="utf-8")
    return file
