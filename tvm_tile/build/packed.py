"""Two half-precision numbers an instruction, where TVM's text has one at a time.

TVM computes vectors of halves element by element::

    __3.x = (__4.x+v__1.x);
    __3.y = (__4.y+v__1.y);

after: ``__3 = __hadd2(__4, v__1);``. The numbers are the same; they also stay packed in registers.
"""

from __future__ import annotations

import re

_NAME = r"(\w+)"
_DECLARED = re.compile(rf"\bhalf([24]) {_NAME}(?= =|;)")
_BINARY = {"+": "hadd2", "-": "hsub2", "*": "hmul2"}
_PAIRS = {"x": "y", "z": "w"}
_LINE = re.compile(
    r"(?P<into>\w+)\.(?P<part>[xz]) = "
    r"(?:\((?P<a>\w+)\.(?P=part)(?P<op>[-+*])(?P<b>\w+)\.(?P=part)\)"
    r"|(?P<call>maximum|minimum)\((?P<c>\w+)\.(?P=part), (?P<d>\w+)\.(?P=part)\)"
    r"|\(half\)\((?P<from>\w+)\.(?P=part)\));\n"
)


def pack_halves(source: str, *, contract: bool) -> str:
    """CUDA text with pairs of operations on halves as one.

    Args:
        source: CUDA text as TVM writes it.
        contract: whether products may be fused into sums.
    """
    sizes = {name: int(size) for size, name in _DECLARED.findall(source)}
    parts, end = [], 0
    for found in _LINE.finditer(source):
        if found.start() < end or found["into"] not in sizes:
            continue
        first = found[0]
        second = re.sub(rf"\.{found['part']}\b", f".{_PAIRS[found['part']]}", first)
        indent = re.match(r"[ ]*", source[found.end() :])
        start = found.end() + (len(indent[0]) if indent else 0)
        packed = _packed(found, sizes, contract=contract)
        if packed is None or not source.startswith(second, start):
            continue
        parts += [source[end : found.start()], packed]
        end = start + len(second)
    return "".join([*parts, source[end:]])


def _packed(found: re.Match[str], sizes: dict[str, int], *, contract: bool) -> str | None:
    """The operation on a pair; ``None`` where an operand is none of halves."""
    part = found["part"]

    def pair(name: str) -> str:
        return name if sizes[name] == 2 else f"*(half2*)(&{name}.{part})"

    into = pair(found["into"])
    if found["from"]:
        value = found["from"]
        if value in sizes:
            return None
        return f"{into} = __floats2half2_rn({value}.{part}, {value}.{_PAIRS[part]});\n"
    left, right = (found["a"], found["b"]) if found["op"] else (found["c"], found["d"])
    if left not in sizes or right not in sizes:
        return None
    if found["call"]:
        return f"{into} = {found['call']}({pair(left)}, {pair(right)});\n"
    rounded = "" if contract else "_rn"
    return f"{into} = __{_BINARY[found['op']]}{rounded}({pair(left)}, {pair(right)});\n"
