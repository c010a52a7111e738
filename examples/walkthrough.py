"""The whole way, from a folder of photos to a model that learns new classes: read it from top to bottom.

    python examples/walkthrough.py --data DATA --out walk/ --size small

A folder of photos is made from TinyImageNet; three classes are held back as unknown. Then come the commands
that you would type for a folder of your own, in the order in which you would type them. DATA is the folder
in which your data sets lie (default: $GRADMIX_DATA), or TinyImageNet itself. Nothing is trained: a network
that has learned ImageNet is used as it is. "small", with four classes of 60 photos, takes two minutes on one
core; "full" has eight classes of 300. With --from-nothing a small network is trained at the end, to compare.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import shlex
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from PIL import Image

from gradmix import ImageSet, OpenSetClassifier, load_images
from gradmix.cli import main as gradmix_command
from gradmix.errors import UserError

WNIDS = {
    "monarch": "n02279972",
    "lakeside": "n09332890",
    "espresso": "n07920052",
    "red-panda": "n02509815",
    "salamander": "n01629819",
    "gondola": "n03447447",
    "barn": "n02793495",
    "sewing-machine": "n04179913",
    "brain-coral": "n01917289",
    "spider-web": "n04275548",
    "bullet-train": "n02917067",
}
UNKNOWN = ("brain-coral", "spider-web", "bullet-train")
TAUGHT = "brain-coral"  # the unknown class that is taught later, from a few photos
TAUGHT_WITH = 20
TESTED_WITH = 50  # photos of each class, none of them trained on


@dataclass(frozen=True)
class Size:
    """How much of everything."""

    known: tuple[str, ...]
    photos: int  # of each known class, for training


SIZES = {
    "small": Size(("monarch", "lakeside", "espresso", "red-panda"), photos=60),
    "full": Size(tuple(name for name in WNIDS if name not in UNKNOWN), photos=300),
}
FROM_NOTHING = (  # of gradmix train
    "--epochs 1000 --image-size 32 --encoder resnet8_32 --layers conv3_2,conv4_2 "
    "--batch-size 64 --max-steps 80"
)


def walk(train: ImageSet, test: ImageSet, size: Size, from_nothing: bool) -> dict[str, str]:
    """Everything, in the current folder; returns the summary's rows."""
    heading("A folder of photos, one folder per class")
    make_photos(train, test, size)
    gradmix("data info photos/")
    gradmix("data check photos/")  # broken, empty or duplicate images, before they cost time

    heading("A model, from a network that has learned ImageNet")
    gradmix("train photos/ --out run")

    heading("How well does it tell known from unknown, on photos that it has never seen?")
    gradmix("evaluate run --known test/known --unknown test/unknown --detector knn,energy,msp")
    measured = json.loads(Path("run/evaluation.json").read_text())["metrics"]["knn"]

    heading("How many known photos may be called unknown? One in ten")
    gradmix("calibrate run --false-reject 0.1")

    heading("Name new photos")
    before = predicted(into="before.csv")

    heading("Why? Heat map, nearest training photos, score and threshold")
    gradmix(f"explain run test/known/{size.known[0]}/000.jpg test/unknown/{TAUGHT}/000.jpg --out why")

    heading("What are those unknown photos? Groups to look at and to name")
    gradmix("discover run test/ --out groups")
    for number, group in enumerate(json.loads(Path("groups/groups.json").read_text())["groups"], start=1):
        truth = Counter(truth_of(file) for file in group["files"]).most_common(3)
        print(f"in truth, groups/{number} has " + ", ".join(f"{many} {name}" for name, many in truth))

    heading(f"Teach it {TAUGHT} from {TAUGHT_WITH} photos, without training")
    gradmix(f"enroll run --name {TAUGHT} corals/")
    after = predicted(into="after.csv")

    heading("Hand the model on, and use it in Python")
    print("clf = OpenSetClassifier.load('run')\nclf.save('model/')")
    classifier = OpenSetClassifier.load("run")
    classifier.save("model/")
    same = (OpenSetClassifier.load("model/").predict("test/") == classifier.predict("test/")).all()
    print(f"the saved model, loaded again, gives {'the same' if same else 'OTHER'} answers")

    heading("Take it to a place without torch")
    if find_spec("onnxruntime"):
        gradmix("export run --out exported")
        shown = [f"test/known/{size.known[0]}/000.jpg", f"test/unknown/{TAUGHT}/000.jpg"]
        print("$ python exported/predict.py", *shown, flush=True)
        subprocess.run([sys.executable, "exported/predict.py", *shown], check=True)
    else:
        print("gradmix export needs: pip install 'gradmix[export]'")

    heading(f"Forget {TAUGHT}")
    gradmix(f"forget run --name {TAUGHT}")
    forgotten = predicted(into="forgotten.csv")

    if from_nothing:
        heading("To compare: a small network, trained from nothing for half a minute")
        gradmix(f"train photos/ --out trained {FROM_NOTHING}")
        gradmix("evaluate trained --known test/known --unknown test/unknown --detector knn")

    return {
        "AUROC, known against unknown": f"{100 * measured['auroc']:.1f} %",
        "known photos: right class, if nothing is rejected": f"{100 * measured['closed_set_accuracy']:.1f} %",
        "known photos called unknown": share(before, size.known, says="unknown"),
        "unknown photos called unknown": share(before, UNKNOWN, says="unknown"),
        f"{TAUGHT} recognised, before it was taught": share(before, (TAUGHT,)),
        f"{TAUGHT} recognised, after": share(after, (TAUGHT,)),
        f"{TAUGHT} recognised, when it was forgotten": share(forgotten, (TAUGHT,)),
        "known photos named right, before": share(before, size.known),
        "known photos named right, after": share(after, size.known),
    }


