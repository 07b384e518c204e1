"""Operators as frozen data, for tests of decisions; no TVM."""

from __future__ import annotations

from tvm_tile.graph.tile_graph import Access, AffineIndex, Axis, Operator, Tensor


def index(offset: int = 0, **coefficients: int) -> AffineIndex:
    """``sum(coefficient * axis) + offset``."""
    return AffineIndex(tuple(coefficients.items()), offset)


def access(
    name: str, shape: tuple[int, ...], *indices: AffineIndex, dtype: str = "float32"
) -> Access:
    return Access(Tensor(name, shape, dtype), indices)


def axes(reduce: str, **extents: int) -> tuple[Axis, ...]:
    """Axes in order; ``reduce`` holds the letters of the summed ones."""
    return tuple(Axis(name, extent, name in reduce) for name, extent in extents.items())


def matmul(m: int, n: int, k: int, dtype: str = "float32") -> Operator:
    """``C[i, j] += A[i, k] * B[k, j]``."""
    i, j, d = index(i=1), index(j=1), index(k=1)
    reads = (access("A", (m, k), i, d, dtype=dtype), access("B", (k, n), d, j, dtype=dtype))
    write = access("C", (m, n), i, j, dtype=dtype)
    return Operator("matmul", axes("k", i=m, j=n, k=k), reads, write, 2)


def conv2d(
    channels: int, filters: int, size: int, kernel: int, *, batch: int = 1, stride: int = 1
) -> Operator:
    """An unpadded NCHW convolution with ``size`` x ``size`` outputs."""
    held = (size - 1) * stride + kernel
    window = index(c=1), index(y=stride, p=1), index(x=stride, q=1)
    data = access("X", (batch, channels, held, held), index(n=1), *window)
    weights = access(
        "W", (filters, channels, kernel, kernel), index(f=1), index(c=1), index(p=1), index(q=1)
    )
    write = access("Y", (batch, filters, size, size), *(index(**{a: 1}) for a in "nfyx"))
    extents = {"n": batch, "f": filters, "y": size, "x": size}
    extents |= {"c": channels, "p": kernel, "q": kernel}
    return Operator("conv2d", axes("cpq", **extents), (data, weights), write, 2)


def depthwise(channels: int, size: int, kernel: int) -> Operator:
    """A depthwise NCHW convolution of one image, unpadded."""
    held = size + kernel - 1
    data = access("X", (channels, held, held), index(c=1), index(y=1, p=1), index(x=1, q=1))
    weights = access("W", (channels, kernel, kernel), index(c=1), index(p=1), index(q=1))
    write = access("Y", (channels, size, size), index(c=1), index(y=1), index(x=1))
    extents = {"c": channels, "y": size, "x": size, "p": kernel, "q": kernel}
    return Operator("depthwise", axes("pq", **extents), (data, weights), write, 2)


def row_sum(rows: int, length: int) -> Operator:
    """``Y[i] += X[i, k]``."""
    read = access("X", (rows, length), index(i=1), index(k=1))
    return Operator(
        "sum", axes("k", i=rows, k=length), (read,), access("Y", (rows,), index(i=1)), 1
    )


def column_sum(length: int, columns: int) -> Operator:
    """``Y[i] += X[k, i]``."""
    read = access("X", (length, columns), index(k=1), index(i=1))
    write = access("Y", (columns,), index(i=1))
    return Operator("sum", axes("k", i=columns, k=length), (read,), write, 1)


def elementwise(rows: int, columns: int, dtype: str = "float32") -> Operator:
    """``Y[i, j] = f(X[i, j], S[i])``."""
    i, j = index(i=1), index(j=1)
    reads = (access("X", (rows, columns), i, j, dtype=dtype), access("S", (rows,), i, dtype=dtype))
    write = access("Y", (rows, columns), i, j, dtype=dtype)
    return Operator("scale", axes("", i=rows, j=columns), reads, write, 1)


def letters(names: str) -> list[AffineIndex]:
    """One index a letter."""
    return [index(**{name: 1}) for name in names]


def einsum(left: str, right: str, out: str, dtype: str = "float16", **extents: int) -> Operator:
    """``out = sum of left * right``, each a word of axes."""

    def tensor(name: str, word: str) -> Access:
        return access(name, tuple(extents[a] for a in word), *letters(word), dtype=dtype)

    summed = "".join(name for name in extents if name not in out)
    reads = (tensor("A", left), tensor("B", right))
    return Operator("einsum", axes(summed, **extents), reads, tensor("C", out), 2)


def conv_nhwc(
    images: int = 2,
    size: tuple[int, int] = (14, 14),
    channels: int = 64,
    filters: int = 72,
    *,
    kernel: int = 3,
    stride: int = 1,
    dilation: int = 1,
    padding: int = 0,
) -> Operator:
    """``Y[n, y, x, f] += X[n, s y + d p - padding, s x + d q - padding, c] * W[f, p, q, c]``.

    ``size`` is the output's.
    """
    reach = dilation * (kernel - 1) + 1 - 2 * padding
    held = tuple((extent - 1) * stride + reach for extent in size)
    window = [index(-padding, **{a: stride, b: dilation}) for a, b in ("yp", "xq")]
    shape = (images, *held, channels)
    data = access("X", shape, index(n=1), *window, index(c=1), dtype="float16")
    shape = (filters, kernel, kernel, channels)
    weights = access("W", shape, *letters("fpqc"), dtype="float16")
    write = access("Y", (images, *size, filters), *letters("nyxf"), dtype="float16")
    extents = {"n": images, "y": size[0], "x": size[1], "f": filters}
    extents |= {"p": kernel, "q": kernel, "c": channels}
    return Operator("conv2d", axes("pqc", **extents), (data, weights), write, 2)
