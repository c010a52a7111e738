"""Attacks on files, in this process: flipped bits, writes that fail, mutated images."""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gradmix.data import ImageFormat, load_image_files
from gradmix.errors import UserError
from gradmix.recognition import fit, load, update_model
from gradmix.serve.http import HTTPError
from gradmix.serve.limits import Limits
from gradmix.serve.uploads import Upload, decode_uploads
from gradmix.training import RunFolder
from tests.data.decoding.damage import damaged, whole_images
from tests.training.tiny import CLASSES, make_photos, tiny_images, tiny_recipe


class Files:
    """A small run and its photographs, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.photos = folder, folder / "photos"
        make_photos(self.photos)
        self.run = RunFolder.create(folder / "run", tiny_recipe(), {})
        fit(tiny_images(12), tiny_recipe(max_steps=4, holdout=0.25, false_reject=0.2), self.run)
        self.model = self.run.model_file
        self.whole_model, self.whole_state = self.model.read_bytes(), self.run.state_file.read_bytes()
        self.expected = self.describe()

    def describe(self) -> list[Any]:
        """All that decides an answer, to be compared with ==."""
        model = load(self.model)
        tensors = {**model.network.state_dict(), **model.index.state()}
        return [model.class_names, model.threshold, [value.tolist() for value in tensors.values()]]


def flip(content: bytes, rng: random.Random) -> bytes:
    changed = bytearray(content)
    changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def flipped_model(files: Files, rng: random.Random) -> str:
    files.model.write_bytes(flip(files.whole_model, rng))
    try:
        return "" if files.describe() == files.expected else "a flipped bit made another model"
    except UserError:
        return ""
    finally:
        files.model.write_bytes(files.whole_model)


def flipped_state(files: Files, rng: random.Random) -> str:
    expected = files.run.load_state()
    files.run.state_file.write_bytes(flip(files.whole_state, rng))
    try:
        return "" if same(files.run.load_state(), expected) else "a flipped bit made another state"
    except UserError:
        return ""
    finally:
        files.run.state_file.write_bytes(files.whole_state)


def same(a: Any, b: Any) -> bool:
    """Return whether two states are equal, tensors to the bit."""
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(torch.equal(a, b)) if isinstance(a, torch.Tensor) else bool(a == b)


@contextmanager
def failing(call: int, reason: int) -> Iterator[None]:
    """Let one of the system calls of a write fail: the disk is full, read-only or broken."""
    before, left = {name: getattr(os, name) for name in ("fsync", "replace", "chmod")}, call

    def fail_at_last(name: str, *args: Any, **options: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0:
            raise OSError(reason, os.strerror(reason))
        return before[name](*args, **options)

    for name in before:
        setattr(os, name, partial(fail_at_last, name))
    try:
        yield
    finally:
        for name, original in before.items():
            setattr(os, name, original)


def failing_write(files: Files, rng: random.Random) -> str:
    reason = rng.choice([errno.ENOSPC, errno.EROFS, errno.EIO, errno.EDQUOT])
    copy = Path(shutil.copy(files.model, files.folder / "copy.safetensors"))
    try:
        with failing(rng.randint(1, 4), reason):
            update_model(copy, lambda known: known.enroll("cross", tiny_images(2, ("cross",))))
    except UserError as error:
        if "\n" in str(error):
            return "more than one line"
    names = load(copy).class_names
    leftovers = list(files.folder.glob(".copy*.part"))
    if names not in (CLASSES, (*CLASSES, "cross")) or leftovers:
        return f"{names}, {leftovers}"
    state = files.run.load_state()
    try:
        with failing(rng.randint(1, 4), reason):
            files.run.save_state(state or {})
    except UserError:
        pass
    return "" if same(files.run.load_state(), state) else "another state"


def mutated_image(files: Files, rng: random.Random) -> str:
    """Through the decoder of the server, and through that of predict and train."""
    name = rng.choice(sorted(whole_images()))
    draws = np.random.default_rng(rng.randrange(2**32))
    folder = files.folder / "images"
    folder.mkdir(exist_ok=True)
    for i, content in enumerate(damaged(whole_images()[name], 8, draws)):
        with suppress(HTTPError):
            decode_uploads([Upload("x", content)], ImageFormat(16, 3), Limits())
        ending = name.split(",")[0].split()[0].lower()
        (folder / f"{i}.{'jpg' if ending == 'jpeg' else ending}").write_bytes(content)
    with suppress(UserError):
        load_image_files([folder], size=16, channels=3, skip_bad=True)
    shutil.rmtree(folder)
    return ""
