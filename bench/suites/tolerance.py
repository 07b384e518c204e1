"""How far an output may be from the reference: right or wrong, not a ranking.

Errors are relative, the norm of the difference over the norm of the reference. In float32, n
terms added one by one err by about ``sqrt(n / 6)`` half units in the last place (each partial
sum is rounded, the roundings are independent); four ``sqrt(n)`` of them leave room for any order.
In half precision the sums are float32 and the output is rounded once, which costs less than half
a unit in the last place; the limits are about four units, since some peers also round partial
sums or, in attention, the scores. The float32 limits are below what TF32 costs, about 3e-4.

Convolution libraries may transform the operands (Winograd, FFT), which costs about a digit.
"""

from __future__ import annotations

from math import sqrt

_HALF_UNIT = 2.0**-24
_ONCE_ROUNDED = {"float16": 2e-3, "bfloat16": 1.6e-2}
_TRANSFORMED = {"float32": 1e-4, "float16": 5e-3, "bfloat16": 4e-2}


def tolerance(dtype: str, terms: int = 1, *, is_convolution: bool = False) -> float:
    """The largest relative error that counts as right.

    Args:
        dtype: of inputs and outputs: float32, float16 or bfloat16.
        terms: how many are added up for one output.
        is_convolution: of a kind that libraries compute in a transformed domain.
    """
    if is_convolution:
        return _TRANSFORMED[dtype]
    if dtype == "float32":
        return max(1e-5, 4 * _HALF_UNIT * sqrt(terms))
    return _ONCE_ROUNDED[dtype]
