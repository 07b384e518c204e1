"""The exception tree and the three parts of every message."""

from __future__ import annotations

import inspect
import pickle

import pytest

from tvm_tile import errors

CLASSES = [
    value
    for _, value in inspect.getmembers(errors, inspect.isclass)
    if issubclass(value, errors.TileError)
]


@pytest.mark.parametrize("error", CLASSES)
def test_the_message_has_requirement_current_value_and_remedy(
    error: type[errors.TileError],
) -> None:
    raised = error("x must be 3", "x is 4", "pass 3")
    assert (raised.requirement, raised.current, raised.remedy) == (
        "x must be 3",
        "x is 4",
        "pass 3",
    )
    assert str(raised) == "x must be 3\n  found:  x is 4\n  remedy: pass 3"


@pytest.mark.parametrize("error", CLASSES)
def test_errors_survive_a_process_border(error: type[errors.TileError]) -> None:
    copy = pickle.loads(pickle.dumps(error("a", "b", "c")))
    assert type(copy) is error
    assert (copy.requirement, copy.current, copy.remedy) == ("a", "b", "c")


def test_what_is_unsupported_is_known_by_name_behind_a_process_border() -> None:
    error = errors.UnsupportedOperatorError("a", "b", "c", ("relu_1", "sort"))
    assert pickle.loads(pickle.dumps(error)).nodes == ("relu_1", "sort")


def test_the_docstring_draws_the_tree() -> None:
    """Every class is drawn, two columns further right than its base, and nothing else is."""
    drawn: dict[str, int] = {}
    for line in (errors.__doc__ or "").splitlines():
        names = [word for word in line.split() if word.endswith("Error")]
        if names:
            drawn[names[0]] = line.index(names[0])
    assert set(drawn) == {error.__name__ for error in CLASSES}
    for error in CLASSES:
        base = error.__bases__[0]
        if base is not Exception:
            assert drawn[error.__name__] == drawn[base.__name__] + 4
