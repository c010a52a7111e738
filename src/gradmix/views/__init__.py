"""What the network sees: batched, seeded augmentation in training, plain normalisation elsewhere."""

from .augment import Augment, ViewSettings
from .normalize import Normalizer

__all__ = ["Augment", "Normalizer", "ViewSettings"]
