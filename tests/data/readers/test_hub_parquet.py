from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from gradmix.data import list_splits, load_images
from gradmix.errors import UserError


def png(value: int, side: int = 4, mode: str = "RGB") -> bytes:
    file = io.BytesIO()
    colour = (value, value // 2, 0) if mode == "RGB" else value
    Image.new(mode, (side, side), colour).save(file, "PNG")
    return file.getvalue()


def write(
    file: Path,
    images: list[bytes | None],
    labels: list[Any] | None,
    names: list[str] | None = None,
    image_column: str = "image",
    label_column: str = "label",
    **more: list[Any],
) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    columns: dict[str, Any] = {image_column: [{"bytes": image, "path": None} for image in images], **more}
    if labels is not None:
        columns[label_column] = labels
    table = pa.table(columns)
    if names is not None:
        features = {label_column: {"names": names, "_type": "ClassLabel"}}
        described = {"huggingface": json.dumps({"info": {"features": features}})}
        table = table.replace_schema_metadata(described)
    pq.write_table(table, file)


@pytest.mark.parametrize("folder", ["", "data", "plain_text", "whatever"])
@pytest.mark.parametrize(
    ("train", "val"),
    [
        ("train.parquet", "valid.parquet"),
        ("train-00000-of-00001.parquet", "validation-00000-of-00001-0ab1.parquet"),
    ],
)
def test_layouts_of_the_hub(tmp_path: Path, folder: str, train: str, val: str) -> None:
    write(tmp_path / folder / train, [png(3), png(4)], [1, 0], ["no", "yes"])
    write(tmp_path / folder / val, [png(5)], [1], ["no", "yes"])
    assert list_splits(tmp_path) == ("train", "val")
    images = load_images(tmp_path)
    assert images.class_names == ("no", "yes")
    assert images.labels.tolist() == [1, 0]
    assert images.images[:, 0, 0, 0].tolist() == [3, 4]
    assert images.sources == (f"{train}#0", f"{train}#1")
    assert load_images(tmp_path, split="val").images[0, 0, 0, 0] == 5


def test_shards_are_joined_in_order_and_all_wanted(tmp_path: Path) -> None:
    shards = [tmp_path / f"train-{i:05d}-of-00003-abc.parquet" for i in range(3)]
    for i, shard in enumerate(shards):
        write(shard, [png(i)], [i], ["a", "b", "c"])
    assert load_images(tmp_path).images[:, 0, 0, 0].tolist() == [0, 1, 2]
    shards[1].unlink()
    with pytest.raises(UserError, match="not all 3 shards of 'train'"):
        load_images(tmp_path)


def test_fine_labels_before_coarse_and_img_as_well_as_image(tmp_path: Path) -> None:
    write(
        tmp_path / "test.parquet",
        [png(1), png(2)],
        [0, 1],
        ["apple", "pear"],
        image_column="img",
        label_column="fine_label",
        coarse_label=[7, 7],
    )
    assert load_images(tmp_path, split="test").counts() == {"apple": 1, "pear": 1}


@pytest.mark.parametrize(
    ("labels", "names", "expected"),
    [
        ([2, 0], None, (["0", "1", "2"], [2, 0])),
        (["dog", "cat"], None, (["cat", "dog"], [1, 0])),
        ([-1, None], ["a", "b"], (["a", "b"], [-1, -1])),
        (None, None, ([], [-1, -1])),
    ],
)
def test_labels_without_names_as_text_or_missing(
    tmp_path: Path, labels: list[Any] | None, names: list[str] | None, expected: tuple[list[str], list[int]]
) -> None:
    write(tmp_path / "x.parquet", [png(1), png(2)], labels, names)
    images = load_images(tmp_path / "x.parquet")
    assert (list(images.class_names), images.labels.tolist()) == expected
    assert load_images(tmp_path).labels.tolist() == expected[1]


def test_grey_in_colour_is_grey(tmp_path: Path) -> None:
    file = io.BytesIO()
    Image.new("L", (4, 4), 9).convert("RGB").save(file, "WEBP", lossless=True)
    write(tmp_path / "train.parquet", [file.getvalue(), png(9, mode="L")], [0, 1], ["a", "b"])
    assert load_images(tmp_path).images.flatten().unique().tolist() == [9]
    assert load_images(tmp_path).channels == 1


def test_one_size_is_kept_and_mixed_sizes_are_fitted(tmp_path: Path) -> None:
    write(tmp_path / "one.parquet", [png(1, 84), png(2, 84)], [0, 1])
    assert load_images(tmp_path / "one.parquet").images.shape == (2, 3, 84, 84)
    assert load_images(tmp_path / "one.parquet", size=10).images.shape == (2, 3, 10, 10)
    write(tmp_path / "mixed.parquet", [png(1, 20), png(2, 30), png(3, 90)], [0, 1, 1])
    assert load_images(tmp_path / "mixed.parquet").images.shape == (3, 3, 30, 30)


def test_plain_binary_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table({"image": [png(1), png(2)], "label": [0, 1]}), tmp_path / "train.parquet")
    assert load_images(tmp_path).images[:, 0, 0, 0].tolist() == [1, 2]


def test_bad_images_are_named_by_row(tmp_path: Path) -> None:
    write(tmp_path / "train.parquet", [png(1), b"junk", None, png(4)], [0, 1, 0, 1], ["a", "b"])
    with pytest.raises(UserError, match=r"train.parquet#1 in .* is not an image.*\(and 1 more\)"):
        load_images(tmp_path)
    with pytest.warns(UserWarning, match="left out 2"):
        images = load_images(tmp_path, skip_bad=True)
    assert images.sources == ("train.parquet#0", "train.parquet#3")
    assert images.labels.tolist() == [0, 1]
    write(tmp_path / "train.parquet", [b"junk"], [0], ["a", "b"])
    with pytest.raises(UserError, match="no readable image"):
        load_images(tmp_path, skip_bad=True)


def test_files_that_are_not_what_they_should_be(tmp_path: Path) -> None:
    file = tmp_path / "train.parquet"
    file.write_bytes(b"PAR1 not really")
    with pytest.raises(UserError, match=r"train.parquet cannot be read as parquet"):
        load_images(tmp_path)
    pq.write_table(pa.table({"picture": [b""], "label": [0]}), file)
    with pytest.raises(UserError, match=r"no image column: it has picture, label"):
        load_images(tmp_path)
    write(file, [png(1)], [5], ["a", "b"])
    with pytest.raises(UserError, match="label 5 has no name"):
        load_images(tmp_path)
    rng = np.random.default_rng(0)
    noise = [rng.bytes(500) for _ in range(20)]
    write(file, [*noise], [0] * 20, ["a", "b"])
    content = bytearray(file.read_bytes())
    content[100:3000] = bytes(2900)
    file.write_bytes(bytes(content))
    with pytest.raises(UserError, match=r"train.parquet"):
        load_images(tmp_path)


def test_several_configurations_must_be_told_apart(tmp_path: Path) -> None:
    for name in ("left", "right"):
        write(tmp_path / name / "train.parquet", [png(1)], [0])
    with pytest.raises(UserError, match=r"several data sets \(left, right\)"):
        load_images(tmp_path)
    write(tmp_path / "cropped_digits" / "train.parquet", [png(8)], [0])
    assert load_images(tmp_path).images[0, 0, 0, 0] == 8
