from __future__ import annotations

from dataclasses import replace

import pytest

from gradmix.data import (
    FAMILIES,
    KNOWN_SETS,
    PROTOCOLS,
    Split,
    custom_split,
    duplicates,
    get_split,
    openness,
    splits_hash,
)
from gradmix.data.protocols import published_splits
from gradmix.errors import UserError

ALL = [
    (protocol, family, trial)
    for family in FAMILIES
    for protocol in PROTOCOLS
    if protocol in published_splits()["families"][family]["splits"]
    for trial in range(5)
]
SIZES = {
    "mnist": (6, 4),
    "svhn": (6, 4),
    "cifar10": (6, 4),
    "cifar+10": (4, 10),
    "cifar+50": (4, 50),
    "tinyimagenet": (20, 180),
}
MNIST_0 = "efcbfacacc9736cf"
FILE = "cbce3edbfe81a421"
N_CLASSES = {"mnist": 10, "svhn": 10, "cifar10": 10, "cifar100": 100, "tiny-imagenet": 200}


def test_every_published_split_is_there() -> None:
    assert len(ALL) == (6 + 6 + 5) * 5


@pytest.mark.parametrize(("protocol", "family", "trial"), ALL)
def test_known_and_unknown_are_apart_and_exist(protocol: str, family: str, trial: int) -> None:
    split = get_split(protocol, trial, family)
    assert (len(set(split.known)), len(set(split.unknown))) == SIZES[protocol]
    assert (len(split.known), len(split.unknown)) == SIZES[protocol]
    if split.known_source == split.unknown_source:
        assert not set(split.known) & set(split.unknown)
        assert len(split.known) + len(split.unknown) == N_CLASSES[split.known_source]
    for source, classes in ((split.known_source, split.known), (split.unknown_source, split.unknown)):
        assert source in KNOWN_SETS
        assert all(isinstance(c, int) and 0 <= c < N_CLASSES[source] for c in classes)


@pytest.mark.parametrize(
    ("known", "unknown", "percent"),
    [(6, 4, 22.54), (4, 10, 46.55), (4, 50, 72.78), (20, 180, 68.38), (5, 0, 0)],
)
def test_openness_is_the_papers_table(known: int, unknown: int, percent: float) -> None:
    assert round(100 * openness(known, unknown), 2) == percent


def test_openness_of_a_split_and_of_nothing() -> None:
    assert get_split("cifar+50", 2).openness == openness(4, 50)
    with pytest.raises(UserError, match="at least 1 known"):
        openness(0, 4)


def test_hashes_are_stable_and_tell_splits_apart() -> None:
    """The values are printed beside results: a change here makes old results incomparable."""
    assert get_split("mnist", 0).hash == MNIST_0
    assert splits_hash() == FILE
    assert len({get_split(p, t, f).hash for p, f, t in ALL}) == len(ALL)
    split = get_split("cifar10", 0)
    assert replace(split, known=tuple(reversed(split.known))).hash != split.hash


def test_duplicate_trials_can_be_found() -> None:
    assert duplicates("svhn") == [(0, 1)]
    assert duplicates("cifar10") == [(0, 1)]
    assert duplicates("cifar+10") == []
    assert duplicates("mnist", "neal_2018") == []


def test_misspelt_protocols_families_and_trials() -> None:
    with pytest.raises(UserError, match="did you mean 'tinyimagenet'"):
        get_split("tinyimagnet", 0)
    with pytest.raises(UserError, match="did you mean 'neal_2018'"):
        get_split("mnist", 0, "neal2018")
    with pytest.raises(UserError, match="0 to 4"):
        get_split("mnist", 5)
    with pytest.raises(UserError, match="0 to 4"):
        get_split("mnist", -1)
    with pytest.raises(UserError, match=r"medaf_f1 has no mnist.*arpl_2020, neal_2018"):
        get_split("mnist", 0, "medaf_f1")


NAMES = ("ant", "bee", "cat", "dog", "eel")


def test_own_split_by_name_keeps_the_order_given() -> None:
    split = custom_split("zoo", NAMES, known=["dog", "ant"])
    assert split == Split("custom", "custom", 0, "zoo", ("dog", "ant"), "zoo", ("bee", "cat", "eel"))


def test_own_split_by_number_is_seeded() -> None:
    splits = [custom_split("zoo", NAMES, n_known=3, seed=seed) for seed in range(10)]
    assert splits == [custom_split("zoo", NAMES, n_known=3, seed=seed) for seed in range(10)]
    assert len({split.known for split in splits}) > 2
    for split in splits:
        assert sorted(split.known + split.unknown, key=str) == list(NAMES)
        assert len(split.known) == 3


@pytest.mark.parametrize(
    ("wish", "complaint"),
    [
        ({}, "one of the two"),
        ({"known": ["ant", "bee"], "n_known": 2}, "one of the two"),
        ({"known": ["ant", "cta"]}, "did you mean 'cat'"),
        ({"known": ["ant", "ant"]}, "twice"),
        ({"known": ["ant"]}, "1 of 5"),
        ({"n_known": 1}, "1 of 5"),
        ({"n_known": 5}, "not all"),
        ({"n_known": 9}, "9 of 5"),
        ({"n_known": -2}, "-2 of 5"),
    ],
)
def test_own_splits_that_make_no_sense(wish: dict[str, object], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        custom_split("zoo", NAMES, **wish)  # type: ignore[arg-type]
