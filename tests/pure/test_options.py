"""Options of a compilation, however they are given."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import pytest

from tvm_tile.device import find_device
from tvm_tile.errors import OptionError
from tvm_tile.options import Options, checked_options
from tvm_tile.plan.rprogram import Bounds
from tvm_tile.stages.forced import Forced


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


@pytest.mark.parametrize("named", [{"tf32": 1}, {"topk": -1}, {"bounds": 3}])
def test_values_are_checked(named: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        checked_options(None, named)


FORCED: dict[str, tuple[Any, Any]] = {
    "weld": (False, 1),
    "coschedule": (False, None),
    "control": ("host", "hst"),
    "dependent_launches": (True, 1),
    "exclusive": (nullcontext(), 3),
    "parallel_builds": (2, 0),
}


def test_there_are_few_options_and_others_only_where_they_are_forced() -> None:
    names = [field.name for field in fields(Options)]
    assert len(names) == 10
    assert [field.name for field in fields(Forced)] == [*names, *FORCED]


@pytest.mark.parametrize("name", FORCED)
def test_what_a_compilation_decides_can_be_forced(name: str) -> None:
    value, wrong = FORCED[name]
    usual, forced = Options(), Forced(**{name: value})
    assert getattr(Forced(), name) == getattr(usual, name)
    assert getattr(forced, name) == value != getattr(usual, name)
    assert checked_options(forced) == forced == checked_options(Forced(), {name: value})
    assert checked_options(forced, {"topk": 3}) == replace(forced, topk=3)
    assert not hasattr(forced, "__dict__")
    with pytest.raises(FrozenInstanceError):
        setattr(forced, name, value)
    with pytest.raises(OptionError, match=name):
        Forced(**{name: wrong})


@pytest.mark.parametrize("name", FORCED)
def test_what_a_compilation_decides_is_refused_among_options(name: str) -> None:
    with pytest.raises(OptionError, match=f"'{name}'(.|\n)*the compiler decides"):
        checked_options({name: FORCED[name][0]})


def test_what_is_forced_is_told_where_the_result_depends_on_it() -> None:
    assert Forced().told() == Options().told() == ()
    assert Forced(weld=False, topk=2).told() == ("topk=2", "weld=False")
    assert Forced(parallel_builds=1, exclusive=nullcontext()).told() == ()
    assert Options(bounds=Bounds(3)).told() == ("bounds=Bounds(iterations=3, depth=256)",)
    assert copy.deepcopy(Forced(control="kernel")) == Forced(control="kernel")


@pytest.mark.parametrize("given", ["all", True, None, ["skip"]])
def test_zeros_are_multiplied_or_skipped(given: Any) -> None:
    assert [Options(zeros=own).told() for own in ("multiply", "skip")] == [(), ("zeros='skip'",)]
    with pytest.raises(OptionError, match='zeros must be "multiply" or "skip"'):
        Options(zeros=given)


@pytest.mark.parametrize("device", ["nvidia/h200", "nvidia/a100", "amd/mi300x"])
def test_devices_that_skip_no_zeros_say_so(device: str) -> None:
    notes = [*Options(zeros="skip").notes(find_device(device))]
    assert len(notes) == (device != "nvidia/h200")
    assert [*Options().notes(find_device(device))] == []


@pytest.mark.parametrize("given", ["all", 1, None])
def test_which_codes_stay_is_all_none_or_what_is_faster(given: Any) -> None:
    assert [Options(low_bit=own).told() for own in ("auto", True)] == [(), ("low_bit=True",)]
    with pytest.raises(OptionError, match='low_bit, if not "auto", must be True or False'):
        Options(low_bit=given)
