"""A page is one valid file that runs nothing of a model's names, and says what the report says."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from page_reports import BLOCK, LIMITS, choices, content, kernel, report

import tvm_tile
from tvm_tile.report.coded_weights import CodedWeight
from tvm_tile.report.kernel_graph import CallValue, KernelCall, KernelGraph
from tvm_tile.report.page.content import Choices, Content, Standing
from tvm_tile.report.page.graph import graph_view
from tvm_tile.report.page.html import render, render_choices
from tvm_tile.report.page.kernels import MEANINGS, BoxKind, kernel_views
from tvm_tile.report.page.numbers import bytes_text, time_text
from tvm_tile.report.page.plots import latency_plot, memory_plot, roofline
from tvm_tile.report.shown import Report
from tvm_tile.report.verification import Verified
from tvm_tile.tile.weld.connect import Decision

HOSTILE = "</script><img src=x onerror=alert(1)>\"'</title></template>{{ 7 * 7 }}&amp;"


class Read(HTMLParser):
    """The elements of a page, and its texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def fallen_back() -> Content:
    own = report(8)
    lost = replace(kernel(3), fallback="no rule takes it", rule="dlight", tile="")
    kernels = (*own.kernels[:3], lost, *own.kernels[4:])
    return Content("m", replace(own, kernels=kernels))


def of_nothing() -> Content:
    """A model that hands its input on, and one all of whose kernels fell back."""
    graph = KernelGraph("main", (), (CallValue(("n",), "int8", None),), (("x", 0),), ((0,), ()))
    return Content("m", Report("d", (), (), graphs=(graph,)))


def without_times() -> Content:
    own = report(4)
    kernels = tuple(replace(k, fallback="no rule takes it", names=()) for k in own.kernels)
    return Content("m", replace(own, kernels=kernels))


PAGES = [content(), content(30, HOSTILE), fallen_back(), of_nothing(), without_times()]
TEXTS = [
    *map(render, PAGES),
    *map(render_choices, (choices(), choices(HOSTILE), choices(latency=None), Choices("m", ()))),
]


@pytest.mark.parametrize("own", PAGES)
def test_every_page_has_its_parts(own: Content) -> None:
    page = Read(render(own))
    ids = {attributes.get("id") for _, attributes in page.elements}
    links = {attributes.get("href") for tag, attributes in page.elements if tag == "a"}
    assert {"kernels", "decisions", "notes", "details", "find"} <= ids
    assert {link[1:] for link in links if link} <= ids
    timed = any(not kernel.fallback for kernel in own.report.kernels)
    assert ("roofline" in ids) == ("memory" in ids) == timed
    assert ("No kernel's time is predicted." in page.texts) != timed


@pytest.mark.parametrize("text", TEXTS)
def test_a_page_is_valid_html(text: str) -> None:
    html5lib = pytest.importorskip("html5lib", reason="pip install html5lib, to check the HTML")
    parser = html5lib.HTMLParser(strict=True)
    parser.parse(text)
    assert not parser.errors


def test_names_of_a_model_stay_text_wherever_they_are() -> None:
    own = content(12, HOSTILE)
    own = replace(
        own,
        report=replace(own.report, notes=(HOSTILE,), device=HOSTILE),
        verified=Verified(False, HOSTILE, {}),
    )
    page = Read(render(own))
    tags = Counter(tag for tag, _ in page.elements)
    assert tags == Counter(tag for tag, _ in Read(render(replace(own, **tame(own)))).elements)
    assert tags["script"] == 1
    assert "img" not in tags
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)
    assert any(HOSTILE in text for text in page.texts)
    labels = [attributes.get("aria-label") or "" for _, attributes in page.elements]
    assert any(HOSTILE[:20] in label for label in labels)


def tame(own: Content) -> dict[str, object]:
    """The same page of harmless names."""
    told = content(12, "a" * len(HOSTILE))
    return {
        "title": "a name",
        "report": replace(told.report, notes=("a note",), device="a device"),
        "sources": told.sources,
        "verified": Verified(False, "text", {}),
    }


def test_names_stay_text_where_devices_are_chosen() -> None:
    page = Read(render_choices(choices(HOSTILE)))
    tame_page = Read(render_choices(choices("a model")))
    assert Counter(tag for tag, _ in page.elements) == Counter(t for t, _ in tame_page.elements)
    assert sum(HOSTILE in text for text in page.texts) > 10


@pytest.mark.parametrize("text", TEXTS)
def test_a_page_loads_nothing(text: str) -> None:
    page = Read(text)
    for _, attributes in page.elements:
        assert not {"src", "srcset", "action", "data", "poster"} & attributes.keys()
        assert (attributes.get("href") or "#").startswith("#")
    assert not re.search(r"url\((?!#)|@import|fetch\(|XMLHttpRequest|import\(", text)


