"""Parquet files in the layout of the Hugging Face Hub.

One column holds encoded images (``image`` or ``img``: a struct with ``bytes``), another the labels, whose
names are in the schema's metadata. Files are called after their split, and may be in shards
(``train-00000-of-00002-abc.parquet``), in ``data/`` or in the folder of a configuration.
Images that all have one size keep it; else see :mod:`.class_folders`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...errors import UserError, first_line
from ..arrays import MAX_CLASSES
from ..cache.decode_cache import decode_cached
from ..decoding import Decoded, MixedShapes, decode_many, read_shapes
from ..file_names import UNDIVIDED, parse_split
from ..imageset import UNKNOWN, ImageSet
from .image_files import list_subfolders
from .interface import ReadOptions, ReadResult

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

FORMAT = "Hub parquet"
_NAME = re.compile(r"(?P<split>[A-Za-z]+)(-\d+-of-(?P<shards>\d+))?(-[0-9a-f]+)?\.parquet")
_CONFIGURATIONS = (
    "data",
    "default",
    "plain_text",
    "cropped_digits",
)  # where the Hub's known data sets have theirs
_LARGEST_GROWTH = 100  # of the bytes of a file when it is decompressed
_IMAGE_COLUMNS = ("image", "img")
_LABEL_COLUMNS = ("fine_label", "label", "labels", "class")


def splits(path: Path) -> tuple[str, ...]:
    return tuple(_files(path))


def count(path: Path, split: str) -> int:
    return sum(_open(file).metadata.num_rows for file in _files(path)[split])


def read(path: Path, split: str, options: ReadOptions) -> ReadResult:
    files = _files(path)[split]
    tables = [_open(file) for file in files]
    sources = [
        f"{file.name}#{row}"
        for file, t in zip(files, tables, strict=True)
        for row in range(t.metadata.num_rows)
    ]
    labels, class_names = _labels(files, tables)

    def decode() -> Decoded:
        encoded = [
            image for file, table in zip(files, tables, strict=True) for image in _encoded(file, table)
        ]
        names = [f"image {source} in {path}" for source in sources]
        shape = read_shapes(encoded[:1])[0][0] if encoded and options.size is None else None
        try:
            return decode_many(encoded, names, shape, options.size, options.channels)
        except MixedShapes:
            return decode_many(encoded, names, None, None, options.channels)

    decoded = decode_cached(files, ["parquet", options.size, options.channels], decode, options.fresh)
    kept = tuple(sources[i] for i in decoded.kept.tolist())
    return ReadResult(ImageSet(decoded.images, labels[decoded.kept], class_names, kept), decoded.bad)


def _files(path: Path) -> dict[str, list[Path]]:
    """Return the files of each split, in the order of their shards."""
    if path.is_file():
        return {UNDIVIDED: [path]} if path.suffix == ".parquet" else {}
    if not path.is_dir():
        return {}
    files = sorted(_folder_with_parquet(path).glob("*.parquet"))
    found: dict[str, list[Path]] = {}
    for file in files:
        match = _NAME.fullmatch(file.name)
        split = parse_split(match["split"]) if match else None
        found.setdefault(split or UNDIVIDED, []).append(file)
        shards = int(match["shards"] or 1) if match else 1
        if match and sum(other.name.startswith(f"{match['split']}-") for other in files) < shards > 1:
            raise UserError(f"{file.parent} has not all {shards} shards of '{match['split']}'; get the rest")
    if len(found) > 1:
        found.pop(UNDIVIDED, None)  # files that are no split, beside files that are
    return found


def _folder_with_parquet(path: Path) -> Path:
    having = [folder for folder in (path, *list_subfolders(path)) if any(folder.glob("*.parquet"))]
    if path in having or not having:
        return path
    preferred = [folder for name in (*_CONFIGURATIONS, path.name) for folder in having if folder.name == name]
    if len(having) > 1 and not preferred:
        names = ", ".join(folder.name for folder in having)
        raise UserError(f"{path} has several data sets ({names}); name one of these folders")
    return (preferred or having)[0]


def _open(file: Path) -> pq.ParquetFile:
    import pyarrow as pa  # here, for it takes a while, and most commands read no parquet
    import pyarrow.parquet as pq

    try:
        opened = pq.ParquetFile(file)
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{file} cannot be read as parquet ({first_line(error)})") from error
    # An image takes more than a byte, and is compressed already: else a kilobyte could fill the memory.
    facts, size = opened.metadata, file.stat().st_size
    whole = sum(facts.row_group(i).total_byte_size for i in range(facts.num_row_groups))
    if facts.num_rows > size or whole > _LARGEST_GROWTH * size + 2**26:
        raise UserError(
            f"{file} has {size:,} bytes, and says that they are {facts.num_rows:,} images and {whole:,} bytes"
        )
    return opened


def _column(file: Path, table: pq.ParquetFile, name: str) -> pa.Array:
    import pyarrow as pa

    try:
        return table.read(columns=[name]).column(name).combine_chunks()
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{file} is damaged ({first_line(error)}); get it again") from error


def _encoded(file: Path, table: pq.ParquetFile) -> list[bytes]:
    import pyarrow as pa

    names = table.schema_arrow.names
    column = next((name for name in _IMAGE_COLUMNS if name in names), None)
    if column is None:
        raise UserError(
            f"{file} has no image column: it has {', '.join(names)}, wanted is one of {_IMAGE_COLUMNS}"
        )
    images = _column(file, table, column)
    if isinstance(images, pa.ChunkedArray):  # more than 2 GB does not combine
        images = pa.chunked_array([chunk.field("bytes") for chunk in images.chunks])
    elif pa.types.is_struct(images.type):
        images = images.field("bytes")
    return [image or b"" for image in images.to_pylist()]  # a missing image is then an empty, bad one


def _labels(files: Sequence[Path], tables: Sequence[pq.ParquetFile]) -> tuple[Tensor, tuple[str, ...]]:
    """Return the labels of all rows, and class names from the metadata (or from the labels themselves)."""
    schema = tables[0].schema_arrow
    column = next((name for name in _LABEL_COLUMNS if name in schema.names), None)
    if column is None:
        rows = sum(table.metadata.num_rows for table in tables)
        return torch.full((rows,), UNKNOWN), ()
    values: list[Any] = [
        v for f, t in zip(files, tables, strict=True) for v in _column(f, t, column).to_pylist()
    ]
    if any(isinstance(value, str) for value in values):
        texts = sorted({value for value in values if value is not None})
        index = {text: i for i, text in enumerate(texts)}
        return torch.tensor([index.get(value, UNKNOWN) for value in values], dtype=torch.int64), tuple(texts)
    labels = torch.tensor([UNKNOWN if value is None else int(value) for value in values], dtype=torch.int64)
    features = (
        json.loads((schema.metadata or {}).get(b"huggingface", b"{}")).get("info", {}).get("features", {})
    )
    largest = int(labels.max()) if len(labels) else -1
    if largest >= MAX_CLASSES:
        raise UserError(f"{files[0]}: {largest} is no label of a class; at most {MAX_CLASSES:,} are read")
    names = features.get(column, {}).get("names") or [str(c) for c in range(largest + 1)]
    if largest >= len(names):
        raise UserError(f"{files[0]}: label {largest} has no name, the schema names {len(names)} classes")
    return labels, tuple(str(name) for name in names)
