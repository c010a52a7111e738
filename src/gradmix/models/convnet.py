"""A plain convolutional network that buys much accuracy per minute of a CPU.

Every block pools before its activation and its second convolution, so that most multiplications are done
where few pixels are left; there are no shortcuts, for they cost memory traffic that a CPU feels and
seven layers train without.
"""

from __future__ import annotations

from torch import Tensor, nn

from ..errors import choose
from .resnet import STEMS
from .staged import StagedEncoder

_STEM_CHANNELS = 24


class ConvNet(StagedEncoder):
    """Images (N, C, H, W) to pooled features (N, dim): a stem and three blocks of two convolutions.

    ``layer_names`` follow the paper's: conv2_2 to conv4_2 are the outputs of the three blocks.
    """

    def __init__(self, width: int, channels: int = 3, stem: str = "small") -> None:
        super().__init__()
        self.stem = choose("stem", stem, STEMS)
        kernel, stride = STEMS[stem]
        self.conv1 = nn.Conv2d(channels, _STEM_CHANNELS, kernel, stride, kernel // 2)
        self.relu = nn.ReLU(inplace=True)
        widths = (width, 2 * width, 4 * width)
        for i, (before, after) in enumerate(zip((_STEM_CHANNELS, *widths), widths, strict=False)):
            self.add_module(f"layer{i + 1}", _block(before, after))
        self.layer_names = {f"conv{i + 2}_2": f"layer{i + 1}" for i in range(len(widths))}
        self.dim = widths[-1]

    def enter(self, x: Tensor) -> Tensor:
        maps: Tensor = self.relu(self.conv1(x))
        return maps

    def run_stage(self, i: int, maps: Tensor) -> Tensor:
        after: Tensor = self.get_submodule(f"layer{i + 1}")(maps)
        return after


def _block(before: int, after: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(before, after, 3, padding=1, bias=False),
        nn.MaxPool2d(2, ceil_mode=True),  # so that one pixel stays one pixel
        nn.BatchNorm2d(after),
        nn.ReLU(inplace=True),
        nn.Conv2d(after, after, 3, padding=1, bias=False),
        nn.BatchNorm2d(after),
        nn.ReLU(inplace=True),
    )
