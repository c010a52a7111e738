"""Reading a pickle that may hold only numbers, text, lists, dicts and arrays of bytes.

A pickle is a program, and the one of a CIFAR batch comes from the network. Here none of its calls reaches
anything but the three stand-ins below, which only keep what they are given; every other name is refused.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np
from numpy.typing import NDArray


class NotPlain(Exception):
    """The pickle asks for something other than plain data."""


class _PickledDtype:
    """Stands for numpy.dtype: keeps the type code."""

    def __init__(self, code: Any, *flags: Any) -> None:
        self.code = code.decode("latin1") if isinstance(code, bytes) else code

    def __setstate__(self, state: Any) -> None:
        pass  # byte order and alignment: of no meaning to single bytes


class _PickledArray:
    """Stands for numpy.ndarray: keeps shape, type and raw bytes."""

    def __init__(self, *arguments: Any) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def array(self) -> NDArray[np.uint8]:
        try:
            _, shape, dtype, fortran, raw = self.state
            if dtype.code != "u1":
                raise NotPlain(f"an array of type {dtype.code}, not of bytes")
            return np.frombuffer(bytearray(raw), np.uint8).reshape(shape, order="F" if fortran else "C")
        except (TypeError, ValueError, AttributeError) as error:
            raise NotPlain(f"a malformed array ({error})") from error


class _Latin1:
    """Stands for _codecs.encode, by which Python 3 writes bytes for old readers."""

    def __new__(cls, text: str, encoding: str = "latin1") -> Any:
        return text.encode("latin1")

    def __setstate__(self, state: Any) -> None:
        pass


_STAND_INS: dict[tuple[str, str], type] = {
    ("numpy.core.multiarray", "_reconstruct"): _PickledArray,
    ("numpy._core.multiarray", "_reconstruct"): _PickledArray,
    ("numpy", "ndarray"): _PickledArray,
    ("numpy", "dtype"): _PickledDtype,
    ("_codecs", "encode"): _Latin1,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _STAND_INS:
            raise NotPlain(f"it calls {module}.{name}")
        return _STAND_INS[module, name]

    def persistent_load(self, pid: Any) -> Any:
        raise NotPlain("it refers to objects outside")


def load_plain(content: bytes) -> dict[str, Any]:
    """Return the dict in a pickle; keys are text, arrays are numpy uint8, byte strings stay bytes."""
    try:
        loaded = _Unpickler(io.BytesIO(content), encoding="bytes").load()
    except NotPlain:
        raise
    except Exception as error:  # a hostile or cut-off pickle can raise anything at all
        raise NotPlain(f"{type(error).__name__}: {error}") from error
    if not isinstance(loaded, dict):
        raise NotPlain(f"it holds a {type(loaded).__name__}, not a dict")
    return {
        key.decode("latin1") if isinstance(key, bytes) else str(key): (
            value.array() if isinstance(value, _PickledArray) else value
        )
        for key, value in loaded.items()
    }
