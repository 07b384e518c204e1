"""ResNet-50's distinct convolutions: NCHW in float32, NHWC in float16; one image and 128."""

from __future__ import annotations

from typing import Any

from bench.suites.facts import Sizes, read_facts, sizes
from bench.workload import Case, Workload

SOURCE = "He et al., Deep Residual Learning (CVPR 2016): ResNet-50 on 224 x 224 images"
LAYOUTS = (("float32", "nchw"), ("float16", "nhwc"))
BATCHES = (1, 128)


def workloads() -> tuple[Workload, ...]:
    """Every convolution in both layouts and batches, layout by layout."""
    layers = read_facts("resnet50_convolutions")["convolutions"]
    return tuple(
        Workload("conv", layer["id"], layout, dtype, batch, _sizes(layer, layout, batch))
        for dtype, layout in LAYOUTS
        for batch in BATCHES
        for layer in layers
    )


def case(workload: Workload) -> Case:
    """The convolution; of any sizes."""
    from bench.suites.operators import convolution

    return convolution(workload)


def _sizes(layer: dict[str, Any], layout: str, batch: int) -> Sizes:
    extents = {key: layer[key] for key in ("C", "F", "H", "stride", "pad")}
    extents |= {"W": layer["H"], "KH": layer["K"], "KW": layer["K"]}
    return sizes(extents | {"N": batch, "layout": layout})
