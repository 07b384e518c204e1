"""Small constants are asked for before a kernel waits: which, at what places, and nothing else."""

from __future__ import annotations

import re

import pytest
from emulated import text_builder
from tvm.script import tirx as T

from tvm_tile.build.dependent_launches import LetsGo, mark
from tvm_tile.device import find_device

H200 = find_device("nvidia/h200")
ASK = re.compile(r"tile_ask_for_line\(\(\(void\*\)\(\(char\*\)(\w+)_ptr \+ (.*)\)\)\);\n")


@T.prim_func(private=True)
def late(
    x: T.Buffer((64, 64), "float32"),
    bias: T.Buffer((128,), "float32"),
    weight: T.Buffer((1 << 17,), "float32"),
    places: T.Buffer((64,), "int32"),
    y: T.Buffer((64, 64), "float32"),
) -> None:
    block = T.launch_thread("blockIdx.x", 64)
    i = T.launch_thread("threadIdx.x", 64)
    own = T.alloc_buffer((1,), "float32", scope="local")
    own[0] = T.float32(0)
    for step in range(1, 9):
        own[0] = own[0] + x[block, i] * weight[step * 64 + i] + bias[step * 8 + i // 8]
    own[0] = own[0] + T.if_then_else(i < 32, T.float32(0), bias[i - 32])
    y[block, i] = own[0] + bias[places[i]]


def asked(constants: tuple[str, ...], lets_go: LetsGo = LetsGo.ENDED) -> tuple[str, list[str]]:
    """The text of the kernel's body, and what it asks for: parameter and byte."""
    marked = mark(late, 0.0, constants, lets_go=lets_go)
    (kernel,) = text_builder(H200).build_functions({"late": marked})["late"].kernels
    body = kernel.source.rpartition('extern "C" __global__')[2].partition("{\n")[2]
    return body, [found.group(0) for found in ASK.finditer(body)]


def test_a_small_constant_is_asked_for_where_its_first_loads_are() -> None:
    body, _ = asked(("bias", "weight", "places"))
    names = [found[1] for found in ASK.finditer(body)]
    # Of the weight it is a stream, and where a place is read at comes from memory.
    assert sorted(set(names)) == ["bias", "places"]
    assert body.rindex("tile_ask_for_line(") < body.index("griddepcontrol_wait")
    assert body.index("griddepcontrol_wait") < body.index("x_ptr[")


@pytest.mark.parametrize("lets_go", LetsGo)
def test_the_order_of_letting_go_and_waiting_stays(lets_go: LetsGo) -> None:
    body, calls = asked(("bias",), lets_go)
    assert calls
    wait, ask = body.index("griddepcontrol_wait"), body.index("tile_ask_for_line(")
    assert ask < wait
    going = body.find("launch_dependents")
    expected = {
        LetsGo.FIRST: 0 <= going < ask,
        LetsGo.WAITED: going > wait,
        LetsGo.ENDED: going == -1,
    }
    assert expected[lets_go]


def test_what_others_may_write_is_not_asked_for() -> None:
    _, calls = asked(())
    assert calls == []


def test_places_are_inside_of_the_tensor() -> None:
    _, calls = asked(("bias",))
    assert len(calls) == 2
    for call in calls:
        found = ASK.match(call)
        assert found is not None
        place = re.sub(r"\(int(64_t)?\)", "", found[2])
        places = [eval(place.replace("threadIdx.x", str(i))) for i in range(64)]
        assert min(places) >= 0
        assert max(places) < 4 * 128
        assert len(set(places)) > 1


def test_of_threads_that_load_one_element_the_first_asks() -> None:
    body, calls = asked(("bias", "places"))
    assert len(calls) == 3
    for call in calls:
        ahead, _, condition = body[: body.index(call)].rpartition("if (")
        assert ahead
        assert "blockIdx.x" in condition, "no element is another one in another block"
        assert "threadIdx.x) ==" not in condition
