"""The figure on self-supervision and Table 6: linear probes of SimCLR and MoCo v1 with mixed views."""

from __future__ import annotations

from ..declaration import Arm, Bench, Column, CpuLimits, Experiment, WholeSet
from .benches import TINY_WHOLE

_METHODS = {
    "simclr": ("SimCLR", {"method": "gradmix", "theta": 0.0, "lam": 1.0}),
    "moco": ("MoCo v1", {"method": "moco", "queue_size": 4096, "key_momentum": 0.999}),
}
_MIXERS = {"none": "", "mixup": " + Mixup", "cutmix": " + CutMix", "gradmix": " + GradMix"}
# The paper prints no α for these figures: 1, the value of both methods' own papers for ImageNet.
_ALPHA = {"mixup": {"alpha": 1.0}, "cutmix": {"alpha": 1.0}}
_ARMS = tuple(
    Arm(f"{method}-{mixer}", label + suffix, {**fields, "mixer": mixer, **_ALPHA.get(mixer, {})})
    for method, (label, fields) in _METHODS.items()
    for mixer, suffix in _MIXERS.items()
)
_COLUMNS = (Column("top1", "top-1"), Column("top5", "top-5"))


def _tiny(encoder: str, label: str) -> Bench:
    fields = {"encoder": encoder, "epochs": 200}
    whole = TINY_WHOLE
    return Bench(encoder, label, whole.recipe, whole.data, fields, whole.small, "Small encoder")


FIG_SSL = Experiment(
    name="fig-ssl",
    title="Linear probe on TinyImageNet after self-supervised training",
    paper_item="Figure on self-supervised learning",
    measure="probe",
    columns=_COLUMNS,
    benches=(_tiny("resnet18", "ResNet18"), _tiny("resnet34", "ResNet34"), _tiny("resnet50", "ResNet50")),
    arms=_ARMS,
    trials=1,
    figures=("bars",),
    cpu=CpuLimits(benches=("resnet18",), trials=3),
)

TABLE6 = Experiment(
    name="table6",
    title="Linear probe on ImageNet100 after self-supervised training",
    paper_item="Table 6",
    measure="probe",
    columns=_COLUMNS,
    benches=(
        Bench(
            "imagenet100",
            "ImageNet100",
            "paper/tinyimagenet",
            WholeSet("imagenet100"),
            {"epochs": 100, "image_size": 224, "stem": "imagenet"},
            small=WholeSet("mini-imagenet"),
            small_label="mini-imagenet",
        ),
    ),
    arms=_ARMS,
    trials=1,
    cpu=CpuLimits(trials=2),
    notes=(
        "On a CPU: mini-imagenet, ten images per class, stands in for ImageNet100; too small for results.",
    ),
)
