"""Table 2: AUROC of known against unknown on the six protocols."""

from __future__ import annotations

from ..declaration import Arm, Column, Experiment
from . import rows
from .benches import CIFAR10, CIFAR_10, CIFAR_50, MNIST, SVHN, TINY

TABLE2 = Experiment(
    name="table2",
    title="Open-set recognition on six protocols",
    paper_item="Table 2",
    measure="open_set",
    columns=(
        Column("auroc", "AUROC", group="AUROC"),
        Column("oscr", "OSCR (= OpenAUC)", group="OSCR (= OpenAUC)"),
    ),
    benches=(MNIST, SVHN, CIFAR10, CIFAR_10, CIFAR_50, TINY),
    arms=(
        rows.CE,
        rows.OPENMAX,
        rows.G_OPENMAX,
        rows.OSRCI,
        rows.C2AE,
        rows.GRROSR,
        rows.PROSER,
        rows.ARPL,
        rows.ARPL_CS,
        rows.OPENAUC,
        rows.CONOSR,
        rows.MEDAF,
        rows.CE_PLUS,
        Arm(
            "attentive-cutmix",
            "Attentive CutMix",
            {"method": "attentive-cutmix", "normalize": "imagenet", "detector": "msp"},
            needs="attention_init",
        ),
        rows.GRADMIX,
    ),
    figures=("ranks",),
    notes=(
        "Cross-entropy is scored by its largest softmax probability, contrastive methods by k-NN, the others "
        "by the score that they were published with.",
        "OSCR is the area under correct classification against false positives, with ties counted half: the "
        "metric that is also called OpenAUC.",
    ),
)
