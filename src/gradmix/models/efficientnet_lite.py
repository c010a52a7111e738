"""EfficientNet-Lite (Google 2020, after Tan and Le 2019): small networks with published ImageNet weights.

No squeeze-and-excitation, ReLU6 everywhere. The parameters have the names of the published weights. Padding
is TensorFlow's SAME, and pixels are (x − 127)/128 (``normalize: tf``): with anything else the weights still
load, and answer worse.
"""

from __future__ import annotations

import math

from torch import Tensor, nn
from torch.nn import functional as F

from .staged import StagedEncoder

# Repeats, kernel, stride of the first, expansion, width: of the seven groups of blocks.
_GROUPS = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
_STAGES = (2, 3, 5, 7)  # groups at the end of each stage: strides 4, 8, 16, 32, as a ResNet's
_STEM, _HEAD = 32, 1280  # widths, the same for every size
_EPSILON = 1e-3  # of every BatchNorm


class SameConv2d(nn.Conv2d):
    """A convolution with TensorFlow's SAME padding: ⌈size/stride⌉ outputs, an odd pixel right and below."""

    def __init__(
        self, channels_in: int, channels_out: int, kernel: int, stride: int, groups: int = 1
    ) -> None:
        padding = kernel // 2 if stride == 1 else 0  # with stride 1 both paddings are one
        super().__init__(channels_in, channels_out, kernel, stride, padding, groups=groups, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        stride, kernel = self.stride[0], self.kernel_size[0]
        if stride > 1:
            height, width = (same_padding(size, kernel, stride) for size in x.shape[-2:])
            x = F.pad(x, (*width, *height))
        return super().forward(x)


def same_padding(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """Return the zeros before and after ``size`` pixels.

    >>> same_padding(224, 3, 2), same_padding(225, 3, 2), same_padding(112, 5, 2)
    ((0, 1), (1, 1), (1, 2))
    """
    total = max((math.ceil(size / stride) - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2


class MBConv(nn.Module):
    """Widen (1×1), filter each channel (depthwise), narrow (1×1); the input is added where shapes agree."""

    def __init__(self, before: int, after: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = before * expansion
        if expansion > 1:
            self._expand_conv = SameConv2d(before, wide, 1, 1)
            self._bn0 = nn.BatchNorm2d(wide, eps=_EPSILON)
        self._depthwise_conv = SameConv2d(wide, wide, kernel, stride, groups=wide)
        self._bn1 = nn.BatchNorm2d(wide, eps=_EPSILON)
        self._project_conv = SameConv2d(wide, after, 1, 1)
        self._bn2 = nn.BatchNorm2d(after, eps=_EPSILON)
        self.widens, self.adds = expansion > 1, stride == 1 and before == after

    def forward(self, x: Tensor) -> Tensor:
        wide = F.relu6(self._bn0(self._expand_conv(x))) if self.widens else x
        wide = F.relu6(self._bn1(self._depthwise_conv(wide)))
        narrow: Tensor = self._bn2(self._project_conv(wide))
        return narrow + x if self.adds else narrow


class EfficientNetLite(StagedEncoder):
    """Images (N, C, H, W) to pooled features (N, 1280).

    ``layer_names`` are a ResNet's: conv2_2 to conv5_2 have strides 4, 8, 16 and 32; the last has the 1280
    channels that are averaged.
    """

    stem = "imagenet"  # there is no other

    def __init__(self, depth: float = 1.0, width: float = 1.0, channels: int = 3) -> None:
        super().__init__()
        self._conv_stem = SameConv2d(channels, _STEM, 3, 2)
        self._bn0 = nn.BatchNorm2d(_STEM, eps=_EPSILON)
        blocks: list[nn.Module] = []
        ends: list[int] = []  # how many blocks there are after each group
        before = _STEM
        for i, (repeats, kernel, stride, expansion, plain_width) in enumerate(_GROUPS):
            fixed = i in (0, len(_GROUPS) - 1)  # the first and the last group are never repeated more
            after = round_width(plain_width * width)
            for j in range(repeats if fixed else math.ceil(repeats * depth)):
                blocks.append(MBConv(before, after, kernel, stride if j == 0 else 1, expansion))
                before = after
            ends.append(len(blocks))
        self._blocks = nn.ModuleList(blocks)
        self._conv_head = SameConv2d(before, _HEAD, 1, 1)
        self._bn1 = nn.BatchNorm2d(_HEAD, eps=_EPSILON)
        self._head_activation = nn.ReLU6()
        self._ends = [0, *(ends[groups - 1] for groups in _STAGES)]
        last_blocks = [f"_blocks.{end - 1}" for end in self._ends[1:-1]]
        names = [f"conv{i + 2}_2" for i in range(len(_STAGES))]
        self.layer_names = dict(zip(names, [*last_blocks, "_head_activation"], strict=True))
        self.dim = _HEAD
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def enter(self, x: Tensor) -> Tensor:
        return F.relu6(self._bn0(self._conv_stem(x)))

    def run_stage(self, i: int, maps: Tensor) -> Tensor:
        for j in range(self._ends[i], self._ends[i + 1]):
            maps = self._blocks[j](maps)
        if i == len(_STAGES) - 1:
            maps = self._head_activation(self._bn1(self._conv_head(maps)))
        return maps

    def stage_parts(self, i: int) -> tuple[str, ...]:
        blocks = tuple(f"_blocks.{j}" for j in range(self._ends[i], self._ends[i + 1]))
        return (*blocks, "_conv_head", "_bn1", "_head_activation") if i == len(_STAGES) - 1 else blocks


def round_width(width: float) -> int:
    """Return the nearest multiple of 8, but never more than a tenth below ``width``.

    >>> round_width(16 * 1.1), round_width(24 * 1.1), round_width(80 * 1.1)
    (16, 24, 88)
    """
    rounded = max(8, int(width + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * width else rounded
