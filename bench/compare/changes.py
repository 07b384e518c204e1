"""What differs between two commits: pure functions on what became of a workload at each."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import zip_longest

from bench.compare.record import Compiled, Kernel, Key, plain_name

THRESHOLD = 0.02


class Kind(Enum):
    """What can differ; the text of each is for people."""

    STATUS = "ends otherwise"
    CAME = "a kernel came"
    WENT = "a kernel went"
    FALLBACK = "falls back otherwise"
    RULE = "another rule"
    TILE = "another tile"
    FUNCTION = "another function before it is scheduled"
    CALLS = "called more or less often"
    TEXT = "another text"
    HOST = "other host code or bytecode, of the same kernels"
    PREDICTED = "another predicted time"
    PREDICTED_RUN = "another predicted time of a run"
    MEASURED = "another measured time"


# After these a workload is another program, even if it may take as long.
OF_CODE = frozenset(Kind) - {Kind.PREDICTED, Kind.PREDICTED_RUN, Kind.MEASURED}


@dataclass(frozen=True, slots=True)
class Change:
    """One difference.

    Attributes:
        kind: of what.
        suite: of the workload.
        title: of the workload.
        kernel: its name at the second commit, or at the first where it is gone; empty where the
            change is of the whole workload.
        before, after: as people read them.
        ratio: after over before, of times.
        texts: digests of texts that differ, before and after; empty where there is none.
    """

    kind: Kind
    suite: str
    title: str
    kernel: str
    before: str
    after: str
    ratio: float | None = None
    texts: tuple[tuple[str, str], ...] = ()


def is_changed(before: float, after: float, threshold: float = THRESHOLD) -> bool:
    """Whether the larger of two times exceeds the other by more than this share of it."""
    if before == after:
        return False
    small, large = sorted((before, after))
    return not large <= small * (1 + threshold)  # so that NaN has changed


def pair(
    before: Sequence[Kernel], after: Sequence[Kernel]
) -> tuple[tuple[Kernel | None, Kernel | None], ...]:
    """Kernels at both commits that compute the same; None where there is no such.

    By their names, which tell functions apart. Those that are left over are paired by name without
    the function's hash, in their order: what they compute is written otherwise.
    """
    names = {kernel.name for kernel in before} & {kernel.name for kernel in after}
    left = {kernel.name: kernel for kernel in before if kernel.name in names}
    alike: dict[str, list[Kernel]] = defaultdict(list)
    for kernel in before:
        if kernel.name not in names:
            alike[plain_name(kernel.name)].append(kernel)
    pairs: list[tuple[Kernel | None, Kernel | None]] = []
    for kernel in after:
        others = alike[plain_name(kernel.name)]
        if kernel.name in names:
            pairs.append((left[kernel.name], kernel))
        else:
            pairs.append((others.pop(0) if others else None, kernel))
    return (*pairs, *((gone, None) for others in alike.values() for gone in others))


def compare(before: Compiled, after: Compiled, threshold: float = THRESHOLD) -> tuple[Change, ...]:
    """All that differs between what two commits make of one workload."""
    if before.status != "ok" or after.status != "ok":
        same = before.status == after.status
        return () if same else (_of(Kind.STATUS, after, "", before.status, after.status),)
    found: list[Change] = []
    for old, new in pair(before.kernels, after.kernels):
        if old is not None and new is not None:
            found += _of_kernel(after, old, new, threshold)
        elif new is not None:
            found.append(_of(Kind.CAME, after, new.name, "", _told(new)))
        elif old is not None:
            found.append(_of(Kind.WENT, after, old.name, _told(old), ""))
    if before.host != after.host and not any(change.kind in OF_CODE for change in found):
        found.append(_of(Kind.HOST, after, "", before.host, after.host))
    if is_changed(before.predicted_s, after.predicted_s, threshold):
        times = before.predicted_s, after.predicted_s
        found.append(_of_times(Kind.PREDICTED_RUN, after, "", *times))
    return tuple(found)


def compare_all(
    before: Mapping[Key, Compiled], after: Mapping[Key, Compiled], threshold: float = THRESHOLD
) -> tuple[Change, ...]:
    """All that differs, of the workloads that both have."""
    common = (key for key in before if key in after)
    return tuple(change for key in common for change in compare(before[key], after[key], threshold))


def compare_times(
    workload: Compiled, before_s: float, after_s: float, threshold: float = THRESHOLD
) -> tuple[Change, ...]:
    """Whether a workload's measured times differ."""
    if not is_changed(before_s, after_s, threshold):
        return ()
    return (_of_times(Kind.MEASURED, workload, "", before_s, after_s),)


def geometric_mean(ratios: Iterable[float]) -> float | None:
    """Of positive numbers; None of none."""
    logarithms = [math.log(ratio) for ratio in ratios]
    return math.exp(sum(logarithms) / len(logarithms)) if logarithms else None


def predicted_ratio(before: Compiled, after: Compiled) -> float | None:
    """Of predicted times of a run, the second over the first; None where one has fallbacks."""
    both = (before, after)
    if any(own.status != "ok" or any(k.fallback for k in own.kernels) for own in both):
        return None
    return after.predicted_s / before.predicted_s if before.predicted_s > 0 else None


def _of_kernel(place: Compiled, old: Kernel, new: Kernel, threshold: float) -> Iterator[Change]:
    for kind, before, after in (
        (Kind.FUNCTION, old.name, new.name),
        (Kind.FALLBACK, old.fallback, new.fallback),
        (Kind.RULE, old.rule, new.rule),
        (Kind.TILE, _tile(old), _tile(new)),
        (Kind.CALLS, str(old.calls), str(new.calls)),
    ):
        if before != after:
            yield _of(kind, place, new.name, before, after)
    if old.texts != new.texts:
        told = (" ".join(old.texts), " ".join(new.texts))
        both = zip_longest(old.texts, new.texts, fillvalue="")
        differing = tuple((a, b) for a, b in both if a != b)
        yield Change(Kind.TEXT, place.suite, place.title, new.name, *told, texts=differing)
    if is_changed(old.seconds, new.seconds, threshold):
        yield _of_times(Kind.PREDICTED, place, new.name, old.seconds, new.seconds)


def _of(kind: Kind, place: Compiled, kernel: str, before: str, after: str) -> Change:
    return Change(kind, place.suite, place.title, kernel, before, after)


def _of_times(kind: Kind, place: Compiled, kernel: str, before: float, after: float) -> Change:
    told = f"{before * 1e6:.2f} us", f"{after * 1e6:.2f} us"
    ratio = after / before if before > 0 else math.inf
    return Change(kind, place.suite, place.title, kernel, *told, ratio=ratio)


def _tile(kernel: Kernel) -> str:
    return f"{kernel.tile}; grid {kernel.grid}, block {kernel.block}"


def _told(kernel: Kernel) -> str:
    return f"{kernel.rule}: {_tile(kernel)}, {kernel.seconds * 1e6:.2f} us"
