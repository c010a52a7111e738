"""CLIP's tokenizer: merges by hand, and what is refused."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from gradmix.errors import UserError
from gradmix.models.clip import Tokenizer, load_tokenizer, tokenize, tokens

BYTES = 256


def test_the_pair_that_was_merged_first_is_merged_first() -> None:
    """abc: with (b, c) of rank 0 it is a + bc, although (a, b) stands further left."""
    tokenizer = Tokenizer([("b", "c</w>"), ("a", "b"), ("a", "bc</w>")])
    assert tokenizer.encode("bc") == [2 * BYTES]
    assert tokenizer.encode("abc") == [2 * BYTES + 2]
    assert tokenizer.encode("abd") == [2 * BYTES + 1, BYTES + ord("d") - 33]  # printable bytes begin at "!"
    assert (tokenizer.start, tokenizer.end) == (2 * BYTES + 3, 2 * BYTES + 4)


def test_every_occurrence_of_a_pair_is_merged() -> None:
    tokenizer = Tokenizer([("a", "b")])
    a, b_at_end = ord("a") - 33, BYTES + ord("b") - 33
    assert tokenizer.encode("ababab") == [2 * BYTES, 2 * BYTES, a, b_at_end]  # "b</w>" is another symbol


def test_published_tokens() -> None:
    """CLIP's own numbers, as its model card and papers print them."""
    tokenizer = load_tokenizer()
    assert tokenizer.encode("A  photo of a Dog.") == [320, 1125, 539, 320, 1929, 269]
    assert (tokenizer.start, tokenizer.end) == (49406, 49407)
    rows = tokenize(tokenizer, ["a dog", "a photo of a dog"])
    assert rows.shape == (2, 77)
    assert rows[0, :5].tolist() == [49406, 320, 1929, 49407, 0]
    assert rows.argmax(1).tolist() == [3, 6]


def test_a_long_text_is_refused() -> None:
    with pytest.raises(UserError, match=r"'a a a .* has 92 tokens, and CLIP reads 77"):
        tokenize(load_tokenizer(), ["a " * 90])


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    with pytest.raises(UserError, match=r"extra 'clip': pip install 'gradmix\[clip\]'"):
        load_tokenizer.__wrapped__()


def test_another_vocabulary_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "vocabulary.gz").write_bytes(b"something else")
    monkeypatch.setattr(tokens, "_find_vocabulary", lambda: tmp_path / "vocabulary.gz")
    with pytest.raises(UserError, match=r"vocabulary\.gz is not the vocabulary of CLIP"):
        load_tokenizer.__wrapped__()
