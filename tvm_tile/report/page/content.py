"""Everything that pages show, as data."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

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


class Styled(Enum):
    """Kinds of what a page shows, each with looks of its own."""

    @property
    def style(self) -> str:
        """The class of its looks."""
        return self.name.lower().replace("_", "-")


class Standing(Styled):
    """How a choice does beside the others."""

    FRONT = "on the front"
    POSSIBLE = "beaten by another"
    TOO_SLOW = "slower than allowed"
    TOO_LARGE = "larger than the memory"


@dataclass(frozen=True, slots=True)
class OfferView:
    """A model on a device, with so many samples in a run.

    Attributes:
        device: name of the device's record.
        samples: samples of a run.
        seconds: predicted seconds of a run.
        throughput: samples a second.
        memory: bytes that the model takes of the device's.
        capacity: bytes that the device has.
        cost: price of a million samples; ``None`` where nobody told the device's.
        standing: how it does beside the others.
        remark: remark on the prediction; empty where there is nothing to say.
    """

    device: str
    samples: int
    seconds: float
    throughput: float
    memory: float
    capacity: float
    cost: float | None
    standing: Standing
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Choices:
    """All that a page shows of a model on several devices.

    Attributes:
        title: name of the model, for people.
        offers: offers, those of a device side by side.
        best: number of the best offer; ``None`` where none is possible.
        latency: seconds that a run may take; ``None``: any.
        notes: notes on the predictions.
    """

    title: str
    offers: tuple[OfferView, ...]
    best: int | None = None
    latency: float | None = None
    notes: tuple[str, ...] = ()
