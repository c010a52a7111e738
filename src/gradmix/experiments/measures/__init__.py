"""What is measured of a trained model: one file per question."""

from .measure_input import Measured, MeasureInput
from .registry import MEASURES, Measure

__all__ = ["MEASURES", "Measure", "MeasureInput", "Measured"]
