"""A trained model at work elsewhere: very many images, a cluster, an ONNX runtime, the Hub."""

from .inputs import Input, Inputs
from .predict_file import Summary, predict_to_file
from .stream import Answer, answers

__all__ = ["Answer", "Input", "Inputs", "Summary", "answers", "predict_to_file"]
