"""Where the network looks: class activation maps from activations and their gradients."""

from .area import activated_area, area_thresholds
from .cam import aggregate, gradcam_map, layercam_map
from .capture import Capture, resolve_layer
from .explain import GradCAM, LayerCAM

__all__ = [
    "Capture",
    "GradCAM",
    "LayerCAM",
    "activated_area",
    "aggregate",
    "area_thresholds",
    "gradcam_map",
    "layercam_map",
    "resolve_layer",
]
