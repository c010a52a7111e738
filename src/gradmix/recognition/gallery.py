"""Small pictures of the training images, kept in the model so that it can show what an image looks like.

A model is used where its training images are not, so names of files alone would often show nothing. At most
32 × 32 pixels, and only while all of them together stay below 16 MB (5,461 colour images): above, only the
names are kept. Whoever gives a model away and not its images calls :meth:`Recognizer.without_pictures`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ..data import ImageSet

LARGEST_SIDE = 32
MOST_BYTES = 16 * 2**20


@dataclass(frozen=True, eq=False)
class Gallery:
    """``pictures`` (M, C, h, w) uint8 or None, ``sources`` M names or none, in the order of the index."""

    pictures: Tensor | None = None
    sources: tuple[str, ...] = ()

    @staticmethod
    def of(images: ImageSet) -> Gallery:
        """Of square images that are about to be indexed."""
        side = min(LARGEST_SIDE, images.images.shape[-1])
        if len(images) * images.channels * side * side > MOST_BYTES:
            return Gallery(None, images.sources)
        return Gallery(images.converted(side, None).images[:].clone(), images.sources)

    def select(self, keep: Tensor) -> Gallery:
        """Those at the places ``keep`` (a boolean mask)."""
        pictures = None if self.pictures is None else self.pictures[keep]
        places = keep.nonzero()[:, 0].tolist()
        return Gallery(pictures, tuple(self.sources[i] for i in places) if self.sources else ())

    def joined(self, more: Gallery, before: int, added: int) -> Gallery:
        """These ``before`` and ``added`` more; pictures only if all have them, names empty where unknown."""
        pictures = None
        if self.pictures is not None and more.pictures is not None:
            pictures = torch.cat([self.pictures, more.pictures])
            if pictures.numel() > MOST_BYTES:
                pictures = None
        if not self.sources and not more.sources:
            return Gallery(pictures)
        return Gallery(pictures, (*(self.sources or ("",) * before), *(more.sources or ("",) * added)))

    def state(self) -> dict[str, Tensor]:
        """As tensors for the model file; names as UTF-8 with a zero byte between them."""
        state = {} if self.pictures is None else {"pictures": self.pictures.contiguous()}
        if self.sources:
            text = "\0".join(self.sources).encode("utf-8", "surrogateescape")
            # Not from the buffer itself: it is read-only. One byte in front, for a tensor may not be empty.
            state["sources"] = torch.frombuffer(bytearray(b"\0" + text), dtype=torch.uint8)
        return state

    @staticmethod
    def from_state(state: Mapping[str, Tensor], count: int) -> Gallery:
        """What :meth:`state` gave, for an index of ``count`` images."""
        pictures = state.get("pictures")
        sources: tuple[str, ...] = ()
        if "sources" in state:
            text = state["sources"].numpy().tobytes()[1:]
            sources = tuple(text.decode("utf-8", "surrogateescape").split("\0"))
        if (pictures is not None and len(pictures) != count) or len(sources) not in (0, count):
            raise ValueError(f"pictures or names of the training images do not fit the {count} in the index")
        return Gallery(pictures, sources)
