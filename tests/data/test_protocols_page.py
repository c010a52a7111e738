"""docs/protocols.md names every protocol and every data set, and those that can be downloaded by name."""

from __future__ import annotations

import re
from pathlib import Path

from gradmix.data import KNOWN_SETS, PROTOCOLS

PAGE = (Path(__file__).parents[2] / "docs" / "protocols.md").read_text(encoding="utf-8")


def names_in_first_cells(heading: str) -> set[str]:
    section = PAGE.split(f"## {heading}")[1].split("\n## ")[0]
    cells = re.findall(r"^\|([^|]+)\|", section, re.MULTILINE)
    return set(re.findall(r"`([^`]+)`", "".join(cells))) - {"--protocol"}


def test_the_table_of_protocols_is_that_of_the_package() -> None:
    assert names_in_first_cells("What each protocol measures") == set(PROTOCOLS)


def test_the_table_of_data_sets_is_that_of_the_package() -> None:
    assert names_in_first_cells("The data sets") == set(KNOWN_SETS)


def test_what_can_be_downloaded_by_name() -> None:
    section = PAGE.split("## Getting data")[1].split("\n## ")[0]
    medmnist = {name for name, known in KNOWN_SETS.items() if known.hub_files.endswith(f"{name}.npz")}
    assert len(medmnist) == 11
    assert "`pathmnist` and the other ten of MedMNIST" in section
    named = names_in_first_cells("Getting data") | medmnist
    assert named == {name for name, known in KNOWN_SETS.items() if known.hub_repo}
    for known in KNOWN_SETS.values():
        assert known.hub_repo is None or f"`{known.hub_repo}`" in section, known.name
