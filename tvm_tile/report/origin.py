"""By which code, and how, a model was compiled."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Origin:
    """Code and options that a model was compiled by.

    Attributes:
        version: version of this package.
        code: a sum of its files; empty where these have changed since they were imported.
        tvm: TVM's version.
        options: options that differ from the defaults, such as ``"cuda_graph=False"``.
    """

    version: str
    code: str
    tvm: str
    options: tuple[str, ...]

    def describe(self) -> str:
        """A few words for people."""
        code = f" (code {self.code})" if self.code else ""
        options = ", ".join(self.options) or "default options"
        return f"tvm_tile {self.version}{code}, TVM {self.tvm}, {options}"
