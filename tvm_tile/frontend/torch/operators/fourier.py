"""The Fourier transform of one dimension, as which complex numbers leave PyTorch's."""

from __future__ import annotations

from tvm import relax

from tvm_tile.frontend.ops.fourier import transformed
from tvm_tile.frontend.torch.convert import Converters
from tvm_tile.frontend.torch.emit import Emit, Refusal
from tvm_tile.frontend.torch.fourier_operator import FOURIER


def _fourier(
    emit: Emit, x: relax.Expr, count: int, inverse: bool, onesided: bool, scale: float
) -> relax.Expr:
    try:
        return transformed(emit.builder, x, count, inverse=inverse, onesided=onesided, scale=scale)
    except NotImplementedError as error:
        raise Refusal(str(error)) from error


CONVERTERS: Converters = {FOURIER: _fourier}
