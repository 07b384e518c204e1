"""Times, sizes and rates for people: three digits and a unit."""

from __future__ import annotations

_THIN = "\u202f"  # between a number and its unit, where no line may end


def time_text(seconds: float) -> str:
    """Seconds, such as ``12.3 µs``."""
    return _scaled(seconds * 1e9, ("ns", "µs", "ms", "s"))


def bytes_text(size: float) -> str:
    """Bytes, such as ``1.23 MB``."""
    return _scaled(size, ("bytes", "KB", "MB", "GB", "TB"))


def rate_text(rate: float, what: str) -> str:
    """A rate with its unit, such as ``4.54 TB/s`` where ``what`` is ``"B"``."""
    return _scaled(rate, tuple(f"{prefix}{what}/s" for prefix in ("", "k", "M", "G", "T", "P")))


def count_text(number: float, what: str) -> str:
    """A number with its unit, such as ``22.6 GFLOP``."""
    return _scaled(number, tuple(f"{prefix}{what}" for prefix in ("", "k", "M", "G", "T", "P")))


def plain_text(number: float) -> str:
    """A number without a unit, such as ``22.6 k``."""
    return count_text(number, "").rstrip()


def share_text(share: float) -> str:
    """A part of a whole, such as ``9.7 %``."""
    return f"{100 * share:.1f}{_THIN}%"


def _scaled(number: float, units: tuple[str, ...]) -> str:
    """A number with three digits and the unit that suits its size."""
    if not number:
        return "0"
    place = 0
    while abs(number) >= 999.5 and place < len(units) - 1:
        number /= 1000
        place += 1
    return f"{number:.3g}{_THIN}{units[place]}"
