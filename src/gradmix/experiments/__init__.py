"""Each table and figure of the paper as a declaration, and what runs one."""

from .declaration import Arm, Bench, Column, Experiment
from .engine.presets import PRESETS, Preset
from .paper import EXPERIMENTS, get_experiment

__all__ = ["EXPERIMENTS", "PRESETS", "Arm", "Bench", "Column", "Experiment", "Preset", "get_experiment"]
