"""The types of responses, for the OpenAPI document; their names are public there."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from .uploads import IMAGES_FIELD

_CLASSES = [{"name": "cat", "similarity": 0.91}, {"name": "dog", "similarity": 0.42}]
_VERDICT = {
    "file": "a.jpg",
    "label": "cat",
    "known": True,
    "nearest": "cat",
    "score": 0.3121,
    "threshold": 0.2754,
    "p_value": 0.62,
    "classes": _CLASSES,
}
_REJECTED = _VERDICT | {
    "file": "b.jpg",
    "label": "unknown",
    "known": False,
    "score": 0.2013,
    "p_value": 0.005,
}
_BAD = {"file": "c.jpg", "error": "c.jpg is not an image in a known format"}


def _example(value: dict[str, Any]) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [value]})


class Error(BaseModel):
    """Why a request was not answered."""

    model_config = _example({"error": "a.png is damaged (image file is truncated)"})
    error: str = Field(description="one line")


class Near(BaseModel):
    """One of the classes that an image is nearest to."""

    name: str
    similarity: float = Field(description="mean cosine to the k nearest images of the class")


class Verdict(BaseModel):
    """What became of one image: a verdict, or why it could not be read."""

    model_config = _example(_VERDICT)
    file: str = Field(description="what the client called it")
    label: str | None = Field(None, description="a class, or 'unknown'")
    known: bool | None = None
    nearest: str | None = Field(None, description="the class it looks most like, known or not")
    score: float | None = Field(None, description="higher = more likely known")
    threshold: float | None = Field(None, description="known from here on; null if nothing is rejected")
    p_value: float | None = Field(
        None, description="how unusual it is for a known image, in (0, 1]: unknown if at most false_reject"
    )
    classes: list[Near] | None = Field(None, description="the nearest classes, best first")
    error: str | None = Field(None, description="instead of all else, if this image could not be read")


class Verdicts(BaseModel):
    """In the order in which the images were sent."""

    model_config = _example({"images": [_VERDICT, _REJECTED, _BAD], "model": 1})
    images: list[Verdict]
    model: int = Field(description="1 at first, one more with every change of the model")
    note: str | None = Field(None, description="one line, if nothing can be rejected at the rate asked for")


class Neighbour(BaseModel):
    """An image of the index."""

    similarity: float = Field(description="cosine")
    source: str
    picture: str | None = Field(description="PNG in base64, if the model keeps pictures")


class Evidence(BaseModel):
    """What speaks for a class."""

    name: str
    similarity: float
    class_bias: float = Field(description="what is added to the similarity to an enrolled class")
    neighbours: list[Neighbour]


class Explained(BaseModel):
    """Why an image was named or rejected."""

    file: str
    label: str | None = None
    known: bool | None = None
    score: float | None = None
    threshold: float | None = None
    p_value: float | None = None
    verdict: str | None = Field(None, description="the decision in one sentence")
    heat_map: str | None = Field(None, description="where the network looked, over the image: PNG in base64")
    classes: list[Evidence] | None = None
    error: str | None = None


class Explanations(BaseModel):
    images: list[Explained]


class Group(BaseModel):
    """Rejected images that are alike; ``members`` are places in the request, the most typical first."""

    members: list[int]
    cohesion: float = Field(description="mean cosine to their mean direction")
    nearest: str


class Groups(BaseModel):
    groups: list[Group]
    left_over: list[int] = Field(description="rejected, in no group")
    accepted: list[int]
    unreadable: list[int]


class Taught(BaseModel):
    """The model after a change."""

    model_config = _example({"name": "zebra", "images": 5, "classes": ["cat", "dog", "zebra"]})
    name: str
    images: int = Field(description="images of this class in the index")
    classes: list[str]
    note: str | None = Field(None, description="one line, if the model now rejects nothing")


class Drift(BaseModel):
    """Whether the images that were accepted still look like the known ones; from the last change on."""

    model_config = _example(
        {
            "model": 1,
            "images": 812,
            "log10_odds": 0.1214,
            "highest_log10_odds": 0.5302,
            "alarm": False,
            "text": "drift: no sign of it in 812 accepted images",
        }
    )
    model: int = Field(description="the state of the model")
    images: int = Field(description="accepted images so far")
    log10_odds: float = Field(description="log10 of the odds against 'nothing has changed', now")
    highest_log10_odds: float
    alarm: bool = Field(description="whether they ever reached 100 to 1: without a change, 1 model in 100")
    text: str


class Alive(BaseModel):
    model_config = _example({"status": "ok"})
    status: str = Field(description="ok, or what is broken")


class KnownClass(BaseModel):
    """A class that the model knows."""

    name: str
    images: int = Field(description="images of this class in the index")
    taught: bool = Field(description="whether it was enrolled after training")
    pictures: list[str] = Field(description="small ones of some of them: PNG in base64")


class Classes(BaseModel):
    """What the model knows."""

    classes: list[KnownClass]
    model: int = Field(description="1 at first, one more with every change of the model")
    state: str = Field(description="differs whenever answers may differ: after a change, and after a restart")
    false_reject: float = Field(description="the share of known images that may be called unknown")
    rejects: bool = Field(description="false if it has too few held-out images to call anything unknown")
    can_undo: bool = Field(description="whether the last change was made here and can be undone")


class Undone(BaseModel):
    """The model after its last change was taken back."""

    classes: list[str]
    can_undo: bool = Field(description="whether the change before can be undone, too")


class Health(BaseModel):
    model_config = _example({"status": "ok", "classes": 6, "model": 1, "problem": ""})
    status: str = Field(description="ok, degraded (see problem), or why nothing is answered")
    classes: int
    model: int
    problem: str = Field(description="why a changed model file was not taken over, if so")


def form_body(single: bool = True, **fields: dict[str, Any]) -> dict[str, Any]:
    """Return the ``requestBody`` of an endpoint that takes images; ``single``: also one image as the body."""
    files = {"type": "array", "items": {"type": "string", "format": "binary"}}
    required = [IMAGES_FIELD, *(name for name, about in fields.items() if "default" not in about)]
    form = {"type": "object", "required": required, "properties": {IMAGES_FIELD: files} | fields}
    content: dict[str, Any] = {"multipart/form-data": {"schema": form}}
    if single:
        content["image/*"] = {"schema": {"type": "string", "format": "binary"}}
    return {"requestBody": {"required": True, "content": content}}
