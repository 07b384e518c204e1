"""A decoder's step that appends rows to its caches and attends to them, as one kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from joined import only
from tvm import tirx

from tvm_tile.device import Device
from tvm_tile.frontend import import_model
from tvm_tile.graph.extract import extract
from tvm_tile.schedule import Task
from tvm_tile.schedule.decode import schedule_decode
from tvm_tile.schedule.decode.find import find_decode
from tvm_tile.stages.fusing import fuse


@dataclass(frozen=True, slots=True)
class AppendCase:
    """Sizes of a step: ``heads`` of queries share ``shared`` heads of keys."""

    heads: int = 4
    shared: int = 2
    rows: int = 1
    keys: int = 150
    depth: int = 32
    batch: int = 1
    dtype: str = "float32"
    is_normed: bool = True
    is_rotated: bool = True
    is_masked: bool = True

    def __str__(self) -> str:
        flags = "".join(str(int(f)) for f in (self.is_normed, self.is_rotated, self.is_masked))
        sizes = f"{self.batch}x{self.heads}/{self.shared}x{self.rows}x{self.keys}x{self.depth}"
        return f"{sizes} {flags} {self.dtype}"

    @property
    def width(self) -> int:
        """Elements of a row of what makes queries, keys and values."""
        return (self.heads + 2 * self.shared) * self.depth


CASES = (
    AppendCase(),
    AppendCase(rows=4),
    AppendCase(rows=3, batch=3, dtype="float16", depth=24),
    AppendCase(heads=3, shared=3, keys=77, depth=64, is_normed=False),
    AppendCase(heads=8, shared=1, keys=1000, depth=64, dtype="float16", is_rotated=False),
    AppendCase(heads=8, keys=300, depth=256, dtype="bfloat16"),
    AppendCase(heads=6, rows=5, keys=33, depth=20, batch=2, is_normed=False, is_rotated=False),
    AppendCase(keys=96, depth=35, dtype="float16", is_rotated=False),
    AppendCase(keys=64, rows=2, is_masked=False),
)


class Step(torch.nn.Module):
    """Queries and keys with a norm and a rotation by their positions, caches written in place."""

    def __init__(self, case: AppendCase) -> None:
        super().__init__()
        self.case, dtype = case, getattr(torch, case.dtype)
        rng = torch.Generator().manual_seed(3)
        for name in ("keys", "values"):
            shape = (case.batch, case.shared, case.keys, case.depth)
            self.register_buffer(name, torch.randn(shape, generator=rng).to(dtype))
        for name in ("of_queries", "of_keys"):
            weight = torch.rand(case.depth, generator=rng) + 0.5
            self.register_buffer(name, weight.to(dtype))
        self.register_buffer("places", torch.arange(case.keys), persistent=False)

    def _norm(self, x: Any, weight: Any) -> Any:
        if not self.case.is_normed:
            return x
        wide = x.float() if x.dtype != torch.float64 else x
        return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)

    def _rotated(self, x: Any, cos: Any, sin: Any) -> Any:
        if not self.case.is_rotated:
            return x
        half = self.case.depth // 2
        return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin

    def forward(self, x: Any, positions: Any, cos: Any, sin: Any) -> Any:
        """The attention of a row of queries, keys and values for each position."""
        case = self.case
        heads = x.view(case.batch, case.rows, -1, case.depth)
        q, k, v = heads.split([case.heads, case.shared, case.shared], 2)
        q, k = self._norm(q, self.of_queries), self._norm(k, self.of_keys)
        q, k, v = (own.transpose(1, 2) for own in (q, k, v))
        cos, sin = cos[None, None], sin[None, None]
        q, k = self._rotated(q, cos, sin), self._rotated(k, cos, sin)
        self.keys.index_copy_(2, positions, k)
        self.values.index_copy_(2, positions, v)
        times = case.heads // case.shared
        keys, values = (own.repeat_interleave(times, 1) for own in (self.keys, self.values))
        scores = (q @ keys.transpose(2, 3)).float() * 0.2
        if case.is_masked:
            keep = self.places <= positions[:, None]
            scores = scores.masked_fill(~keep, -torch.inf)
        out = torch.softmax(scores, -1).to(v.dtype) @ values
        return out.transpose(1, 2).reshape(case.batch, case.rows, -1)

    def inputs(self, seed: int = 0) -> tuple[Any, Any, Any, Any]:
        """What a step takes, at the first positions."""
        case, rng = self.case, torch.Generator().manual_seed(seed)
        shapes = ((case.batch, case.rows, case.width), (case.rows, case.depth))
        x, cos, sin = (torch.randn(s, generator=rng) for s in (*shapes, shapes[1]))
        x, cos, sin = (own.to(self.keys.dtype) for own in (x, cos, sin))
        return x, torch.arange(case.rows), cos, sin


def appending_function(case: AppendCase, device: Device) -> tirx.PrimFunc:
    """The function that a step becomes, next to what makes the mask."""
    step = Step(case)
    imported = import_model(torch.export.export(step, step.inputs()))
    fused = fuse(imported.mod, device, first=only(schedule_decode, device)).mod
    found = [func for func in fused.functions.values() if _appends(func, device)]
    assert len(found) == 1, [str(var.name_hint) for var in fused.functions]
    return found[0]


def _appends(func: object, device: Device) -> bool:
    """Whether a function is attention that appends rows to what it reads."""
    graph = extract(func) if isinstance(func, tirx.PrimFunc) else None
    found = find_decode(Task(func, graph, device)) if graph else None
    return found is not None and found.decode.appended > 0
