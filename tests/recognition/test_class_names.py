from __future__ import annotations

import pytest

from gradmix.detection import UNKNOWN_NAME
from gradmix.errors import UserError
from gradmix.recognition.enroll import check_name


@pytest.mark.parametrize("name", ["cat", "猫", "two words", "Unknown"])
def test_names_that_a_class_may_have(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize("name", ["", " ", "a\nb", "a\x07", "\udcfc"])
def test_names_that_cannot_be_printed(name: str) -> None:
    with pytest.raises(UserError, match="a class needs a name that can be printed"):
        check_name(name)


def test_the_answer_for_all_others_is_no_class() -> None:
    with pytest.raises(UserError, match="no class can be called 'unknown'"):
        check_name(UNKNOWN_NAME)
