"""The numbers that the paper prints, as data beside the declarations: paper_numbers/<experiment>.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import yaml


@dataclass(frozen=True)
class PaperNumbers:
    """``rows[arm][bench][metric]`` in the units printed, mostly per cent; ``claims`` are the paper's.

    ``notes[arm]``: what a reader of the printed row should know, in a sentence or two of our own.
    """

    rows: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)
    claims: tuple[str, ...] = ()
    notes: Mapping[str, str] = field(default_factory=dict)

    def get(self, arm: str, bench: str, metric: str) -> float | None:
        return self.rows.get(arm, {}).get(bench, {}).get(metric)


def paper_numbers(experiment: str) -> PaperNumbers:
    """Return what the paper prints for this experiment; nothing for one that goes beyond it.

    >>> paper_numbers("table2").get("gradmix", "cifar10", "auroc")
    91.33
    """
    file = resources.files("gradmix") / "experiments" / "paper" / "paper_numbers" / f"{experiment}.yaml"
    if not file.is_file():
        return PaperNumbers()
    content: dict[str, Any] = yaml.safe_load(file.read_bytes())
    return PaperNumbers(content["rows"], tuple(content["claims"]), content.get("notes", {}))
