"""The command ``tvm-tile``: one module a command, each with what it takes and what it does.

The page to start on is ``main`` here; ``parser.py`` lists the commands. What they print for others
to read goes to standard output, what tells how far they are, and errors, to standard error.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence

from tvm_tile.cli.completion import answer_shell
from tvm_tile.cli.interrupt import end_cleanly_on_signals
from tvm_tile.cli.parser import build_parser
from tvm_tile.cli.spelling import in_words
from tvm_tile.cli.status import ExitStatus, status_of
from tvm_tile.cli.verbosity import Verbosity


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: the words after the program's name; those of this process by default, which then ends
            by itself, and at once, after Ctrl-C.

    Returns:
        The exit status, an :class:`~tvm_tile.cli.status.ExitStatus`. An error has then been
        explained on standard error. Words that are no command end the process, as those of
        ``argparse`` do.
    """
    if argv is None:
        end_cleanly_on_signals()
    parser = build_parser()
    answer_shell(parser)
    arguments, unknown = parser.parse_known_args(argv)
    if unknown:  # said by the command that they were given to, which has its own options
        arguments.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    try:
        status: ExitStatus | None = arguments.run(arguments)
        sys.stdout.flush()
        return ExitStatus.RIGHT if status is None else status
    except BrokenPipeError:
        # `tvm-tile explain ... | head`: the reader has seen enough. Python would complain
        # again when it flushes standard output at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitStatus.RIGHT
    except Exception as error:
        status = status_of(error)
        if status is ExitStatus.FAULT or arguments.verbosity is Verbosity.VERBOSE:
            traceback.print_exc()
        kind = "internal error" if status is ExitStatus.FAULT else "error"
        print(f"tvm-tile: {kind}: {in_words(str(error))}", file=sys.stderr)
        return status
