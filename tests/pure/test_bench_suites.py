"""The operator suites' facts agree with their sources and with themselves."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from math import isclose
from pathlib import Path

import pytest

from bench.suites import attention, conv, gemm, norm, ops
from bench.suites.facts import read_facts
from bench.suites.tolerance import tolerance
from bench.workload import BYTES, Workload

SUITES = {suite.__name__.rpartition(".")[2]: suite for suite in (ops, gemm, conv, attention, norm)}
ALL = [workload for suite in SUITES.values() for workload in suite.workloads()]


def named(suite: str, name: str, dtype: str) -> Workload:
    found = [w for w in SUITES[suite].workloads() if (w.name, w.dtype) == (name, dtype)]
    assert len(found) == 1
    return found[0]


class TestEverySuite:
    @pytest.mark.parametrize("name", SUITES)
    def test_names_are_unique_with_dtype_and_batch(self, name: str) -> None:
        workloads = SUITES[name].workloads()
        assert {w.suite for w in workloads} == {name}
        assert len({(w.name, w.dtype, w.batch) for w in workloads}) == len(workloads)

    @pytest.mark.parametrize("name", SUITES)
    def test_a_family_belongs_to_a_name(self, name: str) -> None:
        families = {(w.name, w.dtype): w.family for w in SUITES[name].workloads()}
        assert all(w.family == families[w.name, w.dtype] for w in SUITES[name].workloads())

    def test_sizes_are_sorted_pairs_of_positive_extents(self) -> None:
        for workload in ALL:
            assert workload.sizes == tuple(sorted(workload.sizes))
            assert workload.dtype in BYTES
            extents = {k: v for k, v in workload.sizes if k not in ("pad", "layout")}
            assert all(isinstance(v, int) and v > 0 for v in extents.values()), workload

    def test_workloads_are_listed_without_torch_or_tvm(self) -> None:
        lines = (
            "import sys",
            f"from bench.suites import {', '.join(SUITES)}",
            f"[suite.workloads() for suite in ({', '.join(SUITES)})]",
            "sys.exit(bool({'torch', 'tvm'} & set(sys.modules)))",
        )
        command = [sys.executable, "-c", "\n".join(lines)]
        root = Path(__file__).parents[2]
        assert subprocess.run(command, cwd=root, check=False).returncode == 0


class TestOps:
    def test_the_119_operators_come_in_two_dtypes(self) -> None:
        counts = {"conv": 44, "matmul": 7, "depthwise": 23, "elementwise": 28}
        counts |= {"pooling": 13, "reduce": 4}
        for dtype in ("float32", "float16"):
            own = [w for w in ops.workloads() if w.dtype == dtype]
            assert Counter(w.family for w in own) == counts
            for initial, count in zip("CMDEPR", counts.values(), strict=True):
                names = [w.name for w in own if w.name.startswith(initial)]
                assert names == [f"{initial}{i}" for i in range(count)]

    def test_windows_give_the_stated_outputs(self) -> None:
        windowed = [w for w in ops.workloads() if w.family in ("conv", "depthwise", "pooling")]
        assert len(windowed) == 2 * 80
        for workload in windowed:
            size = workload.size
            for extent, window, output in (("H", "KH", "HO"), ("W", "KW", "WO")):
                steps = size(extent) + 2 * size("pad") - size(window)
                assert steps // size("stride") + 1 == size(output), workload
            assert dict(workload.sizes).get("dilation", 1) == 1

    def test_sizes_agree_with_the_names_in_the_source(self) -> None:
        keys = {
            "conv": "N C H W F KH KW stride dilation",
            "depthwise": "N C H W KH stride dilation",
            "matmul": "M N K",
            "elementwise": "N C H W",
            "pooling": "N C H W KH stride",
        }
        for operator in read_facts("roller_ops")["operators"]:
            words = [word for word in operator["log_name"].split("_")[1:] if word.isdigit()]
            sizes, family = operator["sizes"], operator["family"]
            if family == "reduce":
                extents = [int(word) for word in words]
                # The last extents of some are flattened into one that is summed.
                total = 1
                while total < sizes["reduce"]:
                    total *= extents.pop()
                assert total == sizes["reduce"]
            else:
                assert words == [str(sizes[key]) for key in keys[family].split()], operator
            assert sizes.get("KH", 1) == sizes.get("KW", 1)

    def test_every_operator_has_the_papers_times(self) -> None:
        systems = {"tf_cudalib", "tvm_autotvm", "ansor", "roller_top1", "roller_top10"}
        for operator in read_facts("roller_ops")["operators"]:
            assert set(operator["v100_ms"]) == systems
            assert all(0 < ms < 1000 for ms in operator["v100_ms"].values())


class TestGemm:
    def test_ladders_products(self) -> None:
        names = [w.name for w in gemm.workloads() if w.family in ("large", "matvec")]
        vectors, matrices = ([f"{initial}{i}" for i in range(13)] for initial in "VM")
        assert names == vectors * 3 + matrices * 3
        assert gemm.workloads()[-1].family == "large"  # what takes longest comes last
        for i in range(13):
            product, vector = named("gemm", f"M{i}", "float16"), named("gemm", f"V{i}", "float16")
            assert vector.size("M") == 1 < product.size("M")
            assert (vector.size("N"), vector.size("K")) == (product.size("N"), product.size("K"))

    def test_names_say_the_extents(self) -> None:
        for workload in gemm.workloads():
            b, m, n, k = (workload.size(key) for key in "BMNK")
            if workload.family == "square":
                assert workload.name == f"square_{m}"
                assert m == n == k
            elif workload.family not in ("large", "matvec"):
                extents = (b, m, n, k) if b > 1 else (m, n, k)
                assert workload.name == "x".join(map(str, extents))
                assert (workload.family == "batched") == (b > 1)


class TestConv:
    def test_layers_are_those_of_the_architecture(self) -> None:
        """Walk ResNet-50's bottlenecks, (channels in, filters, extent, window, stride) each."""
        walked = {(3, 64, 224, 7, 2)}
        channels, extent = 64, 56
        for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
            for block in range(blocks):
                stride = 2 if block == 0 and width > 64 else 1
                walked |= {(channels, width, extent, 1, 1), (width, width, extent, 3, stride)}
                if block == 0:
                    walked.add((channels, 4 * width, extent, 1, stride))
                extent //= stride
                walked.add((width, 4 * width, extent, 1, 1))
                channels = 4 * width
        layers = read_facts("resnet50_convolutions")["convolutions"]
        listed = [tuple(layer[key] for key in ("C", "F", "H", "K", "stride")) for layer in layers]
        assert len(set(listed)) == len(listed)
        assert set(listed) == walked
        for layer in layers:
            name = "conv{K}x{K}_{C}_{F}_{H}_s{stride}".format(**layer)
            assert (layer["id"], layer["pad"]) == (name, layer["K"] // 2)

    def test_a_dtype_has_a_layout(self) -> None:
        found = Counter((w.dtype, w.family, w.size("layout"), w.batch) for w in conv.workloads())
        assert set(found.values()) == {23}
        assert {(dtype, layout) for dtype, _, layout, _ in found} == {
            ("float32", "nchw"),
            ("float16", "nhwc"),
        }
        assert all(
            w.batch == w.size("N") and w.family == w.size("layout") for w in conv.workloads()
        )


class TestNormAndAttention:
    def test_norms_names_say_the_extents(self) -> None:
        for workload in norm.workloads():
            rows, length = workload.size("rows"), workload.size("length")
            assert workload.name == f"{workload.family}_{rows}x{length}"

    def test_attentions_names_say_the_extents(self) -> None:
        for workload in attention.workloads():
            assert workload.batch == workload.size("B")
            if workload.family in ("long", "causal"):
                _, tokens, extent = workload.name.split("_")
                assert (int(tokens), int(extent)) == (workload.size("S"), workload.size("D"))


class TestTolerance:
    def test_short_sums_have_the_floor_and_long_ones_grow_with_the_root(self) -> None:
        assert tolerance("float32") == tolerance("float32", 1000) == 1e-5
        ratio = tolerance("float32", 4 * 65536) / tolerance("float32", 65536)
        assert isclose(ratio, 2)

    def test_tf32_is_wrong_in_float32(self) -> None:
        longest = max(w.size("K") for w in gemm.workloads())
        assert max(tolerance("float32", longest), tolerance("float32", is_convolution=True)) < 2e-4

    def test_one_rounding_is_right_in_half_precision_and_a_lost_bit_or_three_are_not(self) -> None:
        for dtype, unit in (("float16", 2.0**-10), ("bfloat16", 2.0**-7)):
            assert unit / 2 < tolerance(dtype) < 8 * unit / 2