def test_a_page_lets_no_other_script_run() -> None:
    text = render(content())
    page = Read(text)
    (policy,) = [a["content"] for tag, a in page.elements if "http-equiv" in a and tag == "meta"]
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy is not None
    assert policy.startswith(f"default-src 'none'; script-src 'sha256-{digest}'")


def test_each_call_is_a_box_and_each_tensor_between_two_a_line() -> None:
    page = Read(render(content(12)))
    boxes = [a for tag, a in page.elements if "box" in (a.get("class") or "").split()]
    lines = [a for _, a in page.elements if "data-maker" in a]
    reads = sum(len(call.reads) for call in report(12).graphs[0].calls)
    assert len(boxes) == 1 + 12 + 1
    assert len(lines) == reads + 1
    # All that they are called by is found, and there is but one to reach by Tab.
    assert "encoder.layer.1.part2.dense" in (boxes[1 + BLOCK + 2]["data-find"] or "")
    assert [box["tabindex"] for box in boxes] == ["0"] + ["-1"] * 13
    rows = [a for tag, a in page.elements if tag == "tr" and "data-find" in a]
    assert len(rows) == 12
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert len(set(ids)) == len(ids)


def test_a_page_tells_of_each_kernel_what_the_report_has() -> None:
    own = content(12)
    views = kernel_views(own)
    assert [view.report for view in views] == sorted(
        own.report.kernels, key=lambda k: -k.run_seconds
    )
    assert sum(view.share for view in views) == pytest.approx(1)
    assert {view.kind for view in views} == set(MEANINGS) - {BoxKind.FELL_BACK}
    text = "".join(Read(render(own)).texts)
    for view in views:
        facts = dict(view.facts)
        assert facts["Kernel"] in text
        assert time_text(view.call_seconds) in facts["Time of a call, predicted"]
        assert facts["Instructions"] == "400"
    assert "1.1 MB" not in text
    assert bytes_text(own.report.planned) in text


def test_what_fell_back_is_said_and_takes_no_part_in_totals() -> None:
    own = fallen_back()
    text = "".join(Read(render(own)).texts)
    assert "1 of 8 kernels fell back" in text
    assert "no rule takes it" in text
    lost = next(view for view in kernel_views(own) if view.report.fallback)
    assert (lost.time, lost.kind, lost.share) == ("unknown", BoxKind.FELL_BACK, 0)


def test_a_kernel_at_the_memorys_bandwidth_is_on_its_roof() -> None:
    seconds, traffic = 10e-6, 4e12 * 10e-6
    full = replace(kernel(0), seconds=seconds, traffic=traffic, flops=traffic * 2)
    own = Report("d", (full, replace(full, name="half", traffic=traffic / 2)), (), limits=LIMITS)
    found = roofline(own, kernel_views(Content("m", own)))
    assert found is not None
    roof = next(roof for roof in found.roofs if roof.text.startswith("memory"))
    left, bottom, right, top = map(float, re.findall(r"-?\d+\.\d+", roof.path))
    on_roof = [
        bottom + (point.x - left) / (right - left) * (top - bottom) - point.y
        for point in found.points
    ]
    # The other one moves half of it, and is twice as far to the right at the same height.
    assert on_roof[0] == pytest.approx(0, abs=0.2)
    assert on_roof[1] < -5


def test_memory_over_time_tells_the_most_and_when() -> None:
    own = report(12)
    found = memory_plot(own, kernel_views(Content("m", own)))
    assert found is not None
    live = own.graphs[0].live_bytes
    assert found.most[0] == bytes_text(max(live))
    assert found.most[1].startswith(own.graphs[0].calls[live.index(max(live))].names[0])
    assert len(found.moments) == 12
    assert memory_plot(replace(own, graphs=()), ()) is None


def test_a_model_without_a_graph_says_so_and_keeps_its_table() -> None:
    own = replace(report(5), graphs=(), limits=None)
    page = Read(render(Content("m", own)))
    assert "saved before graphs were kept" in "".join(page.texts)
    assert len([a for tag, a in page.elements if tag == "tr" and "data-find" in a]) == 5


def test_a_kernel_tells_all_its_calls_and_a_function_where_its_graph_is() -> None:
    own = report(6)
    (main,) = own.graphs
    first = main.calls[0].kernel
    loop = KernelCall("loop", (), (1,), (2,))
    calls = (main.calls[0], loop, replace(main.calls[2], kernel=first), *main.calls[3:])
    inner = replace(main, function="loop")
    graph = graph_view(
        replace(own, graphs=(replace(main, calls=calls), inner)), kernel_views(Content("m", own))
    )
    number = graph.boxes[1].kernel
    assert number is not None
    # Box 0 is the input; those of the loop are behind the eight of main.
    assert [link.box for link in graph.calls[number]] == [1, 3, 9]
    assert [link.box for link in graph.boxes[2].inside] == [8]
    assert graph.boxes[2].kind is BoxKind.FUNCTION
    assert graph.boxes[8].kind is BoxKind.INPUT
    top, bottom = (max(box.place[1] for box in own) for own in (graph.boxes[:8], graph.boxes[8:]))
    assert top < graph.headings[1][1] < min(box.place[1] for box in graph.boxes[8:]) < bottom


