from __future__ import annotations

import pytest

from gradmix.detection import UNKNOWN_NAME
from gradmix.errors import UserError
from gradmix.recognition.model_checks import check_name, check_names


@pytest.mark.parametrize("name", ["cat", "猫", "two words", "unknowns"])
def test_names_that_a_class_may_have(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize("name", ["", " ", "a\nb", "a\x07", "\udcfc"])
def test_names_that_cannot_be_printed(name: str) -> None:
    with pytest.raises(UserError, match="a class needs a name that can be printed"):
        check_name(name)


def test_the_answer_for_all_others_is_no_class() -> None:
    with pytest.raises(UserError, match="no class can be called 'unknown'"):
        check_name(UNKNOWN_NAME)


@pytest.mark.parametrize("name", ["Unknown", "UNKNOWN", " unknown", "unknоwn"])  # the last with a Cyrillic o
def test_what_reads_like_the_answer_for_all_others_is_no_class(name: str) -> None:
    with pytest.raises(UserError, match="that is the answer for all others"):
        check_name(name)


@pytest.mark.parametrize(
    "pair",
    [("é", "e\u0301"), ("cat", "cаt"), ("a b", "a  b"), ("cat", "cat "), ("x", "x\ufe0f"), ("A", "Α")],
)
def test_two_classes_that_look_the_same(pair: tuple[str, str]) -> None:
    with pytest.raises(UserError, match="look the same") as refusal:
        check_names(["dog", *pair])
    assert str(refusal.value).isascii(), "the error shows where they differ"
    with pytest.raises(UserError, match="two classes are called 'cat'"):
        check_names(["cat", "dog", "cat"])
    check_names(["a", "A", "cat", "Cat", "猫"])
