"""Every name of a benchmark stands for a function."""

from importlib import import_module
from inspect import signature

import pytest

from benchmarks.__main__ import BENCHMARKS, WITH_FULL_SIZE


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_name_stands_for_a_function_that_knows_full_size_if_it_has_one(name: str) -> None:
    module, _, function = BENCHMARKS[name].partition(".")
    parameters = signature(getattr(import_module(f"benchmarks.{module}"), function)).parameters
    assert list(parameters) == (["full"] if name in WITH_FULL_SIZE else [])
