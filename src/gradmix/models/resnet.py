"""ResNets (He et al. 2016) of any width and depth, with torchvision's and timm's parameter names."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..errors import choose
from .staged import StagedEncoder

STEMS = {"small": (3, 1), "half": (3, 2), "imagenet": (7, 2)}  # kernel and stride of the first convolution


class BasicBlock(nn.Module):
    """Two 3×3 convolutions around a shortcut."""

    expansion = 1

    def __init__(self, channels_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _conv3(channels_in, width, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv3(width, width)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(channels_in, width * self.expansion, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += x if self.downsample is None else self.downsample(x)
        return torch.relu_(out)


class Bottleneck(nn.Module):
    """1×1, 3×3 (with the stride, as torchvision and timm have it), 1×1 around a shortcut."""

    expansion = 4

    def __init__(self, channels_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv3(width, width, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, width * self.expansion, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(width * self.expansion)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(channels_in, width * self.expansion, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        out += x if self.downsample is None else self.downsample(x)
        return torch.relu_(out)


class ResNet(StagedEncoder):
    """Images (N, C, H, W) to pooled features (N, dim).

    Stems: ``small`` is a 3×3 convolution at full resolution (CIFAR's usual), ``half`` the same with
    stride 2 (a quarter of the work), ``imagenet`` a 7×7 with stride 2 and a max pool.
    ``layer_names`` maps the paper's names to modules: conv3 is the second stage, and ``_2`` is the
    stage's last block (the second of ResNet18's two, and its counterpart in other depths).
    """

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        depths: Sequence[int],
        width: int = 64,
        channels: int = 3,
        stem: str = "small",
    ) -> None:
        super().__init__()
        self.stem = choose("stem", stem, STEMS)
        kernel, stride = STEMS[stem]
        self.conv1 = nn.Conv2d(channels, width, kernel, stride, kernel // 2, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1) if stem == "imagenet" else nn.Identity()
        self.layer_names = {}
        here = width
        for i, depth in enumerate(depths):
            blocks: list[nn.Module] = []
            for j in range(depth):
                blocks.append(block(here, width * 2**i, 2 if i > 0 and j == 0 else 1))
                here = width * 2**i * block.expansion
            self.add_module(f"layer{i + 1}", nn.Sequential(*blocks))
            self.layer_names[f"conv{i + 2}_2"] = f"layer{i + 1}.{depth - 1}"
        self.dim = here
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def enter(self, x: Tensor) -> Tensor:
        maps: Tensor = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        return maps

    def run_stage(self, i: int, maps: Tensor) -> Tensor:
        after: Tensor = self.get_submodule(f"layer{i + 1}")(maps)
        return after


def _conv3(channels_in: int, channels_out: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(channels_in, channels_out, 3, stride, 1, bias=False)


def _shortcut(channels_in: int, channels_out: int, stride: int) -> nn.Module | None:
    if stride == 1 and channels_in == channels_out:
        return None
    convolution = nn.Conv2d(channels_in, channels_out, 1, stride, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(channels_out))
