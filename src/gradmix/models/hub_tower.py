"""Image towers of the Hub as a body: DINOv2, DINOv3, CLIP, SigLIP, computed by the package ``transformers``.

Features are pooled by each model's own rule: the class token after the last norm (DINO), the same through the
visual projection where there is one (CLIP), the attention pooling head (SigLIP). The model file holds the
configuration as plain values, and the weights under the names that they have on the Hub: it opens without the
Hub, and needs ``transformers`` only.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UserError, first_line
from .bodies import Body, Plan
from .tower_files import NEEDS, TOWER_TYPES, check_fields, read_tower, read_tower_weights

KIND = "hub_tower"
_CLASSES = {  # of transformers: configuration and model
    "dinov2": ("Dinov2Config", "Dinov2Model"),
    "dinov2_with_registers": ("Dinov2WithRegistersConfig", "Dinov2WithRegistersModel"),
    "dinov3_vit": ("DINOv3ViTConfig", "DINOv3ViTModel"),
    "clip_vision_model": ("CLIPVisionConfig", "CLIPVisionModel"),
    "siglip_vision_model": ("SiglipVisionConfig", "SiglipVisionModel"),
}
_PROJECTED_CLIP = "CLIPVisionModelWithProjection"
_PROJECTION = "visual_projection.weight"
_TOLD_THE_SIZE = ("clip_vision_model", "siglip_vision_model")  # these resize positions only when asked to
_OF_TEXTS = ("text_model.", "text_projection.", "logit_scale", "logit_bias")
_UNUSED = ("position_ids", "classifier.weight", "classifier.bias")  # ends of names: files may have them
_TOWER = "tower."
_IMAGES_AT_ONCE = 64  # where no gradient is wanted: a batch of 512 would hold gigabytes between two layers


class HubTower(Body):
    """Images (N, 3, S, S) to the features (N, dim) of a published image tower, not normalized.

    Made from ``source`` (``hf:…``), or from what :meth:`resolve` once described: then without weights.
    """

    stem = "patches"

    def __init__(
        self,
        plan: Plan,
        source: str,
        model_type: str = "",
        config: Mapping[str, Any] | None = None,
        projection: int = 0,
        revision: str = "",
        sha256: str = "",
    ) -> None:
        super().__init__()
        weights = None
        if config is None:
            if plan.weights is not None:
                raise UserError(f"init: encoder {source} brings its own weights; leave init out")
            files = read_tower(source)
            model_type, config = files.model_type, files.config
            _check_images(plan, source, config)
            weights, sha256 = read_tower_weights(files.weights)
            source, revision = f"hf:{files.name}", files.revision
            weights = {name: value for name, value in weights.items() if not name.startswith(_OF_TEXTS)}
            has_projection = model_type == "clip_vision_model" and _PROJECTION in weights
            projection = len(weights[_PROJECTION]) if has_projection else 0
        check_fields(model_type, config)
        self.source, self.revision, self.sha256 = source, revision, sha256
        self.model_type, self.projection = model_type, projection
        with _quiet():
            made = _make_config(model_type, config, projection, source)
            fields = [name for name in TOWER_TYPES[model_type].fields if hasattr(made, name)]
            self.config = {name: getattr(made, name) for name in fields}
            self.tower = _build(model_type, made, projection, weights, source)
        _check_images(plan, source, self.config)
        self.image_size, self.side = plan.image_size, plan.image_size // made.patch_size
        self.dim = projection or made.hidden_size
        if model_type == "siglip_vision_model" and not made.vision_use_head:
            raise UserError(f"{source} has no pooling head, and so no feature of a whole image")
        self.maps = nn.Identity()  # what the last block sees, as maps (N, 2 width, h, w), for heat maps
        self.layer_names = {"patches": "maps"}
        blocks = _find_blocks(self.tower, made.num_hidden_layers, source)
        blocks[-1].register_forward_pre_hook(self._fold, with_kwargs=True)
        self._published = _published_names(model_type, made, projection)

    def extra_repr(self) -> str:
        return f"{self.model_type}, {self.image_size}"

    def resolve(self, description: Mapping[str, Any]) -> dict[str, Any]:
        return {
            **description,
            "source": self.source,
            "model_type": self.model_type,
            "config": self.config,
            "projection": self.projection,
            "revision": self.revision,
            "sha256": self.sha256,
        }

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-2:] != (self.image_size, self.image_size):
            raise UserError(f"this network sees images of {self.image_size} pixels; leave start_size out")
        if torch.is_grad_enabled() or torch.compiler.is_exporting() or x.shape[0] <= _IMAGES_AT_ONCE:
            return self._pool(x)
        return torch.cat([self._pool(part) for part in torch.split(x, _IMAGES_AT_ONCE)])

    def finish_loading(self) -> None:
        """Compute the buffers that no file holds, which are without values after building on "meta"."""
        missing = [name for name, buffer in self.tower.named_buffers() if buffer.is_meta]
        if not missing:
            return
        # They belong to the embeddings: one block is enough, and costs little.
        with _quiet(), torch.device("cpu"), torch.random.fork_rng(devices=[]):
            made = _make_config(
                self.model_type, {**self.config, "num_hidden_layers": 1}, self.projection, self.source
            )
            small = dict(_build(self.model_type, made, self.projection, None, self.source).named_buffers())
        for name in missing:
            owner, _, last = name.rpartition(".")
            self.tower.get_submodule(owner)._buffers[last] = small[name].clone()

    def state_dict(self, *args: Any, **settings: Any) -> Any:
        """Return the weights under the names that they have on the Hub: those in memory change by version."""
        prefix = settings.get("prefix", args[1] if len(args) > 1 else "") + _TOWER
        state = super().state_dict(*args, **settings)
        for name in [name for name in state if name.startswith(prefix)]:
            value = state.pop(name)
            state[prefix + self._published.get(name.removeprefix(prefix), name.removeprefix(prefix))] = value
        return state

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        own = {published: name for name, published in self._published.items()}
        for name in [name for name in state_dict if name.startswith(prefix + _TOWER)]:
            value = state_dict.pop(name)
            short = name.removeprefix(prefix + _TOWER)
            state_dict[prefix + _TOWER + own.get(short, short)] = value
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def _pool(self, x: Tensor) -> Tensor:
        resized = self.model_type in _TOLD_THE_SIZE and self.image_size != self.config["image_size"]
        found = self.tower(pixel_values=x, **({"interpolate_pos_encoding": True} if resized else {}))
        features: Tensor = found.image_embeds if self.projection else found.pooler_output
        return features

    def _fold(self, block: nn.Module, args: Any, settings: Any) -> Any:
        """Pass the patches that go into the last block through ``maps``; class and register tokens stay.

        As max(A, 0) and max(−A, 0), side by side, whose difference is A to the bit: maps are made for
        activations that are never negative. LayerCAM is then Σ_k max(A_k ∂L/∂A_k, 0), and GradCAM as ever.
        """
        tokens = args[0] if args else settings["hidden_states"]
        others = tokens.shape[1] - self.side**2
        grid = tokens[:, others:].transpose(1, 2).unflatten(2, (self.side, self.side))
        positive, negative = self.maps(torch.cat([grid.relu(), (-grid).relu()], dim=1)).chunk(2, dim=1)
        folded = (positive - negative).flatten(2).transpose(1, 2)
        tokens = torch.cat([tokens[:, :others], folded], dim=1)
        return ((tokens, *args[1:]), settings) if args else (args, {**settings, "hidden_states": tokens})


def describe_tower(encoder: str) -> dict[str, Any]:
    """Return the body of a network whose recipe says ``encoder: hf:…``."""
    return {"kind": KIND, "source": encoder}


def _check_images(plan: Plan, source: str, config: Mapping[str, Any]) -> None:
    if plan.channels != 3 or config.get("num_channels", 3) != 3:
        raise UserError(f"{source} sees color images: set channels to 3")
    patch = config.get("patch_size")
    if isinstance(patch, int) and (patch < 1 or plan.image_size % patch):
        below = max(plan.image_size // max(patch, 1), 1) * patch
        raise UserError(
            f"image_size must be a multiple of {patch}, the side of the patches of {source}: {below}, "
            f"say, not {plan.image_size}"
        )


def _make_config(model_type: str, values: Mapping[str, Any], projection: int, source: str) -> Any:
    transformers = import_transformers()
    more = {"projection_dim": projection} if projection else {}
    try:
        # Never as a file says: what computes the attention may be code from elsewhere.
        kind = getattr(transformers, _CLASSES[model_type][0])
        return kind(**values, **more, attn_implementation="sdpa")
    except AttributeError as error:
        raise UserError(
            f"{source} needs a newer transformers than {transformers.__version__}, which has no {model_type}"
        ) from error
    except Exception as error:  # it checks the values, each in its own way
        raise UserError(f"{source}: its configuration is not a whole one: {_last_line(error)}") from error


def _build(
    model_type: str, config: Any, projection: int, weights: Mapping[str, Tensor] | None, source: str
) -> nn.Module:
    """Build the tower, with ``weights`` if there are some: every one that it has, and no others."""
    transformers = import_transformers()
    kind = getattr(transformers, _PROJECTED_CLIP if projection else _CLASSES[model_type][1])
    try:
        if weights is None:
            made: nn.Module = kind(config)
            return made
        made, found = kind.from_pretrained(
            None, config=config, state_dict=dict(weights), output_loading_info=True
        )
    except UserError:
        raise
    except Exception as error:  # sizes that do not go together; weights of other shapes
        raise UserError(f"{source}: its weights do not fit its configuration: {_last_line(error)}") from error
    missing = sorted(found["missing_keys"])
    foreign = sorted(name for name in found["unexpected_keys"] if not name.endswith(_UNUSED))
    if missing or foreign:
        culprit = f"lacks '{missing[0]}'" if missing else f"has a foreign '{foreign[0]}'"
        raise UserError(f"{source}: its weights do not fit its configuration: the file {culprit}")
    return made


def _published_names(model_type: str, config: Any, projection: int) -> dict[str, str]:
    """Return, for every weight of the tower in memory, its name on the Hub."""
    with torch.device("meta"):
        blank = _build(model_type, config, projection, None, "")
    own = list(blank.state_dict())
    try:
        from transformers import core_model_loading

        revert: Any = core_model_loading.revert_weight_conversion
        with torch.device("cpu"):
            numbered = {name: torch.tensor([i]) for i, name in enumerate(own)}
            found = revert(blank, numbered)
            names = {own[int(number)]: name for name, number in found.items()}
    except Exception:  # a version without that function has the names of the Hub in memory
        return {}
    return names if len(names) == len(own) else {}


def _find_blocks(tower: nn.Module, count: int, source: str) -> nn.ModuleList:
    """Return the list of the transformer's blocks."""
    for module in tower.modules():
        if isinstance(module, nn.ModuleList) and len(module) == count:
            return module
    raise UserError(f"{source}: this version of transformers has no list of {count} blocks in it")


def import_transformers() -> Any:
    """Return the package; raise UserError if it is not installed."""
    try:
        import transformers
    except ImportError:
        raise UserError(NEEDS) from None
    return transformers


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence messages and bars of transformers; what is wrong is raised."""
    messages = import_transformers().utils.logging
    level, bars = messages.get_verbosity(), messages.is_progress_bar_enabled()
    messages.set_verbosity(logging.CRITICAL)
    messages.disable_progress_bar()
    try:
        yield
    finally:
        messages.set_verbosity(level)
        if bars:
            messages.enable_progress_bar()


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:200] if lines else first_line(error)
