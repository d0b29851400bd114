from __future__ import annotations

import pytest

from gas.plugin.environment import Environment, MalformedVariable, read_environment


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        pytest.param({}, Environment(), id="nothing-set"),
        pytest.param({"GPU_MEMORY_OVERRIDE": " ", "GPU_MEMORY_RESERVED": ""}, Environment(), id="set-to-nothing"),
        pytest.param({"GPU_MEMORY_OVERRIDE": "8000000000"}, Environment(memory_override=8_000_000_000), id="override"),
        pytest.param({"GPU_MEMORY_OVERRIDE": "0"}, Environment(), id="an-override-of-0-is-none"),
        pytest.param({"GPU_MEMORY_RESERVED": "1Gi"}, Environment(memory_reserved=2**30), id="reserved"),
        pytest.param({"GPU_PCI_GROUPING_LEVEL": "3"}, Environment(pci_grouping_level=3), id="grouping-level"),
        pytest.param({"HOME": "/root"}, Environment(), id="others-do-not-count"),
    ],
)
def test_variables(variables: dict[str, str], expected: Environment) -> None:
    assert read_environment(variables) == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("lots", "expected a quantity such as 5, 500k or 5Gi, found 'lots'", id="a-word"),
        pytest.param("-1", "expected a number that is not negative, found '-1'", id="negative"),
        pytest.param("2Ei", "expected at most 1125899906842624, found '2Ei'", id="more-than-any-card-has"),
    ],
)
@pytest.mark.parametrize("name", ["GPU_MEMORY_OVERRIDE", "GPU_MEMORY_RESERVED", "GPU_PCI_GROUPING_LEVEL"])
def test_a_value_that_is_not_a_number_is_refused(name: str, text: str, why: str) -> None:
    with pytest.raises(MalformedVariable) as refused:
        read_environment({name: text})
    assert str(refused.value) == f"environment variable {name}: {why}"
