"""What a measure is given, and what it gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from ...data import ImageSet
from ...detection import Scores
from ...recognition import Recognizer
from ...training import Recipe
from ..declaration import Data
from ..images import Images


@dataclass(frozen=True, eq=False)
class MeasureInput:
    """A trained model with its images, all in the size that it was trained with.

    ``out``: foreign data sets to tell from the known classes; ``corrupted_per_class`` and ``probe`` are the
    preset's. ``data`` and ``trial`` identify the images, for measures that read them in another size.
    """

    recognizer: Recognizer
    recipe: Recipe
    train: ImageSet
    test: ImageSet
    unknown: ImageSet | None
    unknown_names: tuple[str, ...]
    images: Images
    data: Data
    trial: int
    out: tuple[str, ...] = ()
    test_per_class: int | None = None
    corrupted_per_class: int | None = None
    probe: str = "standard"

    def require_unknown(self) -> ImageSet:
        assert self.unknown is not None, "this measure belongs to benches with unknown classes"
        return self.unknown

    def scores(self, *sets: ImageSet) -> tuple[Scores, ...]:
        """Score each set as the model decides: by the recipe's detector, or the method's own."""
        return tuple(self.recognizer.scores(self.recognizer.outputs(images)) for images in sets)


@dataclass(frozen=True, eq=False)
class Measured:
    """Numbers by name (shares of 1 unless the column says otherwise), curves (x, y), and pictures."""

    metrics: Mapping[str, float]
    series: Mapping[str, tuple[list[float], list[float]]] = field(default_factory=dict)
    pictures: Mapping[str, Tensor] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
