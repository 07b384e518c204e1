"""What is read from a code object is what its assembly says."""

from __future__ import annotations

import pytest
import tvm
from hip_assembly import metadata
from kernels import prim_functions
from wgmma_cases import product_case

from tvm_tile.build import Builder
from tvm_tile.build.code_object import resources_of
from tvm_tile.build.hip import assembly_of
from tvm_tile.device import Device
from tvm_tile.device.rocm import ROCM_DEVICES
from tvm_tile.passes import schedule_module

NAMES = {
    "registers": "vgpr_count",
    "stack": "private_segment_fixed_size",
    "shared": "group_segment_fixed_size",
    "spilled": "vgpr_spill_count",
    "accumulation": "agpr_count",
    "scalar": "sgpr_count",
    "warp": "wavefront_size",
    "most_threads": "max_flat_workgroup_size",
}


@pytest.mark.parametrize("device", ROCM_DEVICES, ids=lambda device: device.name)
def test_resources_are_those_of_the_assembly(device: Device) -> None:
    functions = prim_functions(product_case("NN", 128, 128, 512, dtype="float32"), device)
    scheduled, (report,) = schedule_module(tvm.IRModule(functions), device)
    # The first one multiplies; one behind it may add the parts of the sums.
    built = Builder(device).build_functions({"product": scheduled[report.name]})["product"]
    kernel = built.kernels[0]
    assembly = assembly_of(kernel.source, str(dict(device.target)["mcpu"]))
    said = metadata(assembly)
    found = resources_of(kernel.binary)
    assert found.shared > 0
    assert {name: getattr(found, name) for name in NAMES} == {
        name: said.get(key, 0) for name, key in NAMES.items()
    }


def test_what_is_no_code_object_is_refused() -> None:
    with pytest.raises(ValueError, match="no metadata"):
        resources_of(bytes(64))
