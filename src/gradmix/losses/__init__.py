"""What is minimized: pure functions of embeddings (or logits) first."""

from .info_nce import info_nce
from .nt_xent import nt_xent, nt_xent_clean_negatives, nt_xent_one_way
from .smoothing import smooth_cross_entropy, smooth_targets
from .supcon import supcon

__all__ = [
    "info_nce",
    "nt_xent",
    "nt_xent_clean_negatives",
    "nt_xent_one_way",
    "smooth_cross_entropy",
    "smooth_targets",
    "supcon",
]
from .soft_supcon import soft_supcon

__all__ = ["info_nce", "nt_xent", "nt_xent_clean_negatives", "nt_xent_one_way", "soft_supcon", "supcon"]
