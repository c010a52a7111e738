"""Where the network looks, with and without GradMix: pictures, and how large the activated area is."""

from __future__ import annotations

from ..declaration import Arm, Column, CpuLimits, Experiment
from .benches import CIFAR10, TINY

_ARMS = (Arm("none", "w/o GradMix", {"mixer": "none"}), Arm("gradmix", "GradMix"))

FIG_MAPS = Experiment(
    name="fig-maps",
    title="Attribution maps of known and unknown images, with and without GradMix",
    paper_item="Figures of attribution maps",
    measure="maps",
    columns=(Column("spread", "coverage of the heat map"),),
    benches=(CIFAR10, TINY),
    arms=_ARMS,
    trials=1,
    figures=("maps",),
    cpu=CpuLimits(trials=1),
    notes=(
        "Coverage: the share of a heat map that is above half of its largest value. The maps explain the "
        "similarity to the nearest training images; those of fig-area, another quantity, the objective.",
    ),
)

FIG_AREA = Experiment(
    name="fig-area",
    title="Activated area against the threshold, with and without GradMix",
    paper_item="Figure of the activated area",
    measure="area",
    columns=(
        Column("known", "S_M(1e-4), known"),
        Column("unknown", "S_M(1e-4), unknown"),
        Column("known/relative", "above half the peak, known"),
        Column("unknown/relative", "above half the peak, unknown"),
    ),
    benches=(CIFAR10, TINY),
    arms=_ARMS,
    figures=("area",),
)
