"""Pages as the text of one HTML file each.

Names in a model are anybody's: Jinja escapes all that it writes, and a page's policy lets the
browser run no script but its own, if it has one, and load nothing at all.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from tvm_tile._version import __version__
from tvm_tile.device.device import Device
from tvm_tile.report.page import numbers, plots
from tvm_tile.report.page.content import Choices, Content, Standing
from tvm_tile.report.page.graph import BOX, GraphView, graph_view
from tvm_tile.report.page.kernels import MEANINGS, KernelView, kernel_views
from tvm_tile.report.page.tables import apart_rows, coded_rows, cover_rows, joined_rows
from tvm_tile.report.persistent_report import PersistentReport
from tvm_tile.report.screen.cover_drawing import draw_cover
from tvm_tile.report.screen.gantt import colour, gantt
from tvm_tile.report.screen.persistent_text import described

_FOLDER = Path(__file__).parent
_MOST_ROWS = 150  # of the table of kernels, before more are asked for


def render(content: Content) -> str:
    """The text of a compiled model's page."""
    kernels = kernel_views(content)
    graph = graph_view(content.report, kernels)
    return _written("page", _file("page.js"), _views(content, kernels, graph))


def render_choices(choices: Choices) -> str:
    """The text of the page of a model on several devices."""
    views = {
        "choices": choices,
        "best": None if choices.best is None else choices.offers[choices.best],
        "plot": plots.latency_plot(choices.offers, choices.latency),
        "size": (plots.WIDTH, plots.HEIGHT),
        "priced": any(offer.cost is not None for offer in choices.offers),
        "present": [own for own in Standing if own in {o.standing for o in choices.offers}],
    }
    return _written("choices", "", views)


def _written(name: str, script: str, views: Mapping[str, Any]) -> str:
    """The text of a page: of its template, with its script and all that it names."""
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "time": numbers.time_text,
        "bytes": numbers.bytes_text,
        "share": numbers.share_text,
        "plain": numbers.plain_text,
    }
    return environment.get_template(f"{name}.html.jinja").render(
        script=Markup(script),
        style=Markup(_file("page.css")),
        policy=_policy(script),
        version=__version__,
        **views,
    )


def _file(name: str) -> str:
    """Text of a file beside this one."""
    return (_FOLDER / name).read_text(encoding="utf-8")


def _policy(script: str) -> str:
    """Content-security policy of a page: the browser may run its one script, and load nothing."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    styles = "style-src 'unsafe-inline'"
    return f"default-src 'none'; script-src 'sha256-{digest}'; {styles}; base-uri 'none'"


def _views(
    content: Content, kernels: tuple[KernelView, ...], graph: GraphView
) -> Mapping[str, Any]:
    """All that the template names."""
    report, cover = content.report, content.report.cover
    return {
        "content": content,
        "report": report,
        "kernels": kernels,
        "graph": graph,
        "calls": graph.calls,
        "box": BOX,
        "most_rows": _MOST_ROWS,
        "meanings": MEANINGS,
        "present": {kernel.kind for kernel in kernels},
        "facts": _totals(content),
        "roofline": plots.roofline(report, kernels),
        "memory": plots.memory_plot(report, kernels),
        "plot": (plots.WIDTH, plots.HEIGHT),
        "time_lines": [_time_line(plan, content.device) for plan in report.plans],
        "cover": cover_rows(report),
        "cover_drawing": Markup(draw_cover(cover, report.how)) if cover.kernels else "",
        "coded": coded_rows(report.coded),
        "joined": joined_rows(report.decisions),
        "apart": apart_rows(report.decisions, report.left_apart),
    }


def _totals(content: Content) -> list[tuple[str, str, str]]:
    """Names, texts, and what there is to add to these."""
    report, (measured, spread) = content.report, content.measured
    time = numbers.time_text
    totals = [("Run", report.at_least + time(report.predicted_seconds), report.how)]
    if measured:
        totals.append(("Measured", time(measured), f"spread {time(spread)}"))
    if report.limits is not None:
        source = "L2 cache" if report.limits.is_cached else "memory"
        rate = numbers.rate_text(report.limits.bandwidth, "B")
        totals.append(("At best", time(report.limit_seconds), f"at {rate} of {source}"))
    graphs = report.launches
    within = f"{graphs.captured} in CUDA graphs" if graphs is not None else "one by one"
    flops = sum(kernel.calls * kernel.flops for kernel in report.kernels)
    return [
        *totals,
        ("Launches", str(report.launch_count), within),
        ("Moves", numbers.bytes_text(report.traffic), "memory traffic"),
        ("Computes", numbers.count_text(flops, "FLOP"), "all operations"),
        ("Keeps", numbers.bytes_text(report.weights), "of constants"),
    ]


@dataclass(frozen=True, slots=True)
class _TimeLine:
    """A persistent kernel: its name, what runs in it, its drawing, and what the colours are.

    The drawing is empty where there is no record of the device.
    """

    name: str
    told: str
    drawing: Markup
    colours: tuple[tuple[str, str], ...]


def _time_line(plan: PersistentReport, device: Device | None) -> _TimeLine:
    """The time line of a persistent kernel, with its colours; no drawing without a device."""
    drawing = Markup(gantt(plan.operators, plan.plan, device)) if device is not None else Markup("")
    colours = dict.fromkeys((operator.name, colour(operator)) for operator in plan.operators)
    return _TimeLine(plan.name, described(plan), drawing, tuple(colours))
