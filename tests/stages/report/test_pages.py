"""The pages in a real browser: nothing fails, nothing is fetched, every chart has its marks, nothing is cut off."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from stages.charting.library import chart_library
from stages.report.page.run_record import with_run
from stages.report.page.text import visible
from stages.report.pareto_page import pareto, pareto_page
from stages.tools.comparison.comparison import compare
from tests.stages.report.browser import HOW_TO_ENABLE, Page, browser_program, open_page
from tests.stages.report.report_inputs import Network, make_report
from tests.stages.report.test_charts import HOSTILE
from tests.stages.tools.comparison.test_comparison import make_run

pytestmark = pytest.mark.skipif(browser_program() is None, reason=HOW_TO_ENABLE)

WIDTHS = (390, 1280, 1920)
LONG = "a_name_without_a_single_space_" * 8
HOSTILE_NETWORK = Network(
    experiment="<script>window.hacked = 1</script>\"'&",
    classes=("<img src=x onerror='window.hacked = 1'>", LONG, *HOSTILE),
    layers=("</script><script>window.hacked = 1</script>", LONG, *HOSTILE),
    data_source="<svg onload=window.hacked=1>\x1b[2J",
)
RECORD: dict[str, Any] = {
    **{"id": "20261117-101010-abcd", "name": "kws_dscnn_s-quick", "start": "2026-11-17T10:10:10+00:00"},
    **{"command": "pipeline run kws_dscnn_s --quick --set 'a.b=</script><script>window.hacked=1</script>'"},
    **{"overrides": ["a.b=</script>"], "source": "virtual", "seed": {"prune": 0}, "config_digest": "abc"},
    **{"git": {"commit": "0123abc", "dirty": True}, "config": {"prune": {"epochs": 8}}, "versions": {"numpy": "2"}},
}


def many_runs(count: int) -> list[dict[str, Any]]:
    """Four configurations, five seeds of each, two boards."""
    found = []
    for number in range(count):
        variant, seed = divmod(number, 5)
        row = {"accuracy_int8": 0.93 + 0.01 * variant + 0.002 * (seed - 2), "size_bytes": 60_000 + 9_000 * variant}
        row |= {"peak_bytes": 50_000 + 300 * seed, "macs": 8_000_000 - 400_000 * variant, "fits": "true"}
        rows = [
            {
                **{key: str(value) for key, value in row.items()},
                **{"board": board, "source": "virtual", "latency_ms": "", "energy_mj": ""},
                **{"latency_ms_modelled": str(20 + variant + seed / 9), "energy_mj_modelled": str(18 + variant)},
            }
            for board in ("nucleo_f767zi", "nucleo_h743zi2")
        ]
        config = {"prune": {"seed": seed, "rate": variant}, "budget": {"size_bytes": 63_600, "macs": 8_351_000}}
        found.append(
            {
                **{"id": f"20261117-0000{number:02}-0000", "name": "kws_dscnn_s-quick", "config": config, "rows": rows},
                "overrides": [f"prune.rate={variant}", f"prune.seed={seed}"],
            }
        )
    return found


@dataclass(frozen=True)
class Made:
    """A page, and how many charts it has."""

    path: Path
    charts: int


@pytest.fixture(scope="module")
def library() -> str:
    return chart_library()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory, library: str) -> dict[str, Made]:
    folder = tmp_path_factory.mktemp("pages")

    def made(name: str, network: Network) -> Made:
        report = make_report(folder / name, network, library=library)
        return Made(report.page, len(list(report.figures.glob("*.svg"))))

    found = {
        "fits": made("fits", Network()),
        "misses": made("misses", replace(Network(), peak_bytes=52_000)),
        "brought": made("brought", replace(Network(), is_brought=True, experiment="somebodys_network")),
        "hostile": made("hostile", HOSTILE_NETWORK),
    }
    of_run = folder / "run.html"
    of_run.write_text(with_run(found["fits"].path.read_text(), RECORD))
    found["run"] = replace(found["fits"], path=of_run)
    records = many_runs(20)
    table, charts = pareto(records)
    (folder / "pareto.html").write_text(pareto_page(records, table, charts, library))
    found["pareto"] = Made(folder / "pareto.html", len(charts))
    evil = HOSTILE_NETWORK.layers[0]
    base = make_run(folder / "a", noise_seed=1, names={"block_1": evil})
    slow = make_run(folder / "b", noise_seed=2, slower={"block_1": 1.05}, names={"block_1": evil})
    compare([("A", base), (evil, slow)], page=folder / "comparison.html")
    found["comparison"] = Made(folder / "comparison.html", 1)
    return found


@pytest.fixture(scope="module")
def page():
    with open_page() as opened:
        yield opened


CUT_OFF = """(() => {
  const found = [];
  for (const each of document.body.querySelectorAll("*")) {
    if (each.closest("[hidden], script, .facts svg")) continue;
    const box = each.getBoundingClientRect();
    if (box.width && (box.right > innerWidth + 1 || box.left < -1)) found.push(`${each.tagName} to ${box.right}`);
    const style = getComputedStyle(each);
    const scrolls = /auto|scroll/.test(style.overflowX) && each.scrollWidth > each.clientWidth + 1;
    if (scrolls) found.push(`${each.tagName} scrolls`);
  }
  for (const drawing of document.querySelectorAll(".drawing")) {
    const frame = drawing.getBoundingClientRect();
    for (const text of drawing.querySelectorAll("text")) {
      const box = text.getBoundingClientRect();
      const isOut = box.right > frame.right + 2 || box.left < frame.left - 2 || box.top < frame.top - 2;
      if (box.width && text.textContent && isOut) found.push(`${drawing.dataset.chart}: "${text.textContent}"`);
    }
  }
  return found.slice(0, 9);
})()"""

PALE_TEXT = """(() => {
  const rgb = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const linear = (v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const ground = (each) => {
    for (; each; each = each.parentElement) {
      const [r, g, b, a = 1] = rgb(getComputedStyle(each).backgroundColor);
      if (a > 0.99) return [r, g, b];
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const each of document.body.querySelectorAll("*")) {
    const hasText = [...each.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!hasText || each.closest("svg, script, [hidden]")) continue;
    const style = getComputedStyle(each), box = each.getBoundingClientRect();
    if (!box.width) continue;
    const [a, b] = [light(rgb(style.color)), light(ground(each))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05), size = parseFloat(style.fontSize);
    const needed = size >= 24 || (size >= 18.66 && style.fontWeight >= 700) ? 3 : 4.5;
    if (ratio < needed) found.push(`${each.tagName} "${each.textContent.slice(0, 30)}" ${ratio.toFixed(2)}`);
  }
  return found.slice(0, 9);
})()"""

WITHOUT_MARKS = """[...document.querySelectorAll(".drawing")]
  .filter((each) => !each.querySelector("svg .role-mark path[d]:not([d='']), svg .role-mark line"))
  .map((each) => each.dataset.chart)"""


@pytest.mark.parametrize("name", ["fits", "misses", "brought", "hostile", "run", "pareto", "comparison"])
def test_a_page_is_whole_at_every_width_and_in_both_themes(name: str, pages: dict[str, Made], page: Page):
    made = pages[name]
    page.problems.clear(), page.requests.clear()
    for dark, widths in ((True, WIDTHS[:1]), (False, WIDTHS[1:])):
        page.resize(widths[0], dark=dark)
        page.open(made.path)
        for width in widths:
            page.resize(width, dark=dark)
            page.ask("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50)))")
            assert page.ask("document.documentElement.scrollWidth") <= width
            assert page.ask(CUT_OFF) == [], width
        assert page.ask("document.querySelectorAll('.drawing svg').length") == made.charts
        assert page.ask(WITHOUT_MARKS) == []
        assert page.ask(PALE_TEXT) == []
    assert page.problems == [] and page.requests == []
    assert page.ask("window.hacked") is None


def test_on_paper_tables_stay_tables_and_nothing_is_cut_off(page: Page, pages: dict[str, Made]) -> None:
    page.resize(718)  # A4 between its margins
    page.open(pages["run"].path)
    page.call("Emulation.setEmulatedMedia", media="print")
    page.ask("dispatchEvent(new Event('beforeprint'))")
    cut_off = page.ask(CUT_OFF)
    shown = page.ask("getComputedStyle(document.querySelector('#boards thead')).display")
    opened = page.ask("document.querySelectorAll('#provenance details[open]').length")
    page.call("Emulation.setEmulatedMedia", media="")
    assert (cut_off, shown, opened) == ([], "table-header-group", 0)
    assert 4 <= len(re.findall(rb"/Type /Page\b", page.printed())) <= 12


def test_the_verdict_comes_first_and_names_what_is_missed(pages: dict[str, Made], page: Page):
    page.resize(1280)
    page.open(pages["misses"].path)
    assert page.ask("document.querySelector('.verdict h2').textContent") == "Does not fit"
    assert page.ask("document.querySelector('.verdict p').textContent") == "Over budget: peak memory by 300 B."
    assert page.ask("document.querySelector('.verdict').getBoundingClientRect().top") < 300
    assert page.ask("document.querySelectorAll('.card.bad').length") == 1


def test_hostile_names_are_read_not_run(pages: dict[str, Made], page: Page):
    page.resize(1280)
    page.open(pages["hostile"].path)
    assert page.ask("document.querySelector('h1').textContent") == HOSTILE_NETWORK.experiment
    cells = page.ask(
        "[...document.querySelectorAll('#layers tbody tr td:first-child')].map((each) => each.textContent)"
    )
    names = [f"{at} {visible(name)}" for at, name in enumerate(HOSTILE_NETWORK.layers)]
    assert cells[: len(names)] == names
    text = page.ask("document.querySelector('#chart-confusion svg').textContent")
    assert "{{ 7 * 7 }}" in text and "</script><b>" in text
    assert page.ask("document.querySelectorAll('img, iframe, object, link, svg script').length") == 0


def test_a_pointer_over_a_mark_shows_its_values(pages: dict[str, Made], page: Page):
    page.resize(1280)
    page.open(pages["fits"].path)
    where = page.ask(
        "(() => { const bar = document.querySelector('#chart-classes .mark-rect path');"
        "bar.scrollIntoView({block: 'center'}); const box = bar.getBoundingClientRect();"
        "return [box.x + box.width / 2, box.y + box.height / 2]; })()"
    )
    page.call("Input.dispatchMouseEvent", type="mouseMoved", x=where[0], y=where[1])
    shown = page.ask("new Promise((done) => setTimeout(() => done(document.getElementById('tip').innerText), 100))")
    assert shown.split() == ["class", "down", "accuracy", "80.00%", "right", "8", "examples", "10"]


def test_a_column_sorts_its_table(pages: dict[str, Made], page: Page):
    page.resize(1280)
    page.open(pages["fits"].path)
    click = (
        "[...document.querySelectorAll('#layers th button')].find((each) => each.textContent === 'weights B').click()"
    )
    first = "document.querySelector('#layers tbody tr td').textContent"
    assert page.ask(first) == "0 stem"
    page.ask(click)
    assert page.ask(first) == "2 classifier"
    page.ask(click)
    assert page.ask(first) == "0 stem"


def test_every_chart_gives_its_files(pages: dict[str, Made], page: Page):
    page.resize(1280)
    page.open(pages["fits"].path)
    page.ask(
        "window.saved = {}; window.blobs = []; URL.createObjectURL = (blob) => `blob:${blobs.push(blob)}`;"
        "HTMLAnchorElement.prototype.click = function () { saved[this.download] = this.href; }"
    )
    page.ask("document.querySelectorAll('[data-files=classes] button').forEach((each) => each.click())")
    page.ask("new Promise((done) => setTimeout(done, 500))")
    kinds = page.ask("Object.fromEntries(Object.entries(saved).map(([name, url]) => [name, url.slice(0, 14)]))")
    assert set(kinds) == {"classes.csv", "classes.svg", "classes.png"} and kinds["classes.png"] == "data:image/png"
    csv_file, svg_file = page.ask("Promise.all(blobs.map((blob) => blob.text()))")
    assert csv_file.splitlines()[:2] == ["class,accuracy,right,examples", "down,0.8,8,10"]
    assert svg_file.startswith("<svg") and svg_file.count('role="graphics-symbol"') >= 3


def test_a_page_tells_its_run_and_how_to_repeat_it(pages: dict[str, Made], page: Page):
    page.resize(1280)
    page.open(pages["run"].path)
    assert page.ask("document.querySelector('#provenance pre').textContent") == RECORD["command"]
    shown = page.ask("document.querySelector('#provenance').innerText")
    for part in (RECORD["id"], "0123abc, with changes that are not committed", "2026-11-17T10:10:10", "abc"):
        assert part in shown
    assert page.ask("window.hacked") is None
    text = pages["run"].path.read_text()
    assert with_run(text, {"id": "another"}) == text  # a run's page stays what it is


def test_the_fronts_of_many_runs_have_spreads_budgets_and_the_papers_points(pages: dict[str, Made], page: Page):
    page.resize(1280)
    page.open(pages["pareto"].path)
    drawing = page.ask("document.querySelector('#chart-pareto_size_bytes svg').innerHTML")
    assert len(re.findall(r"mark-symbol role-mark", drawing)) == 2  # runs, and theirs
    symbols = "[...document.querySelectorAll('#chart-pareto_size_bytes .mark-symbol.role-mark')]"
    count = page.ask(f"{symbols}.map((group) => group.children.length)")
    assert count == [4, 2]
    assert "pruned to KWS-S (the paper's)" in drawing
    assert len(re.findall(r"mark-rule role-mark", drawing)) == 3  # budget, and spreads of both axes
    assert page.ask("document.querySelectorAll('#runs tbody tr').length") == 40


def test_two_hundred_layers_and_a_million_samples_open_quickly(tmp_path: Path, library: str, page: Page):
    network = Network(layers=tuple(f"block_{n}" for n in range(200)), samples=50_000, windows=10, spike_w=7.5)
    made = make_report(tmp_path / "big", network, library=library)
    assert made.page.stat().st_size < 4_000_000
    charts = {chart["name"]: chart for chart in json.loads(_script(made.page, "chart-data"))}
    trace = charts["power_nucleo_f767zi"]
    assert max(row[trace["columns"].index("high")] or 0 for row in trace["rows"]) == 7500
    page.problems.clear()
    page.resize(1280)
    page.call("Performance.disable")
    page.call("Performance.enable", timeDomain="threadTicks")  # processor time: other work on the machine is not ours
    before = _task_s(page)
    page.open(made.page)
    assert _task_s(page) - before < 2.0 and page.problems == []
    drawn = "document.querySelector('#chart-power_nucleo_f767zi .mark-area path').getBoundingClientRect()"
    line = drawn.replace("mark-area", "mark-line")
    assert page.ask(f"{line}.top - {drawn}.top") > 100  # the mean of its bin hides the spike, the band shows it


def _task_s(page: Page) -> float:
    metrics = {each["name"]: each["value"] for each in page.call("Performance.getMetrics")["metrics"]}
    return float(metrics["TaskDuration"])


class _Scripts(HTMLParser):
    def __init__(self, wanted: str) -> None:
        super().__init__()
        self.wanted, self.text, self._is_inside = wanted, "", False

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self._is_inside = tag == "script" and dict(attributes).get("id") == self.wanted

    def handle_data(self, data: str) -> None:
        self.text += data if self._is_inside else ""


def _script(path: Path, wanted: str) -> str:
    parser = _Scripts(wanted)
    parser.feed(path.read_text())
    return parser.text
