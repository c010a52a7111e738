"""The network of the open-set literature for small images ("classifier32", Neal et al. 2018)."""

from __future__ import annotations

from torch import Tensor, nn

from .staged import StagedEncoder

_WIDTHS = (64, 64, 128, 128, 128, 128, 128, 128, 128)
_PER_STAGE = 3


class VGG32(StagedEncoder):
    """Images (N, C, H, W) to pooled features (N, 128): nine 3×3 convolutions.

    Each is followed by BatchNorm and LeakyReLU(0.2); the third of each three has stride 2, and before each
    three there is ``dropout`` of whole channels. The
    parameters have the names of the released weights, whose unused ``bn10`` and ``fc`` are left out.
    ``layer_names`` follow the paper's: conv2_2 to conv4_2 are the outputs of the three stages.
    """

    def __init__(self, channels: int = 3, dropout: float = 0.2) -> None:
        super().__init__()
        self.stem = "small"  # there is no other
        before = channels
        for i, width in enumerate(_WIDTHS, start=1):
            stride = 2 if i % _PER_STAGE == 0 else 1
            self.add_module(f"conv{i}", nn.Conv2d(before, width, 3, stride, 1, bias=False))
            self.add_module(f"bn{i}", nn.BatchNorm2d(width))
            self.add_module(f"act{i}", nn.LeakyReLU(0.2, inplace=True))
            before = width
        self.drop = nn.Dropout2d(dropout)
        stages = len(_WIDTHS) // _PER_STAGE
        self.layer_names = {f"conv{i + 2}_2": f"act{_PER_STAGE * (i + 1)}" for i in range(stages)}
        self.dim = before
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.normal_(module.weight, 0.0, 0.05)
            elif isinstance(module, nn.BatchNorm2d):
                nn.init.normal_(module.weight, 1.0, 0.02)

    def enter(self, x: Tensor) -> Tensor:
        return x

    def run_stage(self, i: int, maps: Tensor) -> Tensor:
        maps = self.drop(maps)
        for j in range(_PER_STAGE * i + 1, _PER_STAGE * (i + 1) + 1):
            for part in ("conv", "bn", "act"):
                maps = self.get_submodule(f"{part}{j}")(maps)
        return maps

    def stage_parts(self, i: int) -> tuple[str, ...]:
        numbers = range(_PER_STAGE * i + 1, _PER_STAGE * (i + 1) + 1)
        return tuple(f"{part}{j}" for j in numbers for part in ("conv", "bn", "act"))


def without_unused_parts(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of a classifier without its ``fc`` and the ``bn10`` that no release uses."""
    return {name: value for name, value in weights.items() if not name.startswith(("fc.", "bn10."))}
