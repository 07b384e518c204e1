"""A report as JSON for other programs: ``tvm-tile explain --json``.

Unlike what is saved with a model, whose fields change with the code, these stay::

    {
      "version": 1,                  of this schema
      "device": "nvidia/h200",
      "predicted_seconds": 0.0004,   of a run, or estimated where "is_estimated"
      "is_estimated": false,
      "is_bound": false,             whether it takes so long at least: some functions fell back,
                                     or loops have as many iterations as the data say
      "limit_seconds": 0.0001,       were each kernel at the bandwidth or the peak of the device
      "constant_bytes": 12345,
      "planned_bytes": 1234,         for what lies between kernels, and outputs
      "launches": 63,                of a run
      "kernels": [{
        "name": "fused_conv2d_relu_0f3a99c1",
        "computes": [["conv1", "act1"]],  names in the user's model, for each different call
        "calls": 1,                  of a run
        "seconds": 0.00001,          of all of these; null where it fell back
        "bound": "bytes",            or "arithmetic", "launch", "latency"; null where it fell back
        "bytes": 3000000,            to and from memory, of one call
        "flops": 1000000,            of one call
        "rule": "contraction",       what scheduled it
        "tile": "block 1x64",
        "grid": 56,
        "block": 128,
        "fallback": null             or why TVM's schedule was taken
      }],                            those that take most first
      "notes": ["..."]
    }
"""

from __future__ import annotations

import json
from typing import Any

from tvm_tile.report.compiled import KernelReport, ModelReport
from tvm_tile.report.detail import Sort
from tvm_tile.report.screen.kernel_table import sorted_by

_VERSION = 1


def json_of(report: ModelReport, sort: Sort = "time") -> str:
    """The text of a report, its kernels in an order."""
    data = {
        "version": _VERSION,
        "device": report.device,
        "predicted_seconds": report.predicted_seconds,
        "is_estimated": report.is_estimated,
        "is_bound": report.is_bound,
        "limit_seconds": report.limit_seconds,
        "constant_bytes": report.weights,
        "planned_bytes": report.planned,
        "launches": report.launch_count,
        "kernels": [_kernel(report, kernel) for kernel in sorted_by(report.kernels, sort)],
        "notes": report.notes,
    }
    return json.dumps(data, indent=2)


def _kernel(report: ModelReport, kernel: KernelReport) -> dict[str, Any]:
    """A kernel's report as JSON's data."""
    ours = not kernel.fallback
    return {
        "name": kernel.name,
        "computes": kernel.names,
        "calls": kernel.calls,
        "seconds": kernel.run_seconds if ours else None,
        "bound": report.bound(kernel).value if ours else None,
        "bytes": kernel.traffic,
        "flops": kernel.flops,
        "rule": kernel.rule,
        "tile": kernel.tile,
        "grid": kernel.grid,
        "block": kernel.block,
        "fallback": kernel.fallback or None,
    }
