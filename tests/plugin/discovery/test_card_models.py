"""The names of models: the table in the project, and the script that writes it."""

from __future__ import annotations

import pytest

from gas.plugin.discovery.card_models import TABLE, is_integrated, model_of, parse_pci_id
from gas.values.card_records import is_model
from scripts.card_models import table

ROWS = [line for line in TABLE.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]


def test_every_row_is_a_pci_device_id_and_a_model() -> None:
    assert len(ROWS) > 300
    for row in ROWS:
        device_id, model = row.split("\t")
        assert parse_pci_id(device_id) == device_id
        assert is_model(model)
    assert sorted(ROWS) == ROWS
    assert len({row.split("\t")[0] for row in ROWS}) == len(ROWS)


def test_the_table_states_its_source_and_its_licence() -> None:
    head = TABLE.read_text(encoding="utf-8").partition("\n0x")[0]
    assert "pci.ids, version 20" in head
    assert "Redistribution and use in source and binary forms" in head
    assert all(line.startswith("#") for line in head.splitlines())


@pytest.mark.parametrize(
    ("device_id", "model"),
    [
        ("0x56c0", "Data Center GPU Flex 170"),
        ("0x0bd5", "Data Center GPU Max 1550"),
        ("0xe20b", "Arc B580"),
        ("0x0000", ""),
    ],
)
def test_a_card_has_the_name_under_which_it_is_sold(device_id: str, model: str) -> None:
    assert model_of(device_id) == model


PCI_IDS = """\
#	Version: 2026.01.02
1002  AMD
\t56c0  Not Intel's
8086  Intel Corporation
\t0042  Core Processor, Graphics
\t\t1028 0001  A subsystem
\t56c0  ATS-M [Data Center GPU Flex 170]
\t56c9  A network card
8087  Intel again
\t56c1  Another vendor's
"""
PCIIDS_H = """\
#define INTEL_PCI_DEVICE(_id, _info) 0x56C9
#define INTEL_ATS_M150_IDS(MACRO__, ...) \\
	MACRO__(0x56C0, ## __VA_ARGS__), \\
	MACRO__(0x0042, ## __VA_ARGS__), \\
	MACRO__(0x56C1, ## __VA_ARGS__)
"""


def test_the_script_joins_names_with_the_ids_that_the_drivers_support() -> None:
    written = table(PCI_IDS, PCIIDS_H)
    assert "pci.ids, version 2026.01.02" in written
    assert [line for line in written.splitlines() if not line.startswith("#")] == [
        "0x0042\tCore Processor Graphics",
        "0x56c0\tData Center GPU Flex 170",
    ]


FAMILIES_WITH_OWN_MEMORY = {"0x0b", "0x49", "0x56", "0x67", "0xe2"}
"""First digits of the PCI device ids of cards."""
INTEGRATED_FAMILIES = {
    *("0x00", "0x01", "0x04", "0x0a", "0x0b", "0x0d", "0x0f", "0x11", "0x16", "0x19", "0x25", "0x27", "0x29", "0x2a"),
    *("0x2e", "0x31", "0x35", "0x3e", "0x45", "0x46", "0x4c", "0x4e", "0x59", "0x5a", "0x64", "0x71", "0x7d", "0x87"),
    *("0x8a", "0x9a", "0x9b", "0xa0", "0xa7", "0xb0", "0xb6", "0xd7", "0xfd"),
}
"""First digits of the PCI device ids of integrated GPUs. Before you add new ones, find out whether they are cards."""


def test_integrated_gpus_are_those_of_known_families() -> None:
    ids = [row.split("\t")[0] for row in ROWS]
    assert {id_[:4] for id_ in ids if is_integrated(id_)} == INTEGRATED_FAMILIES
    assert {id_[:4] for id_ in ids if not is_integrated(id_)} == FAMILIES_WITH_OWN_MEMORY


def test_names_of_models_agree_with_what_is_integrated() -> None:
    for device_id, model in (row.split("\t") for row in ROWS):
        if any(words in model for words in ("Data Center", "Iris Xe MAX", "Arc A", "Arc B5", "Arc Pro B5", "CRI")):
            assert not is_integrated(device_id), model
        if any(words in model for words in ("Integrated", "UHD", "HD Graphics", "Iris Pro", "Iris Plus", "B390")):
            assert is_integrated(device_id), model


@pytest.mark.parametrize("device_id", ["", "0x0000", "0xffff"])
def test_an_id_that_the_table_lacks_is_not_that_of_an_integrated_gpu(device_id: str) -> None:
    assert not is_integrated(device_id)
