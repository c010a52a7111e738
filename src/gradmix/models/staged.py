"""Encoders that can be entered and left at their named layers."""

from __future__ import annotations

from torch import Tensor, nn

from ..errors import UserError, choose


class StagedEncoder(nn.Module):
    """A stem and stages, each of which ends at a layer of ``layer_names``; the last map is averaged.

    ``layer_names`` maps the paper's names, in order, to modules.
    """

    layer_names: dict[str, str]
    dim: int

    def enter(self, x: Tensor) -> Tensor:
        """Return what the first stage gets of images (N, C, H, W)."""
        raise NotImplementedError

    def run_stage(self, i: int, maps: Tensor) -> Tensor:
        """Return the maps after stage ``i`` (from 0), given those before it."""
        raise NotImplementedError

    def stage_parts(self, i: int) -> tuple[str, ...]:
        """Return the names of the submodules that make up stage ``i``; what no stage names is the stem."""
        return (f"layer{i + 1}",)

    def forward(self, x: Tensor) -> Tensor:
        """Return features (N, dim) of images (N, C, H, W)."""
        return self.pool(self.maps(x))

    def maps(self, x: Tensor) -> Tensor:
        """Return the last feature maps (N, dim, h, w) of images (N, C, H, W)."""
        return self.run_stages(self.enter(x), 0, len(self.layer_names))

    def forward_until(self, name: str, x: Tensor) -> Tensor:
        """Return the maps at layer ``name`` of images (N, C, H, W)."""
        return self.run_stages(self.enter(x), 0, self._stage_number(name) + 1)

    def forward_from(self, name: str, maps: Tensor) -> Tensor:
        """Return the last feature maps, given those at layer ``name``."""
        return self.run_stages(maps, self._stage_number(name) + 1, len(self.layer_names))

    def freeze_until(self, name: str) -> None:
        """Let the layer ``name`` and all before it stay as they are: no gradient, BatchNorm in eval mode."""
        later = range(self._stage_number(name) + 1, len(self.layer_names))
        self.eval().requires_grad_(False)
        for part in (part for i in later for part in self.stage_parts(i)):
            self.get_submodule(part).train().requires_grad_(True)

    def pool(self, maps: Tensor) -> Tensor:
        """Return the mean over positions (N, K) of maps (N, K, h, w)."""
        return maps.mean((2, 3))

    def run_stages(self, maps: Tensor, first: int, end: int) -> Tensor:
        """Return the maps after stages ``first`` ≤ i < ``end``, given those before them."""
        for i in range(first, end):
            maps = self.run_stage(i, maps)
        return maps

    def _stage_number(self, name: str) -> int:
        return list(self.layer_names).index(choose("layer", name, self.layer_names))


def require_stages(encoder: nn.Module, method: str) -> StagedEncoder:
    """Return ``encoder``; raise UserError if it cannot be entered at its layers, naming who wants that."""
    if not isinstance(encoder, StagedEncoder):
        raise UserError(
            f"method {method} enters the encoder at its layers, which {type(encoder).__name__} does not "
            "offer; choose one of the recipe's encoders"
        )
    return encoder
