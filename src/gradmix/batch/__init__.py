"""Predict very many images: bounded memory, resumable, on this machine or a Ray cluster."""

from .answer_formats import format_csv
from .predict_file import BatchPredictor, Summary, predict_to_file
from .ray_predict import make_ray_predictor
from .stream import Answer, Input, Inputs, predict_batches

__all__ = [
    "Answer",
    "BatchPredictor",
    "Input",
    "Inputs",
    "Summary",
    "format_csv",
    "make_ray_predictor",
    "predict_batches",
    "predict_to_file",
]
