"""Fourier transforms of overlapping frames, as formulas of ours.

PyTorch's own read the frames from a signal's memory by strides, and look at numbers.
"""

from __future__ import annotations

from typing import Any

import torch

from tvm_tile.frontend.torch.fourier_operator import BY_LENGTH, BY_ROOT

_ATEN = torch.ops.aten
_MOST_OVERLAPS = 64  # frames that a sample of a signal is in


def _window(window: Any, length: int, n_fft: int, like: Any) -> Any:
    """A window in the middle of a frame; all ones where none is given."""
    if window is None:
        window = torch.ones(length, dtype=like.abs().dtype, device=like.device)
    before = (n_fft - length) // 2
    return torch.constant_pad_nd(window, [before, n_fft - length - before])


def stft(
    x: torch.Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: torch.Tensor | None = None,
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Any:
    """The transforms of overlapping frames of signals: (..., time) to (..., frequencies, frames).

    Takes the arguments of ``aten.stft``; frames that are aligned to the window are not done.
    """
    if align_to_window:
        return NotImplemented
    frames = x.unfold(-1, n_fft, hop_length or n_fft // 4)
    frames = frames * _window(window, win_length or n_fft, n_fft, x)
    normalization, last = BY_ROOT if normalized else 0, [frames.dim() - 1]
    if frames.is_complex():
        made = _ATEN._fft_c2c.default(frames, last, normalization, True)
    else:
        made = _ATEN._fft_r2c.default(frames, last, normalization, onesided is not False)
    made = made.transpose(-2, -1)
    return made if return_complex else torch.view_as_real(made)


def istft(
    z: torch.Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: torch.Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Any:
    """The signals of transforms of overlapping frames: (..., frequencies, frames) to (..., time).

    Where windows leave a gap between them, at which PyTorch raises an error, this divides by zero.

    Takes the arguments of ``aten.istft``; complex signals, and samples in more than 64 frames are
    not done.
    """
    hop = hop_length or n_fft // 4
    is_complex = return_complex or (window is not None and window.is_complex())
    if is_complex or -(-n_fft // hop) > _MOST_OVERLAPS:
        return NotImplemented
    half = z.transpose(-2, -1).narrow(-1, 0, n_fft // 2 + 1)
    normalization = BY_ROOT if normalized else BY_LENGTH
    frames = _ATEN._fft_c2r.default(half, [half.dim() - 1], normalization, n_fft)
    placed = _window(window, win_length or n_fft, n_fft, frames)
    signal = _overlapped(frames * placed, hop)
    weight = _overlapped((placed * placed).expand(frames.shape[-2:]), hop)
    start = n_fft // 2 if center else 0
    whole = n_fft + hop * (frames.shape[-2] - 1)
    end = start + length if length is not None else whole - start
    known = min(end, whole)
    result = signal[..., start:known] / weight[start:known]
    return torch.constant_pad_nd(result, [0, end - known]) if end > known else result


def _overlapped(frames: torch.Tensor, hop: int) -> torch.Tensor:
    """The sums of overlapping frames: (..., frames, points) to (..., time), in which each frame
    begins ``hop`` behind the one before. Zeros may follow the last frame."""
    *outer, count, points = frames.shape
    overlaps = -(-points // hop)
    filled = torch.constant_pad_nd(frames, [0, overlaps * hop - points])
    steps = filled.reshape(*outer, count, overlaps, hop)
    sums = None
    for n in range(overlaps):
        moved = torch.constant_pad_nd(steps.select(-2, n), [0, 0, n, overlaps - 1 - n])
        sums = moved if sums is None else sums + moved
    assert sums is not None
    return sums.reshape(*outer, -1)


OF_FRAMES = {_ATEN.stft.default: stft, _ATEN.istft.default: istft}
"""Operator -> its formula."""
