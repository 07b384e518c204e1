"""Forms of Relay's text that the corpus lacks, and what is said of wrong ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tvm_tile.errors import ModelFileError
from tvm_tile.frontend.relay.program import (
    Call,
    Constant,
    Constructor,
    ConstructorPattern,
    Function,
    If,
    Item,
    Let,
    Local,
    Match,
    Operator,
    Program,
    TensorType,
    Tuple,
    TupleType,
)
from tvm_tile.frontend.relay.text import read_text

KEYED_BY_ATTRIBUTES = (
    '{"root": 1, "nodes": [{"type_key": ""}, {"type_key": "Map", "data": [2, 3]}, '
    '{"type_key": "relay.attrs.ScanopAttrs"}, {"type_key": "Array"}], "b64ndarrays": []}'
)
HEAD = '#[version = "0.0.5"]\n'


def read(text: str) -> Program:
    return read_text(HEAD + text, "t")


def main_body(body: str, parameters: str = "%x: Tensor[(2), float32]") -> Any:
    return read(f"def @main({parameters}) {{\n{body}\n}}").functions["main"].body


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", np.int32(1)),
        ("-3", np.int32(-3)),
        ("--3", np.int32(3)),
        ("3000000000", np.int64(3_000_000_000)),
        ("7i64", np.int64(7)),
        ("-7i16", np.int16(-7)),
        ("1f", np.float32(1)),
        ("1e-05f", np.float32(1e-5)),
        ("-2.5f16", np.float16(-2.5)),
        ("1e+100f64", np.float64(1e100)),
        ("inff", np.float32("inf")),
        ("-inff", np.float32("-inf")),
        ("nanf", np.float32("nan")),
        ("1e+39f", np.float32("inf")),
        ("True", np.bool_(True)),
    ],
)
def test_scalars(text: str, value: Any) -> None:
    body = main_body(text)
    assert isinstance(body, Constant)
    assert body.value.dtype == value.dtype
    assert body.value.shape == ()
    np.testing.assert_array_equal(body.value, value)


@pytest.mark.parametrize("text", ["70000i16", "1i7", "1f8", "1.5i32", "99999999999999999999"])
def test_numbers_that_no_type_holds(text: str) -> None:
    with pytest.raises(ModelFileError, match="line 3, column 1"):
        main_body(text)


def test_signs_between_operands() -> None:
    body = main_body("%x + %x * 2f - %x / 3f < %x")
    assert body.callee == Operator("less")
    difference = body.arguments[0]
    assert difference.callee == Operator("subtract")
    total, quotient = difference.arguments
    assert (total.callee, quotient.callee) == (Operator("add"), Operator("divide"))
    assert total.arguments[1].callee == Operator("multiply")


@pytest.mark.parametrize(
    "name",
    ["layer1.0.conv.weight", "onnx::Gemm_7", "input:0", "a/b/c", "x-1", "a.b/c:0", "v33", "_", "é"],
)
def test_names_of_importers(name: str) -> None:
    function = read(f"def @main(%{name}: Tensor[(2), float32]) {{ %0 = abs(%{name}); %0 }}")
    main = function.functions["main"]
    assert main.parameters[0].name == name
    assert main.body.arguments == main.parameters  # type: ignore[union-attr]


def test_an_item_of_a_variable_is_no_part_of_its_name() -> None:
    body = main_body("%t.0.1", "%t: ((float32, float32), float32)")
    assert isinstance(body, Item)
    assert body.index == 1
    assert isinstance(body.value, Item)
    assert isinstance(body.value.value, Local)
    longer = main_body("%t.0.1", "%t: (float32, float32), %t.0: (float32, float32)")
    assert isinstance(longer, Item)
    assert isinstance(longer.value, Local)
    assert longer.value.name == "t.0"


def test_a_variable_hides_another_only_as_long_as_it_lives() -> None:
    body = main_body("let %y = (let %x = abs(%x); %x); add(%x, %y)")
    assert isinstance(body, Let)
    inner, sum_ = body.value, body.body
    assert isinstance(inner, Let)
    assert inner.body is inner.variable
    assert isinstance(inner.value, Call)
    assert isinstance(sum_, Call)
    assert inner.value.arguments == (sum_.arguments[0],)
    assert sum_.arguments[0] is not inner.variable


def test_a_function_may_call_itself() -> None:
    body = main_body("let %f = fn (%i: int32) { %f(%i) }; %f(1)")
    assert isinstance(body, Let)
    assert isinstance(body.value, Function)
    assert isinstance(body.value.body, Call)
    assert body.value.body.callee is body.variable


def test_a_number_that_an_inner_block_binds_is_known_outside() -> None:
    body = main_body("if (True) { %0 = abs(%x); exp(%0) } else { negative(%0) }")
    assert isinstance(body, If)
    assert body.then.arguments[0] is body.otherwise.arguments[0]  # type: ignore[union-attr]


def test_tuples_and_brackets() -> None:
    assert isinstance(main_body("(%x)"), Local)
    assert main_body("()").fields == ()
    assert len(main_body("(%x,)").fields) == 1
    assert isinstance(main_body("(%x, %x,)"), Tuple)


def test_data_types() -> None:
    program = read(
        "type List[A] { Cons(A, List[A]), Nil, }\n"
        "def @main(%l: List[float32]) -> float32 {\n"
        "  match? (%l) { Cons(%h, _) => { %h }, Nil() => 0f, }\n}"
    )
    body = program.functions["main"].body
    assert isinstance(body, Match)
    first, second = (clause.pattern for clause in body.clauses)
    assert isinstance(first, ConstructorPattern)
    assert first.constructor == Constructor("Cons", 2)
    assert second == ConstructorPattern(Constructor("Nil", 0), ())


def test_types() -> None:
    program = read(
        "def @main(%a: Tensor[(?, 3), bfloat16], %b: (int32, Tensor[(), bool]), %c: fn (int32) -> "
        "(), %d: _, %e, %f: (float32,)) { %a }"
    )
    types = [parameter.type for parameter in program.functions["main"].parameters]
    assert types[0] == TensorType((None, 3), "bfloat16")
    assert types[1] == TupleType((TensorType((), "int32"), TensorType((), "bool")))
    assert types[3:] == [None, None, TupleType((TensorType((), "float32"),))]


def test_comments_nest_and_strings_have_no_escapes() -> None:
    body = main_body('/* a /* b */ c */ cast(%x, // no\n dtype="int8" /* ty=x */)')
    assert body.attributes == {"dtype": "int8"}
    assert main_body(r'einsum(%x, equation="\")').attributes == {"equation": "\\"}


def test_attributes_are_completed_and_converted() -> None:
    call = main_body("nn.pad(%x, 0f, pad_width=[[1i64, 1i64]])")
    assert call.attributes == {"pad_width": ((1, 1),), "pad_mode": "constant"}
    assert main_body("nn.leaky_relu(%x, alpha=1)").attributes == {"alpha": 1.0}
    assert main_body("sum(%x, axis=[0], keepdims=1)").attributes == {
        "axis": (0,),
        "keepdims": True,
        "exclude": False,
    }


def test_an_expression_alone_is_main() -> None:
    function = read("fn (%x: float32) { abs(%x) }").functions["main"]
    assert [parameter.name for parameter in function.parameters] == ["x"]
    free = read("free_var %x: Tensor[(2), float32];\nfree_var %y; %0 = add(%x, %y); %0")
    assert [parameter.name for parameter in free.functions["main"].parameters] == ["x", "y"]


def test_a_statement_is_computed_for_nothing() -> None:
    body = main_body("ref_write(ref(%x), %x); %x")
    assert isinstance(body, Let)
    assert body.body is body.value.value  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("%y", "line 3, column 1: %y is bound nowhere"),
        ("abs(%x", "line 4, column 1: ',' is expected"),
        ("abs(%x, %0)", "line 3, column 9: %0 is bound nowhere"),
        ("@f(%x)", "line 3, column 1: @f is defined nowhere"),
        ("nn.dense(%x, %x, unit=3)", "line 3, column 1: nn.dense has no attribute unit"),
        ("nn.dense(%x, %x, units=3, units=4)", "line 3, column 27: the attribute units occurs tw"),
        ("split(%x)", "split lacks its attribute indices_or_sections"),
        ('cast(%x, dtype="flaot32")', "'flaot32'"),
        ('cast(%x, dtype="int4")', "'int4'"),
        ("cast(%x, dtype=1)", "dtype of cast is '1', which is no DataType"),
        ("meta[relay.Constant][0]", "show_meta_data=True"),
        ("/* abs(%x)", "line 3, column 1: a comment that does not end"),
        ("%x ~ %x", "line 3, column 4: '~', which means nothing here"),
        ("let %a: Tensor[(-2), int8] = %x; %a", "the extent -2"),
        ("let %a: Tensor[(2), float31] = %x; %a", "'float31'"),
        ("match (%x) { Nil => 1 }", "no data type has the constructor Nil"),
        ("(" * 3000 + "%x", "its brackets are nested too deeply"),
        ("abs(%x)) {", "column 8: '}' is expected"),
    ],
)
def test_wrong_text_is_refused_with_its_place(body: str, said: str) -> None:
    with pytest.raises(ModelFileError) as error:
        main_body(body)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "an expression is expected, and the end is there"),
        ("def @f() { 1 }", "no Relay function main"),
        ("def @main() { 1 }\ndef @main() { 2 }", "line 3, column 5: @main is defined twice"),
        ("def @main = meta[ExternalFunc][0]", "a function whose code is elsewhere"),
        ("type A { B, }\ntype C { B, }", "the constructor B is defined twice"),
        ("abs(1f) )", "')' after the end of the expression"),
        ("def @main() { 1 }\n#[metadata]\n{}", "its metadata: it has no list of nodes"),
        (f"def @main() {{ 1 }}\n#[metadata]\n{KEYED_BY_ATTRIBUTES}", "an attribute's name is"),
    ],
)
def test_wrong_modules_are_refused(text: str, said: str) -> None:
    with pytest.raises(ModelFileError) as error:
        read(text)
    assert said in str(error.value)


@pytest.mark.parametrize(("bound", "used"), [("let %v{}", "%v{}"), ("%{}", "%{}")])
def test_chains_may_be_long(bound: str, used: str) -> None:
    count = 20_000
    lines = [f"{bound.format(n + 1)} = abs({used.format(n)});" for n in range(count)]
    body = main_body("\n".join([f"{bound.format(0)} = exp(%x);", *lines, used.format(count)]))
    assert isinstance(body, Let if "let" in bound else Call)
