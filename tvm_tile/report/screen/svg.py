"""Parts of drawings (SVG): texts, boxes and lines, as text of the file."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

_GOLDEN_ANGLE = 137.508  # degrees from the hue of one number to the next: all differ
_NAMESPACE = "http://www.w3.org/2000/svg"
_TEXTS = "text { font: 12px sans-serif; dominant-baseline: middle }"


def document(
    width: float, height: float, rules: str, parts: Iterable[str], **attributes: str
) -> str:
    """The text of an SVG file, on white paper.

    Args:
        width, height: of the drawing, in pixels.
        rules: rules of its style sheet, beside those of texts.
        parts: what is drawn.
        attributes: others of the whole.
    """
    paper = _element("rect", id="paper", width="100%", height="100%", fill="white")
    inner = "\n".join(["", f"<style>\n  {_TEXTS}{rules}</style>", paper, *parts, ""])
    own = _element("svg", inner, xmlns=_NAMESPACE, width=width, height=height, **attributes)
    return own + "\n"


def text(x: float, y: float, line: str, kind: str = "") -> str:
    """A line of text at a place, of a class of the style sheet if one is given."""
    return _element("text", escape(line), kind=kind, x=x, y=y)


def box(*place: float, kind: str = "", fill: str = "", told: str = "") -> str:
    """A rectangle at ``place``: x, y, width, height; who points at it is ``told`` something."""
    own = dict(zip(("x", "y", "width", "height"), place, strict=True))
    title = f"<title>{escape(told)}</title>" if told else ""
    return _element("rect", title, kind=kind, **own, fill=fill)


def path(line: str, kind: str = "", *, stroke: str = "") -> str:
    """A line, in the words of a path's ``d``."""
    return _element("path", kind=kind, stroke=stroke, d=line)


def colour(number: int, lightness: int) -> str:
    """A colour of a lightness in percent; those of no two numbers are equal."""
    return f"hsl({number * _GOLDEN_ANGLE % 360:.0f} 60% {lightness}%)"


def _element(tag: str, inner: str = "", *, kind: str = "", **attributes: str | float) -> str:
    """An element of a class ``kind``, with those of its attributes that say something."""
    told = {"class": kind, **attributes}.items()
    own = "".join(
        f' {name}="{value if isinstance(value, str) else f"{round(value, 2):g}"}"'
        for name, value in told
        if value != ""
    )
    return f"<{tag}{own}>{inner}</{tag}>" if inner else f"<{tag}{own}/>"
