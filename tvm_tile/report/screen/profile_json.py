"""A profile as JSON for other programs: ``tvm-tile profile --json``.

These fields stay, whatever becomes of the classes::

    {
      "version": 1,                  of this schema
      "device": "nvidia/h200",
      "source": "CUPTI",             what measured the kernels
      "graphs": 1,                   CUDA graphs of a run; null where each kernel is launched
      "run_seconds": 0.0004,         of a run that nothing watched, the median
      "run_spread_seconds": 0.00001, its interquartile range
      "predicted_seconds": 0.0004,   or estimated where "is_estimated"
      "is_estimated": false,
      "limit_seconds": 0.0001,       were each kernel at the bandwidth or the peak of the device
      "watched_runs": 10,
      "watched": {                   the typical one of these
        "launch_seconds": 0.00001,   until the device begins
        "kernel_seconds": 0.00035,   in which at least one kernel ran
        "copy_seconds": 0.00001,     without a kernel beside them
        "gap_seconds": 0.00003,      between these
        "overlap_seconds": 0.0       by which the kernels' own times exceed "kernel_seconds"
      },
      "kernels": [{                  those that took most first
        "name": "fused_conv2d_relu_0f3a99c1",
        "computes": [["conv1", "act1"]],   names in the user's model, for each different call
        "calls": 1,                  of a run
        "seconds": 0.00001,          of all of these, the median of the runs
        "spread_seconds": 0.0,       interquartile range
        "predicted_seconds": 0.00001,      null where there is no prediction; so are those below
        "limit_seconds": 0.00001,
        "bound": "bytes",            or "arithmetic", "launch", "latency"
        "bytes_per_second": 3e12,    by the predicted traffic
        "flops_per_second": 1e12
      }],
      "did_not_run": ["argmax_1"]    kernels of the model
    }
"""

from __future__ import annotations

import json
from typing import Any

from tvm_tile.report.profile import KernelProfile, ModelProfile

_VERSION = 1


def profile_json(profile: ModelProfile) -> str:
    """The text of a profile."""
    report, shares = profile.report, profile.shares
    data = {
        "version": _VERSION,
        "device": report.device,
        "source": profile.source,
        "graphs": report.launches.graphs if report.launches else None,
        "run_seconds": profile.seconds,
        "run_spread_seconds": profile.spread,
        "predicted_seconds": report.predicted_seconds,
        "is_estimated": report.is_estimated,
        "limit_seconds": report.limit_seconds,
        "watched_runs": len(profile.runs),
        "watched": {
            "launch_seconds": shares.launch,
            "kernel_seconds": shares.kernels,
            "copy_seconds": shares.copies,
            "gap_seconds": shares.gaps,
            "overlap_seconds": shares.overlap,
        },
        "kernels": [_kernel(kernel) for kernel in profile.kernels],
        "did_not_run": [kernel.name for kernel in profile.unseen],
    }
    return json.dumps(data, indent=2)


def _kernel(kernel: KernelProfile) -> dict[str, Any]:
    """A kernel's profile as JSON's data."""
    return {
        "name": kernel.name,
        "computes": kernel.report.names if kernel.report else [],
        "calls": kernel.calls,
        "seconds": kernel.seconds,
        "spread_seconds": kernel.spread,
        "predicted_seconds": kernel.predicted,
        "limit_seconds": kernel.limit,
        "bound": kernel.bound.value if kernel.bound else None,
        "bytes_per_second": kernel.bytes_per_second,
        "flops_per_second": kernel.flops_per_second,
    }
