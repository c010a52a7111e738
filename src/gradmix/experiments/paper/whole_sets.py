"""Tables 3, 4 and 5: models of whole data sets, on their own classes, foreign sets and corrupted images."""

from __future__ import annotations

from dataclasses import replace

from ..declaration import Arm, Column, CpuLimits, Experiment
from . import rows
from .benches import CIFAR10_WHOLE, CIFAR100_WHOLE, TINY_HALF, TINY_WHOLE

_OUT_LABELS = {"cifar100": "Out: CIFAR100", "svhn": "Out: SVHN"}
_OOD_METRICS = {
    "tnr": "TNR",
    "auroc": "AUROC",
    "dtacc": "DTACC",
    "auin": "AUIN",
    "auout": "AUOUT",
    "detection_accuracy": "(TP+TN)/all",
}

TABLE3 = Experiment(
    name="table3",
    title="Closed-set classification",
    paper_item="Table 3",
    measure="closed_set",
    columns=(Column("accuracy", "accuracy"),),
    benches=(CIFAR10_WHOLE, CIFAR100_WHOLE, TINY_HALF),
    arms=(rows.CE, rows.ARPL, rows.CONOSR, rows.MEDAF, rows.GRADMIX),
    notes=("The paper does not say how many trials it ran here.",),
)

TABLE4 = Experiment(
    name="table4",
    title="Out-of-distribution detection, in: CIFAR10",
    paper_item="Table 4",
    measure="out_of_distribution",
    columns=tuple(
        Column(f"{out}/{metric}", label, group)
        for out, group in _OUT_LABELS.items()
        for metric, label in _OOD_METRICS.items()
    ),
    benches=(CIFAR10_WHOLE,),
    arms=(rows.CE, rows.ARPL, rows.ARPL_CS, rows.MEDAF, rows.GRADMIX),
    out=tuple(_OUT_LABELS),
    notes=(
        "DTACC is the best mean of TPR and TNR, as in the literature; (TP+TN)/all is the formula printed.",
        "The paper does not say how many trials it ran here.",
    ),
)

TABLE5 = Experiment(
    name="table5",
    title="Accuracy lost to corruptions, with and without GradMix",
    paper_item="Table 5 and its figure",
    measure="corruption",
    columns=(
        *(Column(f"severity/{s}", f"severity {s}", higher_is_better=False) for s in range(1, 6)),
        Column("severity/mean", "mean", higher_is_better=False),
        Column("clean", "clean accuracy"),
    ),
    benches=(
        replace(CIFAR10_WHOLE, fields={"lam": 1.0}),
        replace(TINY_WHOLE, fields={"lam": 1.2}),
    ),
    arms=(Arm("none", "w/o GradMix", {"mixer": "none"}), Arm("gradmix", "GradMix")),
    figures=("corruptions",),
    cpu=CpuLimits(trials=3),
    notes=("Drops are in points of accuracy: lower is better.",),
)
