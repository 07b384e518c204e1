"""Operators on whole rows, and reductions of keys: functions, and the rules that take them."""

from __future__ import annotations

from typing import Any

from kernel_bodies import case, i32, i64
from tvm import relax
from tvm.relax import op


def _both(call: Any) -> tuple[Any, Any]:
    return relax.TupleGetItem(call, 0), relax.TupleGetItem(call, 1)


ROWWISE = (
    case("cumsum_rows", "scan", lambda x: op.cumsum(x, 1), (5, 300)),
    case("cumsum_columns", "scan", lambda x: op.cumsum(x, 0, exclusive=True), (300, 5)),
    case("cumsum_in_parts", "scan", lambda x: op.cumsum(x, 1), (2, 4099)),
    case("cumprod_int64", "scan", lambda x: op.cumprod(x, 1), i64(9, 17)),
    case("sort_rows", "sort", lambda x: op.sort(x, 1), (5, 100)),
    case("sort_columns", "sort", lambda x: op.sort(x, 0, True), i64(33, 3)),
    case("argsort_equal_elements", "sort", lambda x: op.argsort(x, 1, True), i32(3, 77)),
    case("topk_rows", "sort", lambda x: _both(op.topk(x, 5, 1)), (9, 130)),
    case("topk_in_merges", "sort", lambda x: _both(op.topk(x, 3, 1, largest=False)), (2, 8300)),
    case("argmax_int64", "rows", lambda x: op.argmax(x, 1), i64(5, 33)),
    case("argmin_int64_all", "elementwise rows", lambda x: op.argmin(x), i64(5, 33)),
    # Too long for registers: in vectors of one, the last turn not for all; scaled by channels.
    case("softmax_in_shared_memory", "rows", lambda x: op.nn.softmax(x, -1), (300, 50_001)),
    case(
        "group_norm_in_shared_memory",
        "rows",
        lambda x, g, b: op.nn.group_norm(x, g, b, 40, 1, [2]),
        (5, 320, 5120),
        (320,),
        (320,),
    ),
)
