"""Constants of programs that are compiled together: equal ones are one."""

from __future__ import annotations

import numpy as np
import tvm

from tvm_tile.build.constants import ConstantPool, TakenConstants


def test_equal_bytes_are_one_constant() -> None:
    pool = ConstantPool()
    one, other = (tvm.runtime.tensor(np.arange(12, dtype="float32")) for _ in range(2))
    first = pool.constant_of(one)
    assert pool.constant_of(other) is first
    assert first.shape == (12,)
    assert bytes(first.data) == np.arange(12, dtype="float32").tobytes()
    shaped = tvm.runtime.tensor(np.arange(12, dtype="float32").reshape(3, 4))
    typed = tvm.runtime.tensor(np.arange(12, dtype="float32").view("int32"))
    assert len({first, pool.constant_of(shaped), pool.constant_of(typed)}) == 3


def test_memory_that_nobody_keeps_may_become_that_of_another() -> None:
    """The second of two equal tensors is let go, and what comes to lie there is no twin."""
    pool = ConstantPool()
    kept, passing = (tvm.runtime.tensor(np.ones(64, "float32")) for _ in range(2))
    first = pool.constant_of(kept)
    assert pool.constant_of(passing) is first
    passing.copyfrom(np.zeros(64, "float32"))  # as whoever is given its memory next would
    second = pool.constant_of(passing)
    assert second is not first
    assert not any(second.data)


def test_a_program_takes_each_constant_once() -> None:
    taken = TakenConstants(ConstantPool())
    tensors = [tvm.runtime.tensor(np.full(8, value, "int64")) for value in (3, 4, 3, 5)]
    assert [taken.position(tensor) for tensor in tensors] == [0, 1, 0, 2]
    assert [int(np.frombuffer(c.data, "int64")[0]) for c in taken.constants] == [3, 4, 5]
