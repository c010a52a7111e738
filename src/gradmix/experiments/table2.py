"""Table 2: AUROC of known against unknown on the six protocols."""

from __future__ import annotations

from .benches import CIFAR10, CIFAR_10, CIFAR_50, MNIST, SVHN, TINY
from .declaration import Arm, Column, Experiment, compared_only

TABLE2 = Experiment(
    name="table2",
    title="Open-set recognition on six protocols",
    place="Table 2",
    measure="open_set",
    columns=(Column("auroc", "AUROC"),),
    benches=(MNIST, SVHN, CIFAR10, CIFAR_10, CIFAR_50, TINY),
    arms=(
        Arm("ce", "Cross Entropy", {"method": "ce"}),
        *compared_only("OpenMax", "G-OpenMax", "OSRCI", "C2AE", "GRROSR", "PROSER", "ARPL", "ARPL-CS"),
        *compared_only("OpenAUC", "ConOSR", "MEDAF"),
        Arm(
            "attentive-cutmix",
            "Attentive CutMix",
            {"method": "attentive-cutmix", "normalize": "imagenet"},
            needs="attention_init",
        ),
        Arm("gradmix", "GradMix"),
    ),
    notes=("A method with a classifier is scored by its largest softmax probability, others by k-NN.",),
)
