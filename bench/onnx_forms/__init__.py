"""Random forms of ONNX operators, to compare the front door with ONNX Runtime."""

from __future__ import annotations

from bench.onnx_forms.arrays import ARRAYS
from bench.onnx_forms.form import Draw, Form, form
from bench.onnx_forms.microsoft import MICROSOFT
from bench.onnx_forms.numbers import NUMBERS
from bench.onnx_forms.windows import WINDOWS

__all__ = ["Draw", "Form", "form", "random_form"]

_MAKERS = (*WINDOWS, *ARRAYS, *NUMBERS)


def random_form(seed: int, only: str = "") -> Form:
    """The form of a seed; equal seeds make equal forms.

    Args:
        seed: of all random choices.
        only: take only makers whose name contains this; those of ONNX Runtime's own operators,
            which begin with ``microsoft``, are not among all.
    """
    every = (*_MAKERS, *MICROSOFT) if only else _MAKERS
    makers = [maker for maker in every if only in maker.__name__]
    draw = Draw(seed)
    return draw.choose(*makers)(draw)
