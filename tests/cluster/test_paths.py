from __future__ import annotations

import pytest

from gas.cluster import paths


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param(paths.pod("default", "web-0"), "/api/v1/namespaces/default/pods/web-0", id="pod"),
        pytest.param(paths.binding("default", "web-0"), "/api/v1/namespaces/default/pods/web-0/binding", id="binding"),
        pytest.param(paths.node("n1.example.org"), "/api/v1/nodes/n1.example.org", id="node"),
        pytest.param(paths.event("default", "a.1"), "/api/v1/namespaces/default/events/a.1", id="event"),
        pytest.param(
            paths.lease("default", "gas"),
            "/apis/coordination.k8s.io/v1/namespaces/default/leases/gas",
            id="lease",
        ),
        pytest.param(
            paths.pod("a/b?c#d", "../x%2f"),
            "/api/v1/namespaces/a%2Fb%3Fc%23d/pods/..%2Fx%252f",
            id="a-hostile-name-stays-one-segment",
        ),
    ],
)
def test_path(path: str, expected: str) -> None:
    assert path == expected


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_that_would_lead_to_another_path_is_refused(name: str) -> None:
    with pytest.raises(paths.MalformedName, match="expected the name of a Kubernetes object"):
        paths.pod("default", name)
