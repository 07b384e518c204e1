"""Assembly of AMD kernels, read as far as waits and barriers go."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_STORE = re.compile(r"ds_(write|store|add|sub|min|max|and|or|xor|inc|dec)")
# RDNA 4 counts by kinds; where two are named, shared memory's count is in the lower bits.
_WAIT = re.compile(r"s_waitcnt\b.*lgkmcnt\(0\)|s_wait_(\w+_)?dscnt 0x([0-9a-f]*0)?0$")
_BARRIER = re.compile(r"s_barrier(_signal)?\b")
_JUMP = re.compile(r"s_(c?branch)\w*\s+(\S+)")


@dataclass(slots=True)
class _Block:
    """Instructions that run one after the other, and where control goes from there."""

    lines: list[str] = field(default_factory=list)
    successors: list[str] = field(default_factory=list)


def metadata(assembly: str) -> dict[str, int]:
    """Numbers that it says of its kernel: registers, bytes, threads."""
    return {name: int(n) for name, n in re.findall(r"\.(\w+): +(\d+)$", assembly, re.MULTILINE)}


def unfinished_stores(assembly: str) -> list[str]:
    """Barriers that some path reaches without a wait behind a store to shared memory.

    All paths that the branches allow are followed, whether or not their conditions can hold at
    once; a wait is one for all that is under way.

    Returns:
        The barrier's line, once a barrier.
    """
    blocks = _blocks(assembly)
    pending = dict.fromkeys(blocks, False)
    found: dict[tuple[str, int], str] = {}
    changed = True
    while changed:
        changed = False
        for name, block in blocks.items():
            is_pending = pending[name]
            for number, line in enumerate(block.lines):
                if _BARRIER.match(line) and is_pending:
                    found[name, number] = line
                is_pending = (is_pending or bool(_STORE.match(line))) and not _WAIT.match(line)
            for successor in block.successors:
                if is_pending and not pending[successor]:
                    pending[successor] = changed = True
    return list(found.values())


def instructions(assembly: str) -> Iterator[str]:
    """All instructions and labels, without comments."""
    for line in assembly.partition(".section")[0].splitlines():
        text = line.partition(";")[0].strip()
        if text and (not text.startswith(".") or text.endswith(":")):
            yield re.sub(r"\s+", " ", text)


def _blocks(assembly: str) -> dict[str, _Block]:
    name = "entry"
    blocks = {name: _Block()}
    for line in instructions(assembly):
        if line.endswith(":"):
            blocks[name].successors.append(line[:-1])
            name = line[:-1]
            blocks[name] = _Block()
            continue
        blocks[name].lines.append(line)
        jump = _JUMP.match(line)
        if jump or line == "s_endpgm":
            after = f"{name}+"
            if jump:
                blocks[name].successors.append(jump[2])
            if jump and jump[1] == "cbranch":
                blocks[name].successors.append(after)
            name = after
            blocks[name] = _Block()
    return blocks
