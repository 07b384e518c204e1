"""Products with few vectors that compute their short operand, and several of them side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernel_bodies import case, scalar, swap_last
from tvm import relax
from tvm.relax import op

_FOLLOWS = "matvec"


def rms_norm(x: Any, g: Any) -> Any:
    """As language models have it: in float32, rounded before it is scaled."""
    dtype = str(g.ty.dtype)
    wide = op.astype(x, "float32") if dtype != "float32" else x
    squares = op.mean(op.multiply(wide, wide), [-1], keepdims=True)
    whole = op.multiply(wide, op.rsqrt(op.add(squares, scalar(1e-6))))
    return op.multiply(op.astype(whole, dtype) if dtype != "float32" else whole, g)


def layer_norm(x: Any, g: Any, b: Any) -> Any:
    return op.nn.layer_norm(x, g, b, [-1])


def times(x: Any, w: Any, *, turned: bool = False) -> Any:
    right = swap_last(w) if turned else w
    return op.matmul(x, right)


def gated(x: Any, w: Any, v: Any, *, turned: bool = False) -> Any:
    return op.multiply(op.nn.silu(times(x, w, turned=turned)), times(x, v, turned=turned))


def halves(y: Any) -> Any:
    """SwiGLU of a gate and what it lets through, as halves of one product."""
    both = op.split(y, 2, -1)
    return op.multiply(op.nn.silu(both[0]), both[1])


def _turned(body: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *given: body(*given, turned=True)


FEW_VECTORS = (
    case("rms", _FOLLOWS, lambda x, g, w: times(rms_norm(x, g), w), (1, 256), (256,), (256, 200)),
    case("rms_turned", _FOLLOWS, lambda x, g, w: times(rms_norm(x, g), w, turned=True),
         (1, 256), (256,), (200, 256)),
    # Nothing divides anything; rows of two axes.
    case("rms_of_primes", _FOLLOWS, lambda x, g, w: times(rms_norm(x, g), w),
         (2, 3, 197), (197,), (197, 101)),
    case("rms_of_primes_turned", _FOLLOWS, lambda x, g, w: times(rms_norm(x, g), w, turned=True),
         (5, 197), (197,), (101, 197)),
    case("layer_norm_bias_gelu", _FOLLOWS,
         lambda x, g, b, w, c: op.nn.gelu(op.add(times(layer_norm(x, g, b), w), c)),
         (3, 96), (96,), (96,), (96, 70), (70,)),
    # The norm's input is the residual, too.
    case("rms_residual", _FOLLOWS, lambda x, g, w: op.add(x, times(rms_norm(x, g), w)),
         (2, 96), (96,), (96, 96)),
    case("softmax", _FOLLOWS, lambda x, w: times(op.nn.softmax(x, -1), w), (4, 130), (130, 66)),
    case("eight_rows", _FOLLOWS, lambda x, g, w: times(rms_norm(x, g), w),
         (8, 128), (128,), (128, 64)),
    case("gated", _FOLLOWS, gated, (1, 128), (128, 200), (128, 200)),
    case("gated_turned", _FOLLOWS, _turned(gated), (3, 131), (67, 131), (67, 131)),
    case("rms_gated", _FOLLOWS, lambda x, g, w, v: gated(rms_norm(x, g), w, v),
         (2, 100), (100,), (100, 75), (100, 75)),
    case("rms_gated_turned", _FOLLOWS,
         lambda x, g, w, v: gated(rms_norm(x, g), w, v, turned=True),
         (1, 256), (256,), (96, 256), (96, 256)),
    case("halves", _FOLLOWS, lambda x, w: halves(times(x, w)), (1, 128), (128, 400)),
    case("halves_turned", _FOLLOWS, lambda x, w: halves(times(x, w, turned=True)),
         (3, 131), (134, 131)),
    case("rms_halves_bias_turned", _FOLLOWS,
         lambda x, g, w, b: halves(op.add(times(rms_norm(x, g), w, turned=True), b)),
         (1, 256), (256,), (192, 256), (192,)),
    # Elements in their order, in another shape.
    case("rms_reshaped_residual", _FOLLOWS,
         lambda x, y, g, w: op.add(y, op.reshape(times(rms_norm(x, g), w), (2, 1, 96))),
         (2, 96), (2, 1, 96), (96,), (96, 96)),
    case("gelu_with_biases", _FOLLOWS,
         lambda x, w, v, b, c: op.multiply(op.nn.gelu(op.add(times(x, w), b)),
                                           op.add(times(x, v), c)),
         (4, 64), (64, 90), (64, 90), (90,), (90,)),
)  # fmt: skip


def apart(x: Any, y: Any, w: Any, v: Any) -> Any:
    """Products of different values, whose sums meet."""
    return op.multiply(times(x, w), times(y, v))


def rows_and_sums(x: Any, g: Any, w: Any) -> tuple[Any, Any]:
    """A norm that is used elsewhere, too."""
    norm = rms_norm(x, g)
    return times(norm, w), relax.op.exp(norm)


LEFT_APART = (
    case("products_of_two_values", "", apart, (1, 64), (1, 64), (64, 90), (64, 90)),
    case("norm_used_elsewhere", "", rows_and_sums, (1, 64), (64,), (64, 90)),
    # Its rows differ from batch to batch: a block would compute those of others.
    case("batch", "", lambda x, w: op.matmul(op.nn.softmax(x, -1), w), (3, 2, 64), (3, 64, 80)),
)
