"""What is minimised: pure functions of embeddings (or logits) first."""

from .info_nce import info_nce
from .nt_xent import nt_xent, nt_xent_clean_negatives, nt_xent_one_way
from .supcon import supcon

__all__ = ["info_nce", "nt_xent", "nt_xent_clean_negatives", "nt_xent_one_way", "supcon"]
