"""What structures a Relay program: loops, branches, functions, data types, references."""

from __future__ import annotations

import numpy as np
import pytest

import tvm_tile
from tvm_tile import RelayText, UnsupportedOperatorError
from tvm_tile.frontend import from_relay

pytestmark = pytest.mark.bank(4)

X = np.linspace(-1, 1, 4).astype("float32")
W = np.array([3, -2, 1, 0.5], "float32")


def program(*definitions: str) -> RelayText:
    return RelayText('#[version = "0.0.5"]\n' + "\n".join(definitions))


def run(text: RelayText, *arrays: np.ndarray) -> np.ndarray:
    return tvm_tile.compile(text, "emulated")(*arrays)


def count(number: int) -> np.ndarray:
    return np.array(number, "int32")


WHILE = program(
    """
def @main(%n: int32, %x: Tensor[(4), float32], %w: Tensor[(4), float32]) {
  let %loop = fn (%i: int32, %s: Tensor[(4), float32]) {
    if (less(%i, %n)) {
      %loop(add(%i, 1), add(multiply(%s, 0.5f), %w))
    } else {
      (%i, %s)
    }
  };
  %0 = %loop(0, %x);
  %0.1
}"""
)


@pytest.mark.parametrize("trips", [-1, 0, 1, 2, 7, 3000])
def test_a_loop_whose_trips_the_data_decide(trips: int) -> None:
    """As often as it says, on a stack that does not grow, with a tensor from around it."""
    wanted = X
    for _ in range(trips):
        wanted = wanted * np.float32(0.5) + W
    np.testing.assert_allclose(run(WHILE, count(trips), X, W), wanted, rtol=1e-6)


def test_a_loop_within_a_loop() -> None:
    nested = program(
        """
def @inner(%j: int32, %s: Tensor[(4), float32]) -> Tensor[(4), float32] {
  if (greater(%j, 0)) { @inner(subtract(%j, 1), add(%s, 1f)) } else { %s }
}
def @outer(%i: int32, %s: Tensor[(4), float32]) -> Tensor[(4), float32] {
  if (greater(%i, 0)) { @outer(subtract(%i, 1), multiply(@inner(%i, %s), 2f)) } else { %s }
}
def @main(%n: int32, %x: Tensor[(4), float32]) { @outer(%n, %x) }"""
    )
    wanted = X
    for i in (3, 2, 1):
        wanted = (wanted + i) * 2
    np.testing.assert_allclose(run(nested, count(3), X), wanted, rtol=1e-6)


def test_a_loop_with_several_ends() -> None:
    ends = program(
        """
def @find(%i: int32, %s: Tensor[(4), float32]) -> Tensor[(4), float32] {
  if (greater(%i, 10)) {
    %s
  } else {
    %0 = sum(%s);
    if (greater(%0, 20f)) { negative(%s) } else { @find(add(%i, 1), add(%s, %s)) }
  }
}
def @main(%n: int32, %x: Tensor[(4), float32]) { @find(%n, %x) }"""
    )
    ones = np.ones(4, "float32")
    np.testing.assert_array_equal(run(ends, count(0), ones), -8 * ones)
    np.testing.assert_array_equal(run(ends, count(10), ones), 2 * ones)


def test_trips_that_are_known_are_unrolled() -> None:
    mod = from_relay(
        program(
            """
def @power(%n: int32, %x: Tensor[(4), float32]) -> Tensor[(4), float32] {
  if (equal(%n, 0)) { %x } else { @power(subtract(%n, 1), tanh(%x)) }
}
def @main(%x: Tensor[(4), float32]) { @power(5, %x) }"""
        )
    )
    assert [str(var.name_hint) for var in mod.get_global_vars()] == ["main"]
    assert str(mod["main"]).count("tanh") == 5


