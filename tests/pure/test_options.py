"""Options of a compilation, however they are given."""

from __future__ import annotations

from typing import Any

import pytest

from tvm_tile.errors import OptionError
from tvm_tile.options import Options, checked_options


def test_they_may_be_given_by_name() -> None:
    expected = Options(tf32=True, topk=3)
    assert checked_options(expected) == expected
    assert checked_options({"tf32": True, "topk": 3}) == expected
    assert checked_options(None, {"tf32": True, "topk": 3}) == expected
    assert checked_options({"tf32": True}, {"topk": 3}) == expected
    assert checked_options(None) == Options()


def test_a_keyword_comes_before_the_others() -> None:
    assert checked_options(Options(topk=2, tf32=True), {"topk": 5}) == Options(topk=5, tf32=True)
    assert checked_options({"topk": 2}, {"topk": 5}).topk == 5


@pytest.mark.parametrize(
    ("options", "named", "meant"),
    [
        ({"tf23": True}, {}, "tf32"),
        (None, {"max_los": 0.1}, "max_loss"),
        (None, {"example_input": ()}, "example_inputs"),
    ],
)
def test_a_misspelt_name_is_refused_with_the_one_that_is_like_it(
    options: Any, named: dict[str, Any], meant: str
) -> None:
    with pytest.raises(OptionError, match=f"did you mean {meant}"):
        checked_options(options, named, ("example_inputs",))


@pytest.mark.parametrize("options", ["tf32", True, [("tf32", True)]])
def test_what_is_none_is_refused(options: Any) -> None:
    with pytest.raises(OptionError, match="options by name"):
        checked_options(options)


@pytest.mark.parametrize("named", [{"tf32": 1}, {"topk": -1}, {"control": "hst"}])
def test_values_are_checked(named: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        checked_options(None, named)
