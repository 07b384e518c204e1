"""Plans that outlive the process: scheduling a function again is reading a file."""

from __future__ import annotations

import json
from dataclasses import asdict

import tvm
from tvm import tirx

from tvm_tile import compat
from tvm_tile.build.naming import text_of
from tvm_tile.device.device import Device
from tvm_tile.device.record import to_json
from tvm_tile.files.json_data import revived
from tvm_tile.files.store import Store
from tvm_tile.passes.scheduling.plan_function import Plan, Planned, Request
from tvm_tile.report.compiled import KernelReport


class StoredPlans:
    """A plan whose answers are kept on disk.

    The key is all that an answer depends on: the function with its names, because kernels on the
    emulated device are known by a sum of these (:func:`tvm_tile.build.rename_by_content`), what
    is refused, every number of the device's record, how many candidates were measured, and how much
    time tiles of open extents may lose. The store adds the versions.

    Args:
        plan: asked for functions whose plan is not stored.
        store: store of the answers.
        device: the device that ``plan`` schedules for.
        topk: number of candidates that it chooses among.
        max_loss: share of time as in
            :class:`~tvm_tile.passes.scheduling.plan_function.PlanFunction`.
    """

    def __init__(
        self, plan: Plan, store: Store, device: Device, topk: int, max_loss: float
    ) -> None:
        self._plan = plan
        self._store = store
        # A record's name is for people.
        self._given = json.dumps([to_json(device), max(1, topk), float(max_loss)]).encode()

    def __call__(self, request: Request) -> Planned:
        """The plan for a function, from the store where it has one."""
        given = json.dumps([request.refused, request.beyond_dlight]).encode()
        key = b"\0".join((b"plan", self._given, given, text_of(request.func).encode()))
        known = self._store.get(key)
        planned = None if known is None else _unpack(known)
        if planned is None:
            planned = self._plan(request)
            if planned.lasting:
                self._store.put(key, _pack(planned))
        return planned


def _pack(planned: Planned) -> bytes:
    """A plan as bytes for the store."""
    content = {"report": asdict(planned.report), "func": str(tvm.ir.save_json(planned.func))}
    return json.dumps(content).encode()


def _unpack(data: bytes) -> Planned | None:
    """The plan; None where TVM cannot read it, such as one of another TVM of the same version."""
    try:
        content = json.loads(data)
        func = tvm.ir.load_json(content["func"])
        report = revived(KernelReport, content["report"])
    except compat.TVM_ERRORS:
        return None
    return Planned(func, report) if isinstance(func, tirx.PrimFunc) else None
