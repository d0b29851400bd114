"""The page on the doctor keeps up with the code and with what is deployed."""

from __future__ import annotations

import json
import re
from pathlib import Path

from gas.doctor.all_parts import TITLES
from gas.doctor.findings import Level
from gas.doctor.report import as_json
from tests.doctor.snapshots import configuration, entry, findings, gpu_pod, scheduler, snapshot, worst

ROOT = Path(__file__).parents[2]
DOCTOR = (ROOT / "docs" / "doctor.md").read_text(encoding="utf-8")


def first_cells(page: str) -> list[str]:
    return re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)


def test_the_page_has_every_check_and_no_other() -> None:
    table = DOCTOR.partition("## What is looked at")[2].partition("##")[0]
    assert first_cells(table) == list(TITLES)


def test_the_page_has_every_level() -> None:
    table = DOCTOR.partition("| level |")[2].partition("##")[0]
    assert set(first_cells(table)) == set(Level)


def test_the_json_on_the_page_has_the_form_of_the_real_one() -> None:
    (block,) = re.findall(r"```json\n(.*?)```", DOCTOR, re.DOTALL)
    told, real = json.loads(block), json.loads(as_json(snapshot(), []))
    assert told.keys() == real.keys()
    assert told["counts"].keys() == real["counts"].keys()


def test_the_examples_on_the_page_are_real_findings() -> None:
    without_cards = gpu_pod("b")
    ignorable = scheduler(configuration(entry(ignorable=True)))
    found = [
        *findings("pods", pods=(without_cards,)),
        *worst(findings("scheduler-configuration", schedulers=(ignorable,))),
    ]
    page = " ".join(DOCTOR.split())
    assert found
    for finding in found:
        if finding.level is not Level.OK:
            assert f"{finding.where}: {finding.message}" in page
            assert all(f"$ {' '.join(command.split())}" in page for command in finding.fix)
    assert (
        found[-1].message
        in json.loads(re.findall(r"```json\n(.*?)```", DOCTOR, re.DOTALL)[0])["findings"][0]["message"]
    )


def test_the_doctor_recommends_only_overlays_that_exist() -> None:
    for program in (ROOT / "gas" / "doctor").rglob("*.py"):
        for each in re.findall(r"--kustomize (deploy/[\w/.-]+)", program.read_text(encoding="utf-8")):
            assert (ROOT / each / "kustomization.yaml").exists()
