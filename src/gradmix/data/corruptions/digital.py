"""What cameras and files do to pictures: contrast, pixelate, JPEG."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ...cores import cores
from . import separable
from .draws import Draws


def contrast(images: Tensor, factor: float, draws: Draws) -> Tensor:
    """m + factor · (x − m), m the mean of each channel of each image (N, C, H, W)."""
    mean = images.mean((2, 3), keepdim=True)
    return mean + factor * (images - mean)


def pixelate(images: Tensor, scale: float, draws: Draws) -> Tensor:
    """Shrunk to ⌊scale · side⌋ by means over boxes, and brought back with each pixel as a block."""
    height, width = images.shape[-2:]
    low, narrow = max(1, int(height * scale)), max(1, int(width * scale))
    rows = separable.box_matrix(low, height) @ separable.box_matrix(height, low)
    columns = separable.box_matrix(narrow, width) @ separable.box_matrix(width, narrow)
    return separable.apply(images, rows, columns)


def jpeg_compression(images: Tensor, quality: int, draws: Draws) -> Tensor:
    """Written as JPEG of this ``quality`` and read again; (N, C, H, W) in [0, 1] -> the same.

    The one step that goes image by image: a codec has no batch. Pillow lets go of the interpreter lock
    while it codes, so threads do help.
    """
    pixels = (images * 255).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous().numpy()

    def there_and_back(i: int) -> None:
        picture = Image.fromarray(pixels[i] if pixels.shape[3] == 3 else pixels[i, :, :, 0])
        coded = io.BytesIO()
        picture.save(coded, "JPEG", quality=quality)
        with Image.open(coded) as decoded:
            pixels[i] = np.asarray(decoded).reshape(pixels[i].shape)

    with ThreadPoolExecutor(min(8, cores())) as pool:
        list(pool.map(there_and_back, range(len(pixels)), chunksize=64))
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).to(images.dtype) / 255
