"""The data that several experiments share, each with the paper's recipe for it."""

from __future__ import annotations

from ..declaration import Bench, OpenSplit, WholeSet

# On a CPU every trial of TinyImageNet takes split 0 with another seed: twenty classes are enough to have.
_TINY_SPLIT_0 = OpenSplit("tinyimagenet", only_trial=0)
_TINY_TWENTY = WholeSet("tiny-imagenet", known_of="tinyimagenet")

MNIST = Bench("mnist", "MNIST", "paper/mnist", OpenSplit("mnist"))
SVHN = Bench("svhn", "SVHN", "paper/svhn", OpenSplit("svhn"))
CIFAR10 = Bench("cifar10", "CIFAR10", "paper/cifar10", OpenSplit("cifar10"))
CIFAR_10 = Bench("cifar+10", "CIFAR+10", "paper/cifar+10", OpenSplit("cifar+10"))
CIFAR_50 = Bench("cifar+50", "CIFAR+50", "paper/cifar+50", OpenSplit("cifar+50"))
TINY = Bench(
    "tinyimagenet", "TinyImageNet", "paper/tinyimagenet", OpenSplit("tinyimagenet"), small=_TINY_SPLIT_0
)

CIFAR10_WHOLE = Bench("cifar10", "CIFAR10", "paper/cifar10", WholeSet("cifar10"))
CIFAR100_WHOLE = Bench("cifar100", "CIFAR100", "paper/cifar10", WholeSet("cifar100"))
TINY_HALF = Bench(
    "tinyimagenet",
    "TinyImageNet",
    "paper/tinyimagenet",
    WholeSet("tiny-imagenet", first=100),
    small=_TINY_TWENTY,
)
TINY_WHOLE = Bench(
    "tinyimagenet", "TinyImageNet", "paper/tinyimagenet", WholeSet("tiny-imagenet"), small=_TINY_TWENTY
)