def test_values_of_data_types_and_functions_as_values() -> None:
    lists = program(
        """
type List[A] { Cons(A, List[A]), Nil, }
def @map[A, B](%f: fn (A) -> B, %list: List[A]) -> List[B] {
  match (%list) { Cons(%head, %rest) => { Cons(%f(%head), @map(%f, %rest)) }, Nil => { Nil }, }
}
def @total(%list: List[Tensor[(4), float32]]) -> Tensor[(4), float32] {
  match (%list) { Cons(%head, %rest) => { add(%head, @total(%rest)) }, Nil => { zeros(shape=[4], dtype="float32") }, }
}
def @main(%x: Tensor[(4), float32], %w: Tensor[(4), float32]) {
  %0 = fn (%y: Tensor[(4), float32]) { multiply(%y, %w) };
  @total(@map(%0, Cons(%x, Cons(exp(%x), Nil))))
}"""  # noqa: E501
    )
    np.testing.assert_allclose(run(lists, X, W), (X + np.exp(X)) * W, rtol=1e-5)


def test_a_reference_holds_what_was_written_last() -> None:
    references = program(
        """
def @main(%x: Tensor[(4), float32]) {
  let %r = ref(%x);
  let %a = ref_read(%r);
  let %u = ref_write(%r, multiply(%a, 2f));
  let %b = ref_read(%r);
  (%a, %b)
}"""
    )
    before, after = run(references, X)
    np.testing.assert_array_equal(before, X)
    np.testing.assert_array_equal(after, 2 * X)


@pytest.mark.parametrize("taken", [True, False])
def test_a_branch_of_tuples(taken: bool) -> None:
    branches = program(
        """
def @main(%c: bool, %x: Tensor[(4), float32]) {
  %0 = if (%c) { (%x, (exp(%x), tanh(exp(%x)))) } else { (tanh(%x), (%x, %x)) };
  %1 = %0.1;
  (%0.0, %1.0, %1.1)
}"""
    )
    own = (X, np.exp(X), np.tanh(np.exp(X))) if taken else (np.tanh(X), X, X)
    for found, wanted in zip(run(branches, np.array(taken), X), own, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("if (greater(%n, 0)) { add(@f(subtract(%n, 1), %x), %x) } else { %x }", "at its end"),
        ("@f(subtract(%n, 1), %x)", "whatever the data"),
        ("if (greater(%n, 0)) { @f(subtract(%n, 1), concatenate((%x, %x))) } else { %x }", "type"),
    ],
    ids=["a call that is not its end", "a loop without an end", "extents that grow"],
)
def test_what_is_no_loop_is_refused(body: str, reason: str) -> None:
    text = program(
        f"def @f(%n: int32, %x: Tensor[(4), float32]) {{ {body} }}",
        "def @main(%n: int32, %x: Tensor[(4), float32]) { @f(%n, %x) }",
    )
    with pytest.raises(UnsupportedOperatorError, match=reason):
        from_relay(text)


@pytest.mark.parametrize(
    ("main", "reason"),
    [
        ("if (%c) { Some(%x) } else { None }", "data"),
        ("let %r = ref(%x); let %u = if (%c) { ref_write(%r, exp(%x)) } else { () }; ref_read(%r)",
         "only the data decide"),
        ("if (%c) { %x } else { concatenate((%x, %x)) }", "different types"),
        ("%y", "bound nowhere"),
    ],
    ids=["a data type", "a reference", "types", "a variable"],
)  # fmt: skip
def test_what_only_the_data_decide_is_refused(main: str, reason: str) -> None:
    text = program(
        "type Option[A] { Some(A), None, }",
        f"def @main(%c: bool, %x: Tensor[(4), float32]) {{ {main} }}",
    )
    with pytest.raises(tvm_tile.ModelError, match=reason):
        from_relay(text)


def test_a_long_chain_is_no_deep_recursion() -> None:
    lines = "\n".join(f"  %{n + 1} = add(%{n}, 1f);" for n in range(3000))
    text = program(
        f"def @main(%x: Tensor[(4), float32]) {{\n  %0 = tanh(%x);\n{lines}\n  %3000\n}}"
    )
    assert str(from_relay(text)["main"]).count("R.add") == 3000