def make_photos(train: ImageSet, test: ImageSet, size: Size) -> None:
    """photos/CLASS to train on, test/known/CLASS and test/unknown/CLASS to try, corals/ to teach."""
    for name in size.known:
        save_photos(train, name, slice(size.photos), Path("photos") / name)
        save_photos(test, name, slice(TESTED_WITH), Path("test/known") / name)
    for name in UNKNOWN:
        save_photos(test, name, slice(TESTED_WITH), Path("test/unknown") / name)
    save_photos(train, TAUGHT, slice(TAUGHT_WITH), Path("corals"))
    print(f"photos/: {', '.join(size.known)}\nheld back: {', '.join(UNKNOWN)}")


def tiny_imagenet(data: Path | None, split: str) -> ImageSet:
    """One split of the data set in the folder ``data``, or at ``data`` itself."""
    if data is not None and (any(data.glob("*.parquet")) or (data / "wnids.txt").exists()):
        return load_images(data, split=split)
    return load_images("tiny-imagenet", split=split, data_root=data)


def save_photos(images: ImageSet, name: str, which: slice, folder: Path) -> None:
    folder.mkdir(parents=True)
    wnid = WNIDS[name]
    if not images.counts().get(wnid):
        raise UserError(f"there are no images of {name} ({wnid}) in this copy of TinyImageNet")
    places = (images.labels == images.class_names.index(wnid)).nonzero()[:, 0][which]
    for number, picture in enumerate(images.images[places].permute(0, 2, 3, 1).numpy()):
        Image.fromarray(picture).save(folder / f"{number:03d}.jpg", quality=95)


def gradmix(line: str, into: str = "") -> None:
    """Run a command as a shell would (but without starting Python and torch anew); ``into`` is ``> FILE``."""
    print(f"$ gradmix {line}{f' > {into}' if into else ''}", flush=True)
    with contextlib.ExitStack() as stack:
        if into:
            stack.enter_context(contextlib.redirect_stdout(stack.enter_context(open(into, "w"))))
        sys.argv = ["gradmix", *shlex.split(line)]  # what run.json and the report say it was made by
        code = gradmix_command()
    if code:
        sys.exit(code)


def predicted(into: str) -> list[dict[str, str]]:
    """The model's answers on all test photos: file, label, nearest, score. Prints how they spread."""
    gradmix("predict run test/ --format csv", into)
    with open(into, newline="") as file:
        answers = list(csv.DictReader(file))
    for name in sorted({truth_of(answer["file"]) for answer in answers}):
        said = Counter(answer["label"] for answer in answers if truth_of(answer["file"]) == name)
        print(f"  {name:15s} -> " + ", ".join(f"{label} {many}" for label, many in said.most_common()))
    return answers


def truth_of(file: str) -> str:
    """The folder that a test photo lies in; the model sees pixels only."""
    return Path(file).parent.name


def share(answers: list[dict[str, str]], classes: tuple[str, ...], says: str = "") -> str:
    """How many photos of ``classes`` got the answer ``says``, or without it the right one."""
    labels = [(truth_of(a["file"]), a["label"]) for a in answers if truth_of(a["file"]) in classes]
    return f"{sum(label == (says or truth) for truth, label in labels)} of {len(labels)}"


def heading(text: str) -> None:
    print(f"\n{text}\n{'-' * len(text)}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="where TinyImageNet is (default: $GRADMIX_DATA)")
    parser.add_argument("--out", type=Path, required=True, help="a folder that is not there yet")
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--from-nothing", action="store_true", help="train a small network too, to compare")
    args = parser.parse_args()
    try:
        if args.out.exists():
            raise UserError(f"{args.out} exists already; choose another --out, or delete it")
        train, test = (tiny_imagenet(args.data, split) for split in ("train", "val"))
        args.out.mkdir(parents=True)
        with contextlib.chdir(args.out):
            rows = walk(train, test, SIZES[args.size], args.from_nothing)
    except UserError as error:
        print(f"walkthrough: {error}", file=sys.stderr)
        return 2
    heading("What came out")
    for what, value in rows.items():
        print(f"{what:55s} {value:>10s}")
    print(
        f"\nlook at {args.out / 'run/report.html'}, {args.out / 'why/explain.html'} and {args.out / 'groups'}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
