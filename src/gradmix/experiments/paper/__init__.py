"""The paper's tables and figures as declarations, and the numbers that it prints."""

from .numbers import PaperNumbers, paper_numbers
from .registry import EXPERIMENTS, get_experiment

__all__ = ["EXPERIMENTS", "PaperNumbers", "get_experiment", "paper_numbers"]
