"""Two compilations of a model side by side: what takes more time, what less, and where.

Kernels of the two are matched by what they compute, as the user's model calls it. What is one
kernel on one side and several on the other is one change::

    a: conv1 + relu1 | pool1        b: conv1 + relu1 + pool1        =>  one change, of three kernels
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tvm_tile.report.compiled import KernelReport, ModelReport


@dataclass(frozen=True, slots=True)
class Delta:
    """Something that both sides compute, or one of them.

    Attributes:
        names: names of its value in the user's model, the first time that it occurs.
        places: how often it occurs in the model, with other names.
        first_kernels: kernels of the first side that compute it; so are ``second_kernels``.
        first: seconds of a run on the first side, of all places.
        second: the same for the second side.
    """

    names: tuple[str, ...]
    places: int
    first_kernels: tuple[str, ...]
    second_kernels: tuple[str, ...]
    first: float
    second: float

    @property
    def difference(self) -> float:
        """How much longer it takes on the second side, seconds; less than nothing if shorter."""
        return self.second - self.first


@dataclass(frozen=True, slots=True)
class _Share:
    """A share of a kernel's time: that of its calls that compute the same, by name."""

    side: int
    kernel: str
    names: tuple[str, ...]
    seconds: float


def changes_between(
    first: ModelReport, second: ModelReport, *sides: Mapping[str, float]
) -> tuple[Delta, ...]:
    """Differences between two compilations, the largest first.

    Args:
        first: one of them.
        second: the other one.
        sides: seconds of a run of each kernel by its name, of the first one and of the second.
    """
    parts = [
        part
        for side, report in enumerate((first, second))
        for part in _parts(side, report, sides[side])
    ]
    # Equal kernels at several places of a model are told once.
    alike: dict[tuple[tuple[str, ...], tuple[str, ...]], list[list[_Share]]] = defaultdict(list)
    for group in _connected(parts):
        alike[_kernels(group, 0), _kernels(group, 1)].append(group)
    changes = [
        Delta(
            _names(groups[0]),
            len(groups),
            *kernels,
            *(sum(p.seconds for g in groups for p in g if p.side == side) for side in (0, 1)),
        )
        for kernels, groups in alike.items()
    ]
    return tuple(sorted(changes, key=lambda change: -abs(change.difference)))


def _parts(side: int, report: ModelReport, seconds: Mapping[str, float]) -> Iterator[_Share]:
    """The shares of time of a side's kernels, a part for each different call."""
    known = {kernel.name: kernel for kernel in report.kernels}
    for name, taken in seconds.items():
        called = _called(name, known.get(name))
        for names in called:
            yield _Share(side, name, names, taken / len(called))


def _called(name: str, kernel: KernelReport | None) -> tuple[tuple[str, ...], ...]:
    """Name of each different call's value; its operators where nothing has names."""
    if kernel is None:
        return ((name,),)
    return kernel.names or ((f"({kernel.operators or name})",),)


def _connected(parts: Sequence[_Share]) -> Iterator[list[_Share]]:
    """Parts that have names in common, directly or through others."""
    by_name: dict[str, list[int]] = defaultdict(list)
    for number, part in enumerate(parts):
        for name in part.names:
            by_name[name].append(number)
    found: set[int] = set()
    for start in range(len(parts)):
        if start in found:
            continue
        found.add(start)
        waiting, group = [start], []
        while waiting:
            part = parts[waiting.pop()]
            group.append(part)
            for name in part.names:
                new = [number for number in by_name.pop(name, ()) if number not in found]
                found.update(new)
                waiting += new
        yield group


def _kernels(group: Sequence[_Share], side: int) -> tuple[str, ...]:
    """Names of the kernels of one side in a group."""
    return tuple(sorted({part.kernel for part in group if part.side == side}))


def _names(group: Sequence[_Share]) -> tuple[str, ...]:
    """Names of the values in a group, each once."""
    return tuple(dict.fromkeys(name for part in group for name in part.names))
