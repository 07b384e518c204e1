"""Run a lesson and print what it prints, each of its sections under a line with its number.

Usage: python tests/run_lesson.py LESSON FOLDER

A section begins with a comment like `# 3. Save it.`; what is ahead of the first one has number 0.
Drawings are written to the folder, and each is told in a line, `picture: NAME`. Line numbers and
the name of the file are the lesson's own, in errors as well as for `inspect`.
"""

from __future__ import annotations
import __future__

import contextlib
import io
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path

_BEGINNING = re.compile(r"# (\d+)\. ")


def sections(source: str) -> Iterator[tuple[int, str]]:
    """Each section's number and code, behind as many empty lines as are ahead of it."""
    lines = source.splitlines(keepends=True)
    begins = {0: 0}
    for at, line in enumerate(lines):
        if found := _BEGINNING.match(line):
            begins[int(found[1])] = at
    ends = [*list(begins.values())[1:], len(lines)]
    for (number, begin), end in zip(begins.items(), ends, strict=True):
        yield number, "\n" * begin + "".join(lines[begin:end])


def main(path: str, folder: str) -> None:
    """Run the lesson at ``path`` as if it were the main program; drawings go to ``folder``."""
    source = Path(path).read_text(encoding="utf-8")
    lesson = types.ModuleType("__main__")
    lesson.__file__ = path
    sys.modules["__main__"] = lesson
    sys.argv = [path, folder] if "sys.argv[1]" in source else [path]
    flags = __future__.annotations.compiler_flag
    drawn: set[Path] = set()
    for number, code in sections(source):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, path, "exec", flags, dont_inherit=True), lesson.__dict__)
        drawings = set(Path(folder).glob("*.svg"))
        shown = [text] if (text := printed.getvalue().strip("\n")) else []
        shown += [f"picture: {file.name}" for file in sorted(drawings - drawn)]
        drawn = drawings
        if shown:
            print(f"===== {number} =====", *shown, sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
