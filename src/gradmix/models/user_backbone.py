"""A network that a function of the user's own file makes: ``mine.py:build``.

The file is the user's own code, named by the user, and is run like any script. A model file never holds code:
it has the function's name and the code's hash, so that the right file can be asked for.
"""

from __future__ import annotations

import hashlib
import inspect
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from ..errors import UserError
from .backbone import Backbone
from .user_code import call_user, read_code, run_code, split_word

COPY = "backbone.py"  # in the folder of a run
_ENTRY = "build"  # the function, if none is named


@dataclass(frozen=True)
class UserBackbone:
    """A function without arguments that returns an ``nn.Module``, and the code that it is in.

    ``changed``: use it for a model that was made with other code, if the weights still fit.
    """

    code: bytes
    path: str
    function: str
    changed: bool = False

    @property
    def sha256(self) -> str:
        """The hash of the code."""
        return hashlib.sha256(self.code).hexdigest()

    @property
    def origin(self) -> dict[str, str]:
        """What a model file says of it."""
        return {"function": self.function, "sha256": self.sha256}

    def build(self) -> nn.Module:
        """Run the file and return what its function returns."""
        path, wanted = self.path, self.function
        names = vars(run_code(self.code, path, "gradmix_backbone"))
        functions = {n: value for n, value in names.items() if callable(value) and not n.startswith("_")}
        if wanted not in functions:
            own = [name for name, value in functions.items() if inspect.isfunction(value)]
            there = f" (it has: {', '.join(own)})" if own else ""
            raise UserError(f"{path} has no function {wanted}(){there}; name it: {path}:FUNCTION")
        made = call_user(functions[wanted], path, wanted)
        if not isinstance(made, nn.Module):
            raise UserError(f"{wanted}() in {path} returned {type(made).__name__}, not a torch.nn.Module")
        return made

    def build_encoder(self, layer: str, channels: int, image_size: int, seed: int) -> Backbone:
        """Return its module as an encoder; weights that it draws are those of ``seed``."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = self.build()
        encoder = Backbone(module, layer, channels, image_size)
        encoder.code = self
        encoder.origin = self.origin
        return encoder


def is_code(word: str) -> bool:
    """Return whether ``word`` means a Python file, or a function in one.

    >>> is_code("mine.py:build"), is_code("./mine.py"), is_code("hf:facebook/dinov2-small")
    (True, True, False)
    """
    return split_word(word)[0].endswith(".py")


def read_user_backbone(word: str, changed: bool = False) -> UserBackbone:
    """Read the file that ``word`` names; nothing is run yet."""
    path, wanted = split_word(word)
    if not is_code(word):
        raise UserError(
            f"backbone {word}: give the file of your own network, FILE.py:FUNCTION; models of all other "
            "networks need none"
        )
    return UserBackbone(read_code(path, "a network"), path, wanted or _ENTRY, changed)


def check_origin(given: UserBackbone, recorded: dict[str, object]) -> None:
    """Raise UserError if a model was made with other code, unless that was allowed."""
    function, sha256 = recorded.get("function"), recorded.get("sha256")
    if given.changed or sha256 is None:
        return
    if sha256 != given.sha256:
        raise UserError(
            f"{given.path} is not the code that it was made with (SHA-256 {str(sha256)[:12]}…, not "
            f"{given.sha256[:12]}…); if the network in it is the same, add --changed-backbone"
        )
    if function != given.function:
        name = Path(given.path).name
        raise UserError(
            f"it was made with {function}() of {name}, not {given.function}(): give {name}:{function}"
        )
