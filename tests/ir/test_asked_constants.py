"""Small constants are asked for before a kernel waits: which, at what places, and nothing else."""

from __future__ import annotations

import re
from collections import Counter
from types import SimpleNamespace

import pytest
from emulated import text_builder
from tvm.script import tirx as T

from tvm_tile.build.early.dependent_launches import LetsGo, mark
from tvm_tile.device import find_device

H200 = find_device("nvidia/h200")
ASK = re.compile(r"tile_ask_for\((\w+)_ptr, (.*), (\d+), (\d+)\);\n")
CASTS = re.compile(r"\(int(64_t)?\)")


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


def test_small_constants_are_asked_for_ahead_of_the_wait() -> None:
    body, _ = asked(("bias", "weight", "places"))
    names = [found[1] for found in ASK.finditer(body)]
    # The weight is a stream.
    assert sorted(names) == ["bias", "places"]
    assert body.rindex("tile_ask_for(") < body.index("griddepcontrol_wait")
    assert body.index("griddepcontrol_wait") < body.index("x_ptr[")


@pytest.mark.parametrize("lets_go", LetsGo)
def test_the_order_of_letting_go_and_waiting_stays(lets_go: LetsGo) -> None:
    body, calls = asked(("bias",), lets_go)
    assert calls
    wait, ask = body.index("griddepcontrol_wait"), body.index("tile_ask_for(")
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


def test_each_line_is_asked_for_once() -> None:
    body, calls = asked(("bias", "places"))
    (condition,) = re.findall(r"if \((.*)\) \{\n    tile_ask_for", body)
    condition = CASTS.sub("", condition).replace("&&", "and")
    asks = [found for call in calls if (found := ASK.match(call))]
    assert len(asks) == len(calls) == 2
    counts: Counter[tuple[str, int]] = Counter()
    for block in range(64):
        for thread in range(64):
            at = {"blockIdx": SimpleNamespace(x=block), "threadIdx": SimpleNamespace(x=thread)}
            if not eval(condition, at):
                continue
            for name, first, lines, by in (found.groups() for found in asks):
                own = range(eval(CASTS.sub("", first), at), int(lines), int(by))
                counts.update((name, line) for line in own)
    sizes = {"bias": 4 * 128, "places": 4 * 64}
    assert counts == {
        (name, line): 1 for name, size in sizes.items() for line in range(size // 128)
    }
