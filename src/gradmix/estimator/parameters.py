"""Parameters of an estimator beside those of its signature: every field of a recipe, such as ``epochs=5``.

A field is an attribute of its name, like any parameter of scikit-learn, and is there only if it was given:
so ``clone``, ``get_params``, ``set_params`` and ``GridSearchCV`` treat it like the others.
"""

from __future__ import annotations

import difflib
import inspect
import reprlib
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, Self

from sklearn import get_config
from sklearn.base import BaseEstimator
from torch import nn

from ..errors import UserError
from ..methods import METHODS
from ..methods.from_file import is_method_file
from ..models.backbone import BACKBONE, Backbone
from ..recipe import Recipe, field_names, load_recipe, make_recipe
from ..recipe.choice import choose_recipe
from ..recipe.with_backbone import BACKBONE_RECIPE, backbone_fields, make_backbone, maps_of

AUTO = "auto"  # the recipe is chosen by what else is given


class RecipeParameters(BaseEstimator):  # type: ignore[misc]
    """An estimator that takes the fields of a recipe as further keywords."""

    recipe: str
    method: str | None
    detector: str | None
    false_reject: float | None
    init: str | None
    backbone: nn.Module | str | None
    backbone_layer: str
    overrides: Mapping[str, Any] | None
    random_state: int | None

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name, the fields of the recipe that were given among them."""
        return {**super().get_params(deep), **self._given_fields()}

    def set_params(self, **params: Any) -> Self:
        """Set parameters, and any field of the recipe; nothing is set if one of the names is wrong."""
        own = self._own_names()
        fields = {name: value for name, value in params.items() if name.partition("__")[0] not in own}
        rest = {name: value for name, value in params.items() if name not in fields}
        words = {"recipe": self.recipe, "method": self.method} | rest
        self._refuse_misspelt(fields, words["recipe"], words["method"])
        super().set_params(**rest)
        self._set_fields(fields)
        return self

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """Return the call that makes it, long values shortened."""
        signature = inspect.signature(type(self).__init__).parameters
        given = self.get_params(deep=False)
        order = [name for name in signature if name in given]
        order += [name for name in given if name not in signature]
        changed_only = get_config()["print_changed_only"]
        words = [
            f"{name}={_shorten(given[name])}"
            for name in order
            if not (changed_only and name in signature and _is_same(given[name], signature[name].default))
        ]
        return f"{type(self).__name__}({', '.join(words)})"[:N_CHAR_MAX]

    def _set_fields(self, fields: dict[str, Any]) -> None:
        self._refuse_misspelt(fields, self.recipe, self.method)
        for name, value in fields.items():
            setattr(self, name, value)

    def _given_fields(self) -> dict[str, Any]:
        """Return the fields of the recipe that were given as keywords."""
        own = self._own_names()
        return {
            name: value
            for name, value in vars(self).items()
            if name not in own and not name.startswith("_") and not name.endswith("_")
        }

    def _make_backbone(self) -> Backbone | None:
        if self.backbone is None:
            return None
        if self.init:
            raise UserError("init and backbone: a backbone brings its own weights; give one of the two")
        values = load_recipe(self._recipe_name()).flat() | self._recipe_fields()
        return make_backbone(self.backbone, self.backbone_layer, values)

    def _recipe_fields(self) -> dict[str, Any]:
        """Return the parameters that replace fields of the recipe."""
        fields = dict(self.overrides or {}) | self._given_fields()
        named = {
            "detector": self.detector,
            "false_reject": self.false_reject,
            "init": self.init,
            "seed": self.random_state,
        }
        return fields | {name: value for name, value in named.items() if value is not None}

    def _recipe_name(self) -> str:
        """Return the recipe; "auto" is what ``gradmix train`` would take for a folder of images."""
        if self.recipe != AUTO:
            return self.recipe
        if self.backbone is not None:
            return BACKBONE_RECIPE
        given = [*self._recipe_fields(), *(["method"] if self.method else [])]
        choice = choose_recipe(given, own_images=True)
        if choice.warn:
            warnings.warn(choice.reason, stacklevel=4)
        return choice.recipe

    def _make_recipe(self, backbone: Backbone | None) -> Recipe:
        fields = self._recipe_fields()
        values = load_recipe(self._recipe_name(), {"method": self.method} if self.method else {}).flat()
        if backbone is None and isinstance(self.backbone, str):
            fields = backbone_fields(self.backbone, fields)
        if backbone is not None:
            fields |= {"encoder": BACKBONE, "stem": "auto"}
            values |= maps_of(backbone, values, fields)
        return make_recipe(values | fields)

    @classmethod
    def _own_names(cls) -> set[str]:
        """Return the names in the signatures of this class and of those that it is made from."""
        constructors = [vars(base)["__init__"] for base in cls.__mro__ if "__init__" in vars(base)]
        found = [p for made in constructors for p in inspect.signature(made).parameters.values()]
        return {p.name for p in found if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}

    @classmethod
    def _refuse_misspelt(cls, names: Iterable[str], recipe: object, method: object) -> None:
        """Raise for a name that no recipe has; fields of the user's own method are known only in ``fit``."""
        if is_method_file(method) or str(recipe).endswith((".yaml", ".yml")):
            return
        known = {field for name in METHODS for field in field_names(name)}
        own = sorted(cls._get_param_names())
        for name in names:
            if name in known:
                continue
            near = difflib.get_close_matches(name, [*own, *known], n=1, cutoff=0.5)
            hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(own)}, and recipe fields"
            raise UserError(f"no parameter or recipe field '{name}'; {hint}")


_brief = reprlib.Repr()
_brief.maxdict, _brief.maxstring, _brief.maxother = 3, 60, 60


def _shorten(value: Any) -> str:
    return f"{type(value).__name__}(…)" if isinstance(value, nn.Module) else _brief.repr(value)


def _is_same(value: Any, default: Any) -> bool:
    return type(value) is type(default) and bool(value == default)
