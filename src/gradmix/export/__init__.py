"""Write a model for places without torch: one ONNX file with a short script, or a page for browsers."""

from .export import export_model
from .web_page import export_web

__all__ = ["export_model", "export_web"]
