"""What differs between two commits, for people: a page, and the texts' differences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from difflib import unified_diff
from pathlib import Path

from bench.compare.changes import OF_CODE, Change, Kind, geometric_mean, predicted_ratio
from bench.compare.record import Compiled, Key
from bench.compare.timing import Timed


def page(
    before: Mapping[Key, Compiled],
    after: Mapping[Key, Compiled],
    changes: Sequence[Change],
    timed: Sequence[Timed] = (),
) -> Iterator[str]:
    """Lines: what was compared, each suite in a line, then every change, by kind."""
    suites = dict.fromkeys(record.suite for record in before.values())
    for suite in suites:
        yield from _suite(suite, before, after, changes, timed)
    for kind in Kind:
        own = [change for change in changes if change.kind is kind]
        if own:
            yield f"\n{kind.value}: {len(own)}"
            yield from map(_line, sorted(own, key=_distance, reverse=True))
    failed = [own for own in timed if own.reason]
    if failed:
        yield f"\nnot timed: {len(failed)}"
        yield from (f"  {own.workload}: {own.reason}" for own in failed)


def differences(changes: Sequence[Change], folder: Path) -> Iterator[str]:
    """Lines of unified diffs of the texts, each pair once.

    Args:
        changes: of any kind.
        folder: of the texts, each by its digest.
    """
    places: dict[tuple[str, str], list[str]] = {}
    for change in changes:
        for both in change.texts:
            places.setdefault(both, []).append(f"{change.title}: {change.kernel}")
    for (before, after), where in places.items():
        yield from (f"# {place}" for place in where)
        texts = (_text(folder, before), _text(folder, after))
        yield from unified_diff(*texts, before, after, lineterm="")


def _text(folder: Path, digest: str) -> list[str]:
    """Lines; none where there is no text at that commit."""
    return (folder / f"{digest}.txt").read_text(encoding="utf-8").splitlines() if digest else []


def _suite(
    suite: str,
    before: Mapping[Key, Compiled],
    after: Mapping[Key, Compiled],
    changes: Sequence[Change],
    timed: Sequence[Timed],
) -> Iterator[str]:
    pairs = [(own, after[key]) for key, own in before.items() if own.suite == suite]
    kernels = sum(len(own.kernels) for _, own in pairs)
    in_code = {c.title for c in changes if c.suite == suite and c.kind in OF_CODE}
    counts = Counter(change.kind for change in changes if change.suite == suite)
    yield (
        f"{suite}: {len(pairs)} workloads, {kernels} kernels; {len(in_code)} workloads are other "
        f"code, {counts[Kind.TEXT]} kernels have other texts, {counts[Kind.PREDICTED]} other "
        "predictions"
    )
    ratios = [ratio for pair in pairs if (ratio := predicted_ratio(*pair)) is not None]
    yield f"  predicted times of a run: {_mean(ratios)}"
    measured = [
        own.after.median_ms / own.before.median_ms
        for own in timed
        if own.before is not None and own.after is not None and own.workload.suite == suite
    ]
    if measured:
        yield f"  measured times of a run: {_mean(measured)}"
    broken = [own for _, own in pairs if own.status != "ok"]
    if broken:
        yield f"  {len(broken)} do not compile at the second: {broken[0].status}"


def _mean(ratios: Sequence[float]) -> str:
    mean = geometric_mean(ratios)
    if mean is None:
        return "of none"
    return f"{mean:.4f} of before, geometric mean of {len(ratios)}"


def _distance(change: Change) -> float:
    """How far from one a ratio is."""
    if change.ratio is None:
        return 0.0
    return max(change.ratio, 1 / change.ratio) if change.ratio > 0 else float("inf")


def _line(change: Change) -> str:
    place = f"  {change.title}: {change.kernel}".removesuffix(": ")
    if change.kind in (Kind.TEXT, Kind.HOST):
        return place
    ratio = "" if change.ratio is None else f" ({change.ratio:.3f})"
    return f"{place}: {change.before or 'nothing'} -> {change.after or 'nothing'}{ratio}"
