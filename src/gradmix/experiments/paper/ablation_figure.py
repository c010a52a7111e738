"""The two halves of the ablation figure: which mixing, and maps of which layers."""

from __future__ import annotations

from ..declaration import Arm, Column, CpuLimits, Experiment
from .benches import CIFAR10, TINY

_ALPHAS = (0.2, 0.5, 1.0)  # the figure's own values are not printed
_LAYERS = {
    "conv3": ("conv3_2",),
    "conv4": ("conv4_2",),
    "conv5": ("conv5_2",),
    "conv3+4": ("conv3_2", "conv4_2"),
    "conv4+5": ("conv4_2", "conv5_2"),
    "conv3+4+5": ("conv3_2", "conv4_2", "conv5_2"),
}
_AUTHORS = {
    "pairing": "symmetric",
    "mix_weight": "complement",
    "map_normalize": "per_layer",
    "target": "ssl",
}

FIG_MIXERS = Experiment(
    name="fig-mixers",
    title="Which mixing helps open-set recognition",
    paper_item="Ablation figure, left",
    measure="open_set",
    columns=(Column("auroc", "AUROC"),),
    benches=(CIFAR10, TINY),
    arms=(
        Arm("none", "none", {"mixer": "none"}),
        *(Arm(f"mixup-{a}", f"Mixup (α = {a})", {"mixer": "mixup", "alpha": a}) for a in _ALPHAS),
        *(Arm(f"cutmix-{a}", f"CutMix (α = {a})", {"mixer": "cutmix", "alpha": a}) for a in _ALPHAS),
        Arm("random-patch", "Random patch", {"mixer": "cutmix"}),
        Arm("none-longer", "none, 1.5 times as long", {"mixer": "none"}, length=1.5, beyond_paper=True),
        Arm("gradmix-authors", "GradMix, authors' code", _AUTHORS, beyond_paper=True),
        Arm(
            "gradmix-authors-shorter",
            "GradMix, authors' code, 0.68 times as long",
            _AUTHORS,
            length=0.683,
            beyond_paper=True,
        ),
        Arm("gradmix-evidence", "GradMix, sign turned", {"attribution_sign": "evidence"}, beyond_paper=True),
        Arm("gradmix", "GradMix"),
    ),
    fields={"k": 10},
    figures=("bars",),
    cpu=CpuLimits(arms=("none", "mixup-1.0", "cutmix-1.0", "random-patch", "gradmix-evidence", "gradmix")),
    decide=CpuLimits(
        benches=("cifar10",),
        arms=(
            *("none", "none-longer", "mixup-1.0", "random-patch"),
            *("gradmix-authors", "gradmix-authors-shorter", "gradmix-evidence", "gradmix"),
        ),
        trials=(1, 2, 3, 4),  # distinct splits: 0 is that of 1
    ),
    reference="none",
    notes=(
        "Random patch, not in the paper: CutMix with patches as large as GradMix's. Only the place differs.",
        "Authors' code: both views mixed, weight 1 minus the area, maps of the self-supervised loss, each "
        "layer's scaled by its largest value in the batch. Rows that are longer or shorter have the "
        "arithmetic of GradMix, the others its number of steps.",
        "Sign turned: patches go where more activation would lower the loss (attribution_sign: evidence).",
    ),
)

FIG_LAYERS = Experiment(
    name="fig-layers",
    title="Which layers' maps to mix by",
    paper_item="Ablation figure, right",
    measure="open_set",
    columns=(Column("auroc", "AUROC"),),
    benches=(CIFAR10, TINY),
    arms=tuple(Arm(name, name, {"layers": layers}) for name, layers in _LAYERS.items()),
    fields={"k": 10},
    figures=("bars",),
    cpu=CpuLimits(benches=("cifar10",)),
)
