"""Write gas/plugin/discovery/intel_models.tsv, the names of Intel's GPUs, from two files of other projects.

    python -m scripts.card_models /usr/share/misc/pci.ids include/drm/intel/pciids.h

pci.ids has the names (Debian package ``pci.ids``, https://pci-ids.ucw.cz). The Linux header has the PCI device ids that
the drivers i915 and xe support (Debian package ``linux-headers-VERSION-common``).
"""

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from gas.values.card_records import is_model

TABLE = Path(__file__).parents[1] / "gas/plugin/discovery/intel_models.tsv"
INTEL = "8086"

_VENDOR = re.compile(r"(?P<id>[0-9a-f]{4})  ")
_DEVICE = re.compile(r"\t(?P<id>[0-9a-f]{4})  (?P<name>.+)")
_VERSION = re.compile(r"#\s+Version: (?P<version>\S+)")
_DRIVER_ID = re.compile(r"MACRO__\(0x(?P<id>[0-9A-Fa-f]{4}),")
_MARKETING_NAME = re.compile(r".*\[(?P<name>[^]]+)\]")


def table(pci_ids: str, driver_ids: str) -> str:
    """Return the content of the table from the contents of the two files, below the comment that the table has now."""
    version = _VERSION.search(pci_ids)
    supported = {match["id"].lower() for match in _DRIVER_ID.finditer(driver_ids)}
    rows = [f"0x{id_}\t{model}\n" for id_, name in _devices(pci_ids) if id_ in supported and (model := _model(name))]
    comment = "".join(f"{line}\n" for line in TABLE.read_text().splitlines() if line.startswith("#"))
    named = f"pci.ids, version {version['version'] if version is not None else 'unknown'},"
    return re.sub(r"pci\.ids, version \S+,", named, comment) + "".join(sorted(rows))


def _devices(pci_ids: str) -> Iterator[tuple[str, str]]:
    """Yield id and name of Intel's devices."""
    is_intel = False
    for line in pci_ids.splitlines():
        if (vendor := _VENDOR.match(line)) is not None:
            is_intel = vendor["id"] == INTEL
        elif is_intel and (device := _DEVICE.fullmatch(line)) is not None:
            yield device["id"], device["name"]


def _model(name: str) -> str:
    """Return the name in brackets, under which the card is sold, else the whole name; without commas."""
    marketing = _MARKETING_NAME.match(name)
    model = " ".join((marketing["name"] if marketing is not None else name).replace(",", " ").split())
    return model if is_model(model) else ""


def run(argv: Sequence[str]) -> int:
    if len(argv) != 2:
        sys.stderr.write("usage: python -m scripts.card_models PCI_IDS PCIIDS_H\n")
        return 2
    TABLE.write_text(table(*(Path(name).read_text(encoding="utf-8", errors="replace") for name in argv)))
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
