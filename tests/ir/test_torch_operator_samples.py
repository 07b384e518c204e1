"""PyTorch's own samples of operators come out right, but for those that change their inputs."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from bench.core_samples import core_operators, core_samples  # noqa: E402
from bench.operator_cases import (  # noqa: E402
    Sample,
    compare,
    judge,
    operators,
    run_imported,
    samples,
)
from bench.operator_ties import ties_of  # noqa: E402

pytestmark = pytest.mark.bank(6)

POOLING = """
    nn.functional.adaptive_avg_pool2d nn.functional.adaptive_avg_pool3d
    nn.functional.adaptive_max_pool1d nn.functional.adaptive_max_pool2d nn.functional.avg_pool1d
    nn.functional.avg_pool2d nn.functional.avg_pool3d nn.functional.max_pool1d
    nn.functional.max_pool2d nn.functional.max_pool3d nn.functional.max_unpool2d
"""
NORMALIZATION = """
    native_group_norm native_layer_norm nn.functional.batch_norm
    nn.functional.group_norm nn.functional.instance_norm nn.functional.layer_norm
    nn.functional.local_response_norm softmax log_softmax nn.functional.softmin.with_dtype
"""
RESIZING = """
    nn.functional.interpolate.nearest nn.functional.interpolate.nearest-exact
    nn.functional.interpolate.linear nn.functional.interpolate.bilinear
    nn.functional.interpolate.bicubic nn.functional.interpolate.trilinear
    nn.functional.interpolate.area _upsample_bilinear2d_aa
    nn.functional.grid_sample grid_sampler_3d
    nn.functional.pixel_shuffle nn.functional.pixel_unshuffle
"""
INDEXING = """
    gather index_select take take_along_dim __getitem__ masked_fill masked_scatter
    nn.functional.embedding nn.functional.embedding_bag _unsafe_masked_index
"""
SCATTERING = """
    index_put put scatter scatter_add index_add index_copy index_fill diagonal_scatter
    as_strided_scatter slice_scatter select_scatter _unsafe_masked_index_put_accumulate
    index_reduce.mean index_reduce.prod index_reduce.amax scatter_reduce.sum scatter_reduce.mean
    scatter_reduce.amin
"""
ORDER = """
    sort msort argsort topk kthvalue median nanmedian mode quantile nanquantile searchsorted
    bucketize histc repeat_interleave isin nonzero_static cumsum cumprod cummax cummin
    logcumsumexp
"""
COMPLEX = """
    fft.fft fft.ifft2 fft.fftn fft.irfft fft.irfftn fft.hfft fft.ihfft stft istft polar
    view_as_complex cat index_put matmul einsum pow log1p vdot where sgn
    nn.functional.linear nn.functional.conv1d nn.functional.silu.complex
"""
REFUSED_OF_THE_CORE = {
    "aten._adaptive_avg_pool2d_backward.default": "a gradient",
    "aten.avg_pool2d_backward.default": "a gradient",
    "aten.convolution_backward.default": "a gradient",
    "aten._local_scalar_dense.default": "only the data decide",
    "aten.nonzero.default": "only the data decide",
}
FLOAT, INTEGER, FLAG = torch.float32, torch.int64, torch.bool


@pytest.mark.parametrize(
    ("names", "dtypes"),
    [
        pytest.param(POOLING, (FLOAT,), id="pooling"),
        pytest.param(NORMALIZATION, (FLOAT,), id="normalization"),
        pytest.param(RESIZING, (FLOAT,), id="resizing"),
        pytest.param(INDEXING, (FLOAT, INTEGER), id="indexing"),
        pytest.param(SCATTERING, (FLOAT, FLAG), id="scattering"),
        pytest.param(ORDER, (FLOAT, INTEGER), id="order"),
        pytest.param(COMPLEX, (torch.complex64,), id="complex"),
    ],
)
def test_samples_are_right(names: str, dtypes: tuple[torch.dtype, ...]) -> None:
    known = operators()
    chosen, labels = [], []
    for name in names.split():
        for dtype in dtypes:
            found = [sample for sample in samples(known[name], dtype) if not changes_inputs(sample)]
            some = [found[-1], found[len(found) // 3]] if dtype is FLOAT else found[1:2]
            chosen += some
            labels += [f"{name}[{sample.index}] {dtype}" for sample in some]
    verdicts = judge(chosen, run_imported)
    wrong = [
        f"{label}: {verdict.status}: {verdict.detail}"
        for label, verdict in zip(labels, verdicts, strict=True)
        if verdict.status != "right"
    ]
    assert not wrong, "\n".join(wrong)


def test_calls_of_the_core_are_right_or_refused() -> None:
    """Those that no sample of the database reaches."""
    right = [
        sample
        for name in core_operators()
        for sample in core_samples(name)
        if name not in REFUSED_OF_THE_CORE
    ]
    assert len(right) > 40
    assert [verdict.detail for verdict in judge(right, run_imported) if verdict.detail] == []
    for name, reason in REFUSED_OF_THE_CORE.items():
        (verdict,) = judge(core_samples(name)[-1:], run_imported)
        assert verdict.status == "refused", name
        assert reason in verdict.detail, name


def changes_inputs(sample: Sample) -> bool:
    """Whether a call writes to its operands."""
    copies = [tensor.clone() for tensor in sample.tensors]
    sample.call(*copies)
    pairs = zip(copies, sample.tensors, strict=True)
    return not all(torch.equal(copy.nan_to_num(), tensor.nan_to_num()) for copy, tensor in pairs)


@pytest.mark.parametrize(
    ("operator", "arguments", "found", "is_right"),
    [
        pytest.param("topk", (2,), [1, 3], True, id="others of equal ones"),
        pytest.param("topk", (2,), [1, 1], False, id="one of equal ones twice"),
        pytest.param("topk", (2,), [1, 0], False, id="a smaller one"),
        pytest.param("topk", (2,), [1, -1], False, id="none"),
        pytest.param("topk", (2,), [1, 4], False, id="beyond the end"),
        pytest.param("kthvalue", (2,), 2, True, id="one element"),
        pytest.param("median", (-1, True), [2], True, id="a dimension is kept"),
        pytest.param("max", (0,), 3, False, id="the first is documented"),
    ],
)
def test_of_equal_elements(
    operator: str, arguments: tuple[int, ...], found: list[int] | int, *, is_right: bool
) -> None:
    source = torch.tensor([1.0, 2.0, 1.0, 2.0])

    def call(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(getattr(torch, operator)(x, *arguments))

    expected = call(source)
    sample = Sample(0, call, (source,), expected, None, ties_of(operator, source, arguments, {}))
    assert compare([e.numpy() for e in expected], sample).status == "right"
    verdict = compare([expected[0].numpy(), np.array(found)], sample)
    assert verdict.status == ("right" if is_right else "wrong")


def test_a_stable_sort_leaves_nothing_open() -> None:
    source = torch.zeros(2)
    assert ties_of("sort", source, (), {"stable": True}) is None
    assert ties_of("sort", source, (), {}) is not None
    assert ties_of("median", source, (), {}) is None
