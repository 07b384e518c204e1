"""The words that ``tvm-tile`` takes: the list of its commands."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from typing import NoReturn

from tvm_tile._version import __version__
from tvm_tile.cli import (
    cache,
    calibrate,
    choose,
    compare,
    compile,
    completion,
    devices,
    doctor,
    explain,
    predict,
    profile,
    report,
    run,
    schedule,
    sign,
    verify,
)
from tvm_tile.cli.verbosity import add_verbosity
from tvm_tile.errors.closest import closest

_COMMANDS = (
    *(compile, run, explain, predict, choose, report, profile, compare, verify, schedule, sign),
    *(devices, calibrate, doctor, cache, completion),
)


_CHOICE = re.compile(r"invalid choice: '(?P<given>[^']*)' \(choose from (?P<known>.*)\)")
_OPTION = re.compile(r"unrecognized arguments: (?P<given>--[\w-]+)")


class Parser(argparse.ArgumentParser):
    """A parser that suggests what a misspelt word may be meant for."""

    def error(self, message: str) -> NoReturn:
        """Explain what is wrong with the words, and end the process with status 2."""
        known: Iterable[str] = ()
        if found := _CHOICE.search(message):
            known = [word.strip("'") for word in found["known"].split(", ")]
        elif found := _OPTION.search(message):
            known = self._option_string_actions
        meant = closest(found["given"], known) if found else None
        super().error(message if meant is None else f"{message}; did you mean {meant}?")


def build_parser() -> Parser:
    """The parser of the whole command line. A command's ``run`` is in what it parses."""
    parser = Parser(prog="tvm-tile", description="Compile neural networks for GPUs, without tuning")
    parser.add_argument("--version", action="version", version=f"tvm-tile {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for module in _COMMANDS:
        module.add(commands)
    for command in commands.choices.values():
        add_verbosity(command)
        command.set_defaults(parser=command)
    return parser
