"""What is measured of a trained model: one file a question."""

from .registry import MEASURES, Measure
from .subject import Measured, Subject

__all__ = ["MEASURES", "Measure", "Measured", "Subject"]
