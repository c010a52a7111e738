"""How large an experiment is run: as printed, on two CPU cores, or just to see that it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Preset:
    """``fields`` go over the paper's recipe (those that a method does not have are left out for it).

    ``recipes``: the folder of the recipes that the fields go over. ``operations``: the floating-point
    operations of every training, which has as many steps as that allows; None: as many as the recipe says.

    ``largest_image`` bounds the image size. ``snapshots`` of the weights are kept at even distances, to show
    results against steps. Tests take ``test_per_class`` images per class, tests at snapshots
    ``curve_per_class``, tests on corrupted images ``corrupted_per_class``; None is all. ``generated``: images
    are made up, no data is needed.
    """

    name: str
    about: str
    fields: Mapping[str, Any]
    recipes: str = "paper"
    operations: float | None = None
    largest_image: int | None = None
    snapshots: int = 0
    test_per_class: int | None = None
    curve_per_class: int | None = None
    corrupted_per_class: int | None = None
    probe: str = "standard"
    most_trials: int | None = None
    generated: bool = False


PAPER = Preset(
    "paper",
    "the setting as printed; for a GPU",
    {"score_normalize": "sum"},
)
CPU = Preset(
    "cpu",
    "the same arithmetic for every training, all training images, a small network; minutes on a CPU core",
    {
        "encoder": "conv7_32",
        "stem": "small",
        "batch_size": 128,
        "layers": ["conv3_2", "conv4_2", "conv5_2"],  # as ResNet18 calls them: the last three stages
        "queue_size": 1024,
        "attention_size": 112,
    },
    recipes="cpu",
    operations=20e12,
    largest_image=32,
    curve_per_class=60,
    corrupted_per_class=40,
    probe="fast",
)
DECIDE = Preset(
    "decide",
    "does mixing pay? 500 images per class for 120 epochs, after which they are learned; weights as printed",
    {
        "encoder": "conv7_32",
        "stem": "small",
        "batch_size": 128,
        "layers": ["conv3_2", "conv4_2", "conv5_2"],
        "lam": 1.2,
        "limit_per_class": 500,
        "epochs": 120,
        "max_steps": None,
        "queue_size": 1024,
        "attention_size": 112,
    },
    recipes="cpu",
    largest_image=32,
    curve_per_class=60,
    corrupted_per_class=40,
    probe="fast",
)
SMOKE = Preset(
    "smoke",
    "a few steps on generated images: shows that it runs, and nothing else",
    {
        "encoder": "resnet8_16",
        "stem": "half",
        "feature_dim": 16,
        "batch_size": 16,
        "limit_per_class": 12,
        "epochs": 2,
        "max_steps": 4,
        "warmup_steps": 0,
        "queue_size": 32,
        **{"gan_width": 32, "noise_dim": 8, "confuse_every": 2},
        **{"player_width": 4, "latent_channels": 4, "player_depth": 1},
        **{"made_images": 8, "counterfactual_steps": 2},
        **{"decoder_width": 32, "experts": 2, "shared": "conv2_2", "gate": "shared"},
        "attention_init": "random",
        "attention_encoder": "resnet8_16",
        "attention_size": 32,
    },
    largest_image=16,
    snapshots=2,
    test_per_class=4,
    curve_per_class=4,
    corrupted_per_class=1,
    probe="fast",
    most_trials=1,
    generated=True,
)
PRESETS = {preset.name: preset for preset in (PAPER, CPU, DECIDE, SMOKE)}
