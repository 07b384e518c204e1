"""The function ``tvm_tile.compare``."""

from __future__ import annotations

from tvm_tile.errors import InputError
from tvm_tile.report.shown import Comparison, Profile, Report, compare_profiles, compare_reports
from tvm_tile.runtime.model import CompiledModel

Compared = CompiledModel | Profile | Report


def compare(a: Compared, b: Compared) -> Comparison:
    """Two compilations of a model side by side: with other options, for another device, by another
    version of this package.

    Args:
        a: a compiled or loaded model, or its report, compared by what is predicted; or a profile,
            compared by what was measured.
        b: another one, of the same kind.

    Returns:
        What takes more time in ``b``, and what less, by the names of the user's model; ``str()`` is
        a screen.

    Raises:
        InputError: one is measured and the other is not, or it is something else.
    """
    if isinstance(a, Profile) and isinstance(b, Profile):
        return compare_profiles(a, b)
    reports = [one.report if isinstance(one, CompiledModel) else one for one in (a, b)]
    first, second = reports
    if isinstance(first, Report) and isinstance(second, Report):
        return compare_reports(first, second)
    raise InputError(
        "compare takes two compiled models, or two profiles",
        " and ".join(type(one).__name__ for one in (a, b)),
        "pass model.profile(...) of both, or neither",
    )
