"""A function whose loops no rule reads, nor dlight: what is left is statement by statement."""

from __future__ import annotations

from tvm.script import tirx as T


@T.prim_func(private=True, s_tir=True)
def running_maximum(x: T.Buffer((5, 7), "float32"), y: T.Buffer((5, 7), "float32")) -> None:
    """Twice the largest number of a row so far: plain loops around loops written by hand."""
    doubled = T.sblock_alloc_buffer((5, 7))
    seen = T.sblock_alloc_buffer((5, 7))
    for i, j in T.grid(5, 7):
        with T.sblock("doubled"):
            v, w = T.axis.remap("SS", [i, j])
            doubled[v, w] = x[v, w] * T.float32(2)
    with T.sblock("by_hand"):
        T.reads()
        T.writes()
        largest = T.alloc_local((1,))
        for i in T.parallel(5):
            largest[0] = doubled[i, 0]
            for j in range(7):
                if doubled[i, j] > largest[0]:
                    largest[0] = doubled[i, j]
                seen[i, j] = largest[0]
    for i, j in T.grid(5, 7):
        with T.sblock("copy"):
            v, w = T.axis.remap("SS", [i, j])
            y[v, w] = seen[v, w]
