"""Choices that the paper leaves open or makes without showing why: one table each, to tell which to take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..declaration import Arm, Column, Experiment
from .benches import CIFAR10

# question: (what is asked, {the option as typed: the fields it sets}); the first is the paper's.
_QUESTIONS: dict[str, tuple[str, Mapping[str, Mapping[str, Any]]]] = {
    "target": (
        "What the maps explain",
        {value: {"target": value} for value in ("objective", "ssl", "similarity")},
    ),
    "locate": (
        "Where the patch goes: on the peak, or where it covers the most",
        {value: {"locate": value} for value in ("peak", "window")},
    ),
    "pairing": (
        "What a mixed view is paired with",
        {value: {"pairing": value} for value in ("cross", "symmetric")},
    ),
    "gamma-per": (
        "One patch size a sample, or one a batch",
        {value: {"gamma_per": value} for value in ("sample", "batch")},
    ),
    "mix-weight": (
        "What the loss of a mixed view weighs: the patch's area, or the rest",
        {value: {"mix_weight": value} for value in ("area", "complement")},
    ),
    "supcon-denominator": (
        "Which samples are in SupCon's denominator",
        {value: {"supcon_denominator": value} for value in ("negatives", "all")},
    ),
    "temperature": (
        "The temperature of all contrastive terms",
        {
            str(value): {
                "supcon_temperature": value,
                "simclr_temperature": value,
                "mixed_temperature": value,
            }
            for value in (0.05, 0.1, 0.2, 0.5)
        },
    ),
    "score-normalize": (
        "How similarities to the classes become a score",
        {value: {"score_normalize": value} for value in ("sum", "shifted", "softmax", "none")},
    ),
    "k": ("How many neighbours a class are summed", {str(k): {"k": k} for k in (1, 3, 10, 30, 100)}),
}


def _declare_ablation(question: str, asked: str, options: Mapping[str, Mapping[str, Any]]) -> Experiment:
    return Experiment(
        name=f"ablation-{question}",
        title=asked,
        paper_item="beyond the paper",
        measure="open_set",
        columns=(
            Column("auroc", "AUROC"),
            Column("closed_set_accuracy", "accuracy"),
            Column("oscr", "OSCR (= OpenAUC)"),
        ),
        benches=(CIFAR10,),
        arms=tuple(Arm(name, name, fields) for name, fields in options.items()),
        fields={} if question == "k" else {"k": 10},  # as in the paper's own ablations
        figures=("bars",),
    )


ABLATIONS = tuple(_declare_ablation(question, *asked) for question, asked in _QUESTIONS.items())
