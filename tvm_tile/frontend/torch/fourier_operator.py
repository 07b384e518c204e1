"""An operator of ours among PyTorch's: the Fourier transform of one dimension."""

from __future__ import annotations

import torch

BY_ROOT, BY_LENGTH = 1, 2
"""PyTorch's numbers of normalizations, by which its own transforms are divided."""

_LIBRARY = torch.library.Library("tvm_tile", "DEF")
_LIBRARY.define("fourier(Tensor x, int count, bool inverse, bool onesided, float scale) -> Tensor")
FOURIER = torch.ops.tvm_tile.fourier.default
"""The transform of one dimension, which stays whole until it is imported.

Takes (..., points, parts), the parts of real points one and those of complex points two, and
returns (..., frequencies, 2), or (..., count, 1) where it makes a real signal of half a spectrum,
which is what ``inverse`` and ``onesided`` say together.
"""


def _fourier(
    x: torch.Tensor, count: int, inverse: bool, onesided: bool, scale: float
) -> torch.Tensor:
    is_real = x.shape[-1] == 1
    z = x.squeeze(-1) if is_real else torch.view_as_complex(x.contiguous())
    if inverse and onesided:
        return (torch.fft.irfft(z, count, norm="forward") * scale).unsqueeze(-1)
    if onesided:
        return torch.view_as_real(torch.fft.rfft(z, count)) * scale
    made = torch.fft.ifft(z, count, norm="forward") if inverse else torch.fft.fft(z, count)
    return torch.view_as_real(made) * scale


_LIBRARY.impl("fourier", _fourier, "CompositeExplicitAutograd")
