"""Everything that a page shows, as data."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from tvm_tile.device.device import Device
from tvm_tile.report.compiled import ModelReport
from tvm_tile.report.profile import ModelProfile
from tvm_tile.report.verification import Verified


@dataclass(frozen=True, slots=True)
class SourceText:
    """A text that a kernel was made of.

    Attributes:
        language: such as ``"CUDA"`` or ``"TensorIR"``.
        name: name of the kernel in the text.
        text: all of it.
        instructions: instructions of the machine code that was made of it; 0 where that is not
            known.
    """

    language: str
    name: str
    text: str
    instructions: int = 0

    @property
    def packed(self) -> str:
        """The text as a browser unpacks it when it is to be shown: deflated, in base 64."""
        return base64.b64encode(zlib.compress(self.text.encode(), 9)).decode()


@dataclass(frozen=True, slots=True)
class Content:
    """All that a page shows of a compiled model.

    Attributes:
        title: name of the model, for people.
        report: report of the compilation.
        measured: seconds of a run, and their spread; zeros where none was measured.
        sources: name of a kernel -> its texts.
        verified: results of verification; ``None`` where it was not asked for.
        device: the record of the report's device, which time lines of persistent kernels need;
            ``None`` where it is not known here.
        profile: measured times of kernels; ``None`` where they were not asked for.
    """

    title: str
    report: ModelReport
    measured: tuple[float, float] = (0.0, 0.0)
    sources: Mapping[str, tuple[SourceText, ...]] = field(default_factory=dict)
    verified: Verified | None = None
    device: Device | None = None
    profile: ModelProfile | None = None
