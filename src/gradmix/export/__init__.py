"""Write a model for places without torch: an ONNX graph, plain arrays, and a short script that uses them."""

from .export import export_model

__all__ = ["export_model"]
