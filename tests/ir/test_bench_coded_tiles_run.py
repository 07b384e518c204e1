"""The measurement of tiles with codes, with TVM's CPU build in place of a GPU's kernels."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tvm
from cpu_build import CPU

from bench.gpu import HostStage
from bench.open_shapes.record import Provenance
from tvm_tile.device import find_device
from tvm_tile.graph.codes import unpack
from tvm_tile.tile.coded.few_vectors import construct_coded

torch = pytest.importorskip("torch")

import bench.coded_tiles.__main__ as command  # noqa: E402
from bench.coded_tiles.measure import function_of, measure, operands_of, product_of  # noqa: E402
from bench.coded_tiles.record import TILES, read, shape_of  # noqa: E402

H100 = find_device("nvidia/h100")
ORIGIN = Provenance("none", "none", "", "abc", "a test", "2026-11-26")
PRODUCT = product_of(3, 64, 512, 128)


def _cpu_kernel() -> Any:
    func = function_of(PRODUCT).with_attr("global_symbol", "joined")
    return tvm.compile(tvm.IRModule({"joined": func}), CPU)["joined"]


class _Built(dict[str, Any]):
    @property
    def names(self) -> frozenset[str]:
        return frozenset(self)


def test_operands_mean_what_numpy_computes_of_them() -> None:
    operands = operands_of(PRODUCT, "cpu")
    codes = unpack(operands.packed.numpy(), 4, 512).astype(np.float64)
    scales = np.repeat(operands.scale.numpy().astype(np.float64), 128, axis=1)
    np.testing.assert_allclose(operands.matrix.double().numpy(), codes * scales, rtol=1e-3)


def test_every_tile_is_measured_and_wrong_ones_are_known() -> None:
    right, seen = _cpu_kernel(), []

    def wrong(*arguments: Any) -> None:
        right(*arguments)
        torch.from_dlpack(arguments[-1]).neg_()

    def nothing(*arguments: Any) -> None:
        """Leaves the result as it was."""

    def build(functions: Mapping[str, Any], device: Any) -> Any:
        assert device == H100
        assert all("tirx.is_scheduled" in func.attrs for func in functions.values())
        seen.extend(functions)
        kernels = [right, wrong, nothing, *([right] * (len(functions) - 4))]
        return _Built(zip(functions, kernels, strict=False))

    found = list(measure(PRODUCT, H100, HostStage(), ORIGIN, "cpu", build))
    tiles = construct_coded(PRODUCT, H100)
    assert len(seen) == len(tiles) == len(found) + 1  # the last one does not build
    assert [one.shape for one in found] == [shape_of(tile) for tile in tiles[:-1]]
    assert all(one.product == PRODUCT and one.us > 0 and one.cublas_us > 0 for one in found)
    assert [one.is_right for one in found] == [True, False, False, *([True] * (len(found) - 3))]
    assert found[2].error is None


def test_another_product_than_was_asked_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from bench.coded_tiles import measure as module

    monkeypatch.setattr(module, "find_coded", lambda task: SimpleNamespace(sizes=None))
    with pytest.raises(ValueError, match="finds another product"):
        list(measure(PRODUCT, H100, HostStage(), ORIGIN, "cpu"))


def test_a_product_that_is_measured_again_has_its_new_tiles_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel = _cpu_kernel()

    def built(functions: Mapping[str, Any], _: Any) -> Any:
        return _Built(dict.fromkeys(functions, kernel))

    made = list(measure(PRODUCT, H100, HostStage(), ORIGIN, "cpu", built))
    rounds = [made[:4], made[2:5]]
    monkeypatch.setattr(command, "PRODUCTS", ((3, 64, 512),))
    monkeypatch.setattr("bench.coded_tiles.record.here", lambda *_: ORIGIN)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("bench.gpu.CudaStage", HostStage)
    monkeypatch.setattr("bench.coded_tiles.measure.measure", lambda *_: iter(rounds.pop(0)))
    for expected in list(rounds):
        assert command.main(["--results", str(tmp_path)]) == 0
        found = read(tmp_path / TILES, H100.name)
        assert found == sorted(expected, key=lambda one: one.key)
    assert command.main(["--results", str(tmp_path), "--limit-s", "-1"]) == 0
    assert "left out" in capsys.readouterr().err
    assert len(read(tmp_path / TILES, H100.name)) == 3
