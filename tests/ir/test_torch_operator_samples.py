"""PyTorch's own samples of operators: right through the front door, or refused for a reason."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from bench.operator_cases import judge, operators, run_imported, samples  # noqa: E402

POOLING = """
    nn.functional.adaptive_avg_pool1d nn.functional.adaptive_avg_pool2d
    nn.functional.adaptive_avg_pool3d nn.functional.adaptive_max_pool1d
    nn.functional.adaptive_max_pool2d nn.functional.adaptive_max_pool3d nn.functional.avg_pool1d
    nn.functional.avg_pool2d nn.functional.avg_pool3d nn.functional.max_pool1d
    nn.functional.max_pool2d nn.functional.max_pool3d nn.functional.max_unpool2d
"""
NORMALIZATION = """
    native_batch_norm native_group_norm native_layer_norm nn.functional.batch_norm
    nn.functional.group_norm nn.functional.instance_norm nn.functional.layer_norm
    nn.functional.local_response_norm softmax log_softmax nn.functional.softmin.with_dtype
"""
RESIZING = """
    nn.functional.interpolate.nearest nn.functional.interpolate.nearest-exact
    nn.functional.interpolate.linear nn.functional.interpolate.bilinear
    nn.functional.interpolate.bicubic nn.functional.interpolate.trilinear
    nn.functional.interpolate.area nn.functional.upsample_bilinear _upsample_bilinear2d_aa
    nn.functional.upsample_nearest nn.functional.grid_sample grid_sampler_3d
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
REFUSED = (
    "mutation of",  # statistics that training changes, and rows that are renormalized
    "training, which changes the running statistics",
    "depends on the data",
    "that only the data decide",
    "no converter",
)
TIES = frozenset({"topk", "kthvalue", "mode", "sort", "msort"})  # of few integers: any order


@pytest.mark.parametrize(
    "names", [POOLING, NORMALIZATION, RESIZING, INDEXING, SCATTERING, ORDER], ids=lambda n: n[5:30]
)
def test_samples_are_right_or_refused(names: str) -> None:
    known = operators()
    chosen, labels = [], []
    for name in names.split():
        for dtype in (torch.float32,) if name in TIES else (torch.float32, torch.int64, torch.bool):
            found = samples(known[name], dtype)
            some = found[:: max(1, len(found) - 1)] if dtype is torch.float32 else found[1:2]
            chosen += some
            labels += [f"{name}[{sample.index}] {dtype}" for sample in some]
    verdicts = judge(chosen, run_imported)
    wrong = [
        f"{label}: {verdict.status}: {verdict.detail}"
        for label, verdict in zip(labels, verdicts, strict=True)
        if verdict.status != "right"
        and not (verdict.status == "refused" and any(r in verdict.detail for r in REFUSED))
    ]
    assert not wrong, "\n".join(wrong)
