"""Diffusion models: transformer blocks, a UNet, and what makes pixels of its result.

They are what ``diffusers`` has, which is asked for when a case is built.
"""

from __future__ import annotations

from bench.suites.model_suite import network_case, read_source, read_workloads
from bench.workload import Case, Input, Workload

FILE = "diffusion_models.json"
SOURCE = read_source(FILE)
_WIDTH, _HEADS = 3072, 24  # of FLUX.1


def workloads() -> tuple[Workload, ...]:
    """Every model, in half precision."""
    return read_workloads("diffusion", FILE)


def case(workload: Workload) -> Case:
    """The model with random weights, and what it is given in one of its steps."""
    from bench.suites.networks import diffusers_models

    own = diffusers_models.MODELS[workload.name]
    return network_case(workload, own(), _inputs(workload))


def _inputs(workload: Workload) -> tuple[Input, ...]:
    """What the model is given, in the order of its ``forward``."""
    dtype, batch = workload.dtype, workload.batch or 1
    if workload.family == "flux":
        tokens, text = workload.size("tokens"), workload.size("text")
        shapes = ((tokens - text, _WIDTH), (text, _WIDTH))
        values = [Input((batch, *shape), dtype) for shape in shapes]
        angles = [Input((tokens, _WIDTH // _HEADS), "float32") for _ in range(2)]
        return (*values, Input((batch, _WIDTH), dtype), *angles)
    side = workload.size("side")
    latents = Input((batch, 4, side, side), dtype)
    if workload.name == "sdxl-decoder":
        return (latents,)
    return (latents, Input((batch, 77, 2048), dtype), Input((batch, 1280), dtype))
