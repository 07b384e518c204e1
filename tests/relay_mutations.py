"""Damages saved Relay programs; each must be read, or refused by an error of this package.

Usage: python tests/relay_mutations.py [COUNT [SEED]]
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from relay_corpus import CASES

from bench.mutations.mutate import damaged
from tvm_tile.errors import TileError
from tvm_tile.frontend.relay.arrays import read_params
from tvm_tile.frontend.relay.files import read_program

_LARGEST = 60_000
_NUMBER = re.compile(rb"\d+")
_WORD = re.compile(rb"[A-Za-z_.]+|[%@]\w+|[][(){}]|\d+")
_NUMBERS = (b"0", b"1", b"2", b"-1", b"4294967296", b"9223372036854775807", b"9" * 40)


@dataclass(frozen=True)
class Subject:
    """A sound file, and what reads it."""

    name: str
    data: bytes
    read: Callable[[bytes], object]


def subjects() -> Iterator[Subject]:
    """The small files of the corpus."""
    for case in CASES.values():
        for path in sorted(case.folder.iterdir()):
            if path.suffix in (".relay", ".json") and path.name != "case.json":
                read: Callable[[bytes], object] = _program
            elif path.suffix == ".bin":
                read = _params
            else:
                continue
            if path.stat().st_size <= _LARGEST:
                yield Subject(f"{case.name}/{path.name}", path.read_bytes(), read)


def mutated(data: bytes, random: Random) -> bytes:
    """Damage bytes, put another number in place of one, or swap two words."""
    kind = random.randrange(4)
    pattern = _NUMBER if kind == 0 else _WORD
    places = [match.span() for match in pattern.finditer(data)]
    if kind > 1 or not places:
        return damaged(data, random)
    start, end = random.choice(places)
    if kind == 0:
        number = int(data[start:end][:20])
        near = (b"%d" % (number + 1), b"%d" % max(number - 1, 0))
        return data[:start] + random.choice((*_NUMBERS, *near)) + data[end:]
    other_start, other_end = random.choice(places)
    return data[:start] + data[other_start:other_end] + data[end:]


def outcome(subject: Subject, data: bytes) -> str:
    """What becomes of damaged bytes: ``read``, ``refused``, or what should never be."""
    try:
        subject.read(data)
        return "read"
    except TileError:
        return "refused"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"[:200]


def _program(data: bytes) -> object:
    return read_program(data, "damaged")


def _params(data: bytes) -> object:
    return read_params(data, "damaged")


def main(count: int, seed: int) -> int:
    """Try that many; 1 if there is a finding."""
    files = list(subjects())
    counts: Counter[str] = Counter()
    for number in range(seed, seed + count):
        random = Random(number)
        subject = random.choice(files)
        result = outcome(subject, mutated(subject.data, random))
        counts[result] += 1
        if result not in ("read", "refused"):
            print(f"{number} {subject.name}: {result}")
    print(dict(counts))
    return int(not set(counts) <= {"read", "refused"})


if __name__ == "__main__":
    words = [int(word) for word in sys.argv[1:]]
    sys.exit(main(*words, *(1000, 0)[len(words) :]))