def test_decisions_and_low_bit_formats_are_tables() -> None:
    joined = Decision(("up", "down"), (), 9e-6, 5e-6, "chain")
    apart = Decision(("left", "right"), (), 9e-6, 10e-6, reason="slower as one kernel")
    coded = CodedWeight((4096, 1024), "float16", None, "of no known form")
    own = replace(report(5), decisions=(joined, joined, apart), coded=(coded,))
    text = " ".join(Read(render(Content("m", own))).texts)
    for told in ("up + down", "left + right", "slower as one kernel", "4096×1024 float16"):
        assert told in text


def test_a_persistent_kernel_has_its_time_line_where_the_device_is_known() -> None:
    from roperators import lstm

    from tvm_tile.plan.coschedule import coschedule
    from tvm_tile.plan.proof import residency
    from tvm_tile.report.persistent_report import report_persistent

    device, operators = tvm_tile.find_device("nvidia/h200"), lstm(2, 3)
    plan = coschedule(operators, device)
    assert plan is not None
    proof = residency(plan, 64, plan.shared_bytes, device)
    own = replace(report(5), plans=(report_persistent("all", operators, plan, 1e-3, proof),))
    drawn = Read(render(Content("m", own, device=device)))
    assert [a for _, a in drawn.elements if a.get("class") == "task"]
    assert "there is no record of nvidia/h200 here" in "".join(
        Read(render(Content("m", own))).texts
    )


def test_a_thousand_kernels_make_a_page_of_a_few_megabytes() -> None:
    text = render(content(1000))
    assert len(text) < 5_000_000


@pytest.mark.parametrize(
    ("told", "wanted"),
    [
        (time_text(0), "0"),
        (time_text(1.234e-9), "1.23\u202fns"),
        (time_text(999.4e-6), "999\u202fµs"),
        (time_text(999.6e-6), "1\u202fms"),
        (bytes_text(12), "12\u202fbytes"),
        (bytes_text(4.54e9), "4.54\u202fGB"),
    ],
)
def test_numbers_have_three_digits_and_a_unit(told: str, wanted: str) -> None:
    assert told == wanted


def test_offers_lie_by_the_logarithms_of_latency_and_throughput() -> None:
    own = choices()
    plot = latency_plot(own.offers, own.latency)
    assert plot is not None
    marks = [mark for line in plot.lines for mark in line.marks]
    assert [mark.offer for mark in marks] == list(own.offers)
    for mark, seconds, rate in ((m, m.offer.seconds, m.offer.throughput) for m in marks):
        first, last = marks[0], marks[-1]
        across = math.log(seconds / first.offer.seconds) / math.log(
            last.offer.seconds / first.offer.seconds
        )
        assert mark.x == pytest.approx(first.x + across * (last.x - first.x))
        up = math.log(rate / first.offer.throughput) / math.log(
            last.offer.throughput / first.offer.throughput
        )
        assert mark.y == pytest.approx(first.y + up * (last.y - first.y))
    # 20 ms lies between 10 ms and 40 ms, in the middle of the logarithms.
    assert plot.limit == pytest.approx((marks[2].x + marks[5].x) / 2)
    assert latency_plot(own.offers, 10.0).limit is None  # type: ignore[union-attr]  # off the axis
    times = {tick.text.replace("\u202f", " ") for tick in plot.ticks_across}
    assert {"1 ms", "2 ms", "5 ms", "10 ms", "20 ms"} <= times
    assert len({line.colour for line in plot.lines}) == 2
    assert latency_plot((), None) is None


def test_a_page_of_choices_tells_each_offer_and_its_standing() -> None:
    own = choices()
    page = Read(render_choices(own))
    text = "".join(page.texts).replace("\u202f", " ")
    circles = Counter(a["class"] for tag, a in page.elements if tag == "circle")
    # One each in the legend.
    assert circles == {"front": 3 + 1, "possible": 1 + 1, "too-slow": 1 + 1, "too-large": 1 + 1}
    for said in ("a model one, 8", "4 k", "8 GB", "16.0 % of 50 GB", "note on a model", "0.4"):
        assert said in text
    assert {standing.value for standing in Standing} <= set(page.texts)
    none = replace(own, best=None)
    assert "None is possible:" in "".join(Read(render_choices(none)).texts)
    free = replace(own, offers=own.offers[:3])
    assert "Price" not in "".join(Read(render_choices(free)).texts)
