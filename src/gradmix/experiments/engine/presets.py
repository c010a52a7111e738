"""How large an experiment is run: as printed, on two CPU cores, or just to see that it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Preset:
    """``fields`` go over the paper's recipe (those that a method does not have are left out for it).

    ``largest_image`` bounds the image size. ``snapshots`` of the weights are kept at even distances, to show
    results against steps. Tests take ``test_per_class`` images per class, tests at snapshots
    ``curve_per_class``, tests on corrupted images ``corrupted_per_class``; None is all. ``generated``: images
    are made up, no data is needed.
    """

    name: str
    about: str
    fields: Mapping[str, Any]
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
    "about 25 minutes on two cores: thousands of steps on few images per class, small images and encoder",
    {
        "encoder": "resnet8_16",
        "stem": "half",
        "batch_size": 64,
        "limit_per_class": 200,
        "epochs": 600,
        "max_steps": 2000,
        "warmup_steps": 0,
        "queue_size": 1024,
        "attention_size": 112,
        # Second networks of the comparison methods, as in their recipes for a CPU.
        **{"gan_width": 128, "noise_dim": 32, "confuse_every": 4},
        **{"player_width": 16, "latent_channels": 16, "player_depth": 1},
        **{"made_images": 512, "counterfactual_steps": 20},
        **{"decoder_width": 64, "experts": 2, "shared": "conv2_2", "gate": "shared"},
        "score_normalize": "shifted",
    },
    largest_image=24,
    snapshots=8,
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
PRESETS = {preset.name: preset for preset in (PAPER, CPU, SMOKE)}
