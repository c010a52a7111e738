from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from gradmix.data import BadImage
from gradmix.data.decoding import MixedShapes, choose_size, decode_many, raise_if_bad, read_shapes
from gradmix.errors import UserError


def png(height: int, width: int, value: int | tuple[int, int, int], mode: str = "RGB") -> bytes:
    file = io.BytesIO()
    Image.new(mode, (width, height), value).save(file, "PNG")
    return file.getvalue()


def test_order_and_the_bad_are_kept_apart() -> None:
    sources = [png(4, 4, (i, 0, 0)) if i % 10 else b"broken" for i in range(200)]
    decoded = decode_many(sources, [f"no. {i}" for i in range(200)], size=4)
    assert decoded.kept.tolist() == [i for i in range(200) if i % 10]
    assert decoded.images[:, 0, 0, 0].tolist() == decoded.kept.tolist()
    assert [bad.name for bad in decoded.bad] == [f"no. {i}" for i in range(0, 200, 10)]


def test_grey_only_if_all_are() -> None:
    grey, colour = png(4, 4, 9, "L"), png(4, 4, (1, 2, 3))
    equal = png(4, 4, (7, 7, 7))
    assert decode_many([grey, equal], "ab", size=4).images[:, :, 0, 0].tolist() == [[9], [7]]
    assert decode_many([grey, colour], "ab", size=4).images[:, :, 0, 0].tolist() == [[9, 9, 9], [1, 2, 3]]
    assert decode_many([grey, grey], "ab", size=4, channels=3).images.shape[1] == 3
    assert decode_many([colour], "a", size=4, channels=1).images.shape[1] == 1


def test_the_size_is_the_median_shorter_side_but_at_most_64() -> None:
    sides = [(10, 90), (90, 20), (30, 30)]
    sources = [png(*side, 0, "L") for side in sides]
    assert read_shapes([*sources, b"x"]) == ([*sides, None], {3: "is not an image in a known format"})
    assert choose_size(sources) == (20, {})
    assert decode_many(sources, "abc").images.shape == (3, 1, 20, 20)
    assert choose_size([png(500, 300, 0, "L")])[0] == 64
    assert choose_size([])[0] == 64


def test_a_promised_shape_is_checked() -> None:
    assert decode_many([png(3, 5, 0, "L")] * 2, "ab", shape=(3, 5)).images.shape == (2, 1, 3, 5)
    with pytest.raises(MixedShapes):
        decode_many([png(3, 5, 0, "L"), png(5, 3, 0, "L")], "ab", shape=(3, 5))


def test_nothing_to_decode() -> None:
    assert decode_many([], [], size=4).images.shape == (0, 3, 4, 4)
    assert len(decode_many([b"x"], ["a"], size=4).images) == 0


def test_refusal_names_the_first_and_counts_the_rest() -> None:
    bad = [BadImage("cat/1.png", "is empty (0 bytes)"), BadImage("cat/2.png", "is damaged")]
    with pytest.raises(UserError, match=r"cat/1.png is empty .* \(and 1 more\); --skip-bad"):
        raise_if_bad(bad, skip_bad=False)
    raise_if_bad(bad, skip_bad=True)
    raise_if_bad([], skip_bad=False)


def test_the_result_does_not_depend_on_threads(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = [png(5, 5, tuple(rng.integers(0, 256, 3).tolist())) for _ in range(300)]
    results = []
    for cores in (1, 4):
        monkeypatch.setattr("os.cpu_count", lambda n=cores: n)
        results.append(decode_many(sources, [""] * 300, size=5).images)
    assert results[0].equal(results[1])
