"""The data sets known by name: their paths, classes, and address on the Hub."""

from __future__ import annotations

from dataclasses import dataclass

from .protocols import published_splits

_DIGITS = tuple("0123456789")
_LETTERS = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_FASHION = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
_HIRAGANA = ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo")
# Those of one label per image. ChestMNIST has fourteen.
_MEDMNIST = (
    *("pathmnist", "dermamnist", "octmnist", "pneumoniamnist", "retinamnist", "breastmnist"),
    *("bloodmnist", "tissuemnist", "organamnist", "organcmnist", "organsmnist"),
)
_EMNIST = ("emnist-letters", "emnist-balanced", "emnist-digits", "emnist-byclass", "emnist-bymerge")


@dataclass(frozen=True)
class KnownSet:
    """A data set with a name.

    ``paths`` are looked for under the data root, in this order. ``class_names`` fixes the order of the
    labels (None: as the files have it). Files that only number the classes give them these names if
    ``numbered``: if the numbers are known to be in this order. ``test_split`` is the split that serves as
    labelled test set. ``inside`` names one of several data sets that share a folder or an archive.
    ``unlabeled`` ones are mere images.
    """

    name: str
    paths: tuple[str, ...]
    class_names: tuple[str, ...] | None = None
    test_split: str = "test"
    hub_repo: str | None = None
    hub_files: str = "*.parquet"
    numbered: bool = False
    inside: str = ""
    unlabeled: bool = False


KNOWN_SETS = {
    known.name: known
    for known in (
        KnownSet("mnist", ("mnist", "MNIST"), _DIGITS, hub_repo="ylecun/mnist"),
        KnownSet(
            "cifar10",
            ("cifar10", "CIFAR10", "cifar-10", "cifar-10-batches-py", "cifar-10-python.tar.gz"),
            tuple(published_splits()["cifar10_names"]),
            hub_repo="uoft-cs/cifar10",
        ),
        KnownSet(
            "cifar100",
            ("cifar100", "CIFAR100", "cifar-100", "cifar-100-python", "cifar-100-python.tar.gz"),
            hub_repo="uoft-cs/cifar100",
        ),
        KnownSet(
            "svhn",
            ("svhn", "SVHN"),
            _DIGITS,
            hub_repo="ufldl-stanford/svhn",
            hub_files="cropped_digits/*.parquet",
        ),
        KnownSet(
            "tiny-imagenet",
            ("tiny-imagenet", "tiny-imagenet-200", "tinyimagenet", "TinyImageNet", "tiny-imagenet-200.zip"),
            tuple(published_splits()["tinyimagenet_wnids"]),
            test_split="val",  # the official test images have no labels
            hub_repo="zh-plus/tiny-imagenet",
        ),
        KnownSet("mini-imagenet", ("mini-imagenet", "miniimagenet"), test_split="val"),
        KnownSet("imagenet100", ("imagenet100", "ImageNet100", "imagenet-100"), test_split="val"),
        KnownSet(
            "fashion-mnist",
            ("fashion-mnist", "FashionMNIST", "fashion_mnist", "fashionmnist"),
            _FASHION,
            hub_repo="zalando-datasets/fashion_mnist",
            numbered=True,
        ),
        KnownSet("kmnist", ("kmnist", "KMNIST"), _HIRAGANA, hub_repo="tanganke/kmnist", numbered=True),
        *(
            KnownSet(
                name,
                ("emnist", "EMNIST", "emnist/gzip", "EMNIST/raw", "emnist/gzip.zip", "EMNIST/raw/gzip.zip"),
                inside=name,
            )
            for name in _EMNIST
        ),
        KnownSet(
            "notmnist",
            (
                *("notmnist/notMNIST_small", "notMNIST/notMNIST_small", "notmnist", "notMNIST"),
                *("notMNIST_small", "notMNIST_small.tar.gz", "notMNIST_large", "notMNIST_large.tar.gz"),
            ),
            _LETTERS[:10],
            hub_repo="anubhavmaity/notMNIST",
        ),
        KnownSet("dtd", ("dtd/dtd", "dtd", "DTD/dtd", "DTD", "dtd-r1.0.1.tar.gz"), hub_repo="tanganke/dtd"),
        KnownSet(
            "cub-200-2011",
            ("cub-200-2011", "CUB_200_2011", "cub", "CUB", "CUB_200_2011.tgz"),
            hub_repo="bentrevett/caltech-ucsd-birds-200-2011",
        ),
        KnownSet("stanford-cars", ("stanford-cars", "stanford_cars", "StanfordCars", "cars")),
        KnownSet(
            "fgvc-aircraft",
            (
                *("fgvc-aircraft", "fgvc-aircraft-2013b", "FGVC-Aircraft", "aircraft"),
                "fgvc-aircraft-2013b.tar.gz",
            ),
        ),
        KnownSet(
            "places365",
            (
                *("places365", "Places365", "places365_standard", "places365standard_easyformat.tar"),
                *("val_256", "val_256.tar"),
            ),
            test_split="val",  # the official test images have no labels
        ),
        # The crops are distributed without a word for it in the name.
        *(
            KnownSet(
                f"{name.lower()}-{kind}", (f"{name}_{kind}", f"{name.lower()}-{kind}", *plain), unlabeled=True
            )
            for name in ("Imagenet", "LSUN")
            for kind, plain in (
                ("crop", (name, f"{name}.tar.gz")),
                ("resize", (f"{name}_resize.tar.gz",)),
            )
        ),
        *(
            KnownSet(
                name,
                (f"{name}.npz", f"medmnist/{name}.npz", f"{name}/{name}.npz", f"{name}/data/{name}.npz"),
                hub_repo="albertvillanova/medmnist-v2",
                hub_files=f"data/{name}.npz",
            )
            for name in _MEDMNIST
        ),
    )
}


def known_set(name: str) -> KnownSet | None:
    """Return the data set called ``name``, in any spelling, or None.

    >>> known_set("TinyImageNet").name
    'tiny-imagenet'
    """
    return {_plain(known): KNOWN_SETS[known] for known in KNOWN_SETS}.get(_plain(name))


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")
