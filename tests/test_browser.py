"""The pages in HTML in a real browser: what a reader sees, reaches by keyboard, and what hostile text cannot do."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser import missing, opened
from conftest import Project
from test_html_report import STEPS, TRAIN, hostile, page_of
from test_verify_page import hostile_record, verified

from perflint.rule.registry import all_rules
from perflint.verify.html import page as verify_page

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")

PHONE = {"width": 390, "height": 800}


@pytest.fixture
def report(project: Project, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The report of a small project, as a file."""
    project.write({"src/train.py": TRAIN, "src/steps.py": STEPS})
    path = project.root / "report.html"
    path.write_text(page_of(project, monkeypatch), encoding="utf-8")
    return path


def test_a_report_is_whole_without_a_network(report: Path) -> None:
    with opened(report) as (page, log):
        assert page.locator(".flaw").count() > 3
        assert page.locator("svg rect.wait").first.is_visible()
        assert log.addresses == [report.resolve().as_uri()]
        assert log.said == []


def test_what_a_search_leaves(report: Path) -> None:
    with opened(report) as (page, _):
        every = page.locator(".flaw:visible").count()
        page.keyboard.press("/")
        page.keyboard.type("fix:safe blocking-h2d")
        left = page.locator(".flaw:visible")
        assert 0 < left.count() < every
        assert all("blocking-h2d-in-loop" in text for text in left.all_text_contents())
        assert page.locator("#shown").text_content() == f"{left.count()} of {every} shown"
        page.keyboard.press("Escape")
        assert page.locator(".flaw:visible").count() == every


def test_a_row_of_the_overview_shows_its_findings(report: Path) -> None:
    with opened(report) as (page, _):
        page.locator("#overview a", has_text="item-every-step").click()
        shown = page.locator(".flaw:visible").all_text_contents()
        assert shown
        assert all("item-every-step" in text for text in shown)
        page.locator(".flaw:visible h4 a").first.click()
        assert page.url.endswith("#rule-item-every-step")
        assert page.locator(".flaw:visible").count() == len(shown)
        page.locator("#overview a", has_text="src/").click()
        assert page.locator(".flaw:visible").count() == page.locator(".flaw").count()


def test_a_link_to_a_finding_that_the_search_hides_shows_it(report: Path) -> None:
    with opened(report) as (page, _):
        page.locator("#filter").fill("dataloader-no-pin-memory")
        page.locator(".loop summary").first.click()
        link = page.locator(".loop td a", has_text="blocking-h2d-in-loop").first
        target = page.locator(str(link.get_attribute("href")))
        assert not target.is_visible()
        link.click()
        assert target.is_visible()


def test_changes_open_by_keyboard(report: Path) -> None:
    with opened(report) as (page, _):
        change = page.locator(".flaw details:has(.added)").first
        change.locator("summary").focus()
        page.keyboard.press("Enter")
        assert change.locator(".added").first.is_visible()
        page.locator("#open").focus()
        page.keyboard.press("Space")
        assert page.locator(".flaw details:not([open])").count() == 0


def test_the_first_stop_of_the_keyboard_skips_to_the_findings(report: Path) -> None:
    with opened(report) as (page, _):
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        assert page.url.endswith("#findings")


def test_all_is_there_without_scripts(report: Path) -> None:
    with opened(report, java_script_enabled=False) as (page, _):
        assert page.locator(".flaw").last.is_visible()
        assert not page.locator(".filter").is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_light_and_dark(report: Path, scheme: str) -> None:
    """Contrast by the formula of WCAG 2: 4.5 is what it asks for."""
    contrast = """() => {
        const light = (colour) => {
            const part = colour.match(/[\\d.]+/g).slice(0, 3).map((value) => value / 255);
            const [r, g, b] = part.map((value) => value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const behind = (element) => {
            for (let at = element; at; at = at.parentElement) {
                const colour = getComputedStyle(at).backgroundColor;
                if (!colour.endsWith(", 0)") && colour !== "transparent") return colour;
            }
            return "rgb(255, 255, 255)";
        };
        for (const details of document.querySelectorAll("details")) details.open = true;
        const found = [];
        for (const element of document.querySelectorAll("h1, h3, h4, p, td, th, a, code, pre span, .badge, .value, summary")) {
            if (!element.textContent.trim()) continue;
            const [a, b] = [light(getComputedStyle(element).color), light(behind(element))];
            const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
            if (ratio < 4.5) found.push(`${element.tagName}.${element.className}: ${ratio.toFixed(2)}`);
        }
        return [...new Set(found)];
    }"""
    with opened(report, color_scheme=scheme) as (page, _):
        assert page.evaluate(contrast) == []
        background = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
        assert (background == "rgb(255, 255, 255)") == (scheme == "light")


def test_a_phone_shows_it_without_scrolling_sideways(report: Path) -> None:
    with opened(report, viewport=PHONE) as (page, _):
        assert page.evaluate("() => document.documentElement.scrollWidth") <= PHONE["width"]


def test_hostile_names_and_code_run_nothing(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    path = project.root / "report.html"
    path.write_text(page_of(hostile(project), monkeypatch), encoding="utf-8")
    with opened(path) as (page, log):
        assert page.title().startswith("perflint: ")
        for link in page.locator("#overview a").all():
            link.click()
        page.locator("#open").click()
        assert log.said == []
        assert log.addresses[0].endswith("report.html")
        assert len(log.addresses) == 1
        assert page.locator("img, b").count() == 0


def test_a_script_that_came_into_the_page_would_not_run(report: Path) -> None:
    text = report.read_text(encoding="utf-8")
    report.write_text(text.replace("<main>", "<main><script>document.title = 'broken'</script><img src=x onerror=alert(1)>", 1))
    with opened(report) as (page, log):
        assert page.title() != "broken"
        assert len(log.said) == 3, "the policy of the page refuses the script, the picture and its handler"
        assert not [said for said in log.said if said.startswith("dialog")]


def test_the_page_of_verify(tmp_path: Path) -> None:
    path = tmp_path / "verify.html"
    path.write_text(verify_page(verified(), all_rules()), encoding="utf-8")
    with opened(path, viewport=PHONE) as (page, log):
        assert page.locator("svg").count() == 5
        assert page.evaluate("() => document.documentElement.scrollWidth") <= PHONE["width"]
        page.locator("td.name a").first.click()
        assert page.url.endswith("#rule-item-every-step")
        assert page.locator(":target").text_content() is not None
        assert log.said == []


def test_a_hostile_record_runs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "verify.html"
    path.write_text(verify_page(hostile_record()), encoding="utf-8")
    with opened(path) as (page, log):
        assert page.locator("script, img").count() == 0
        assert log.said == []
        assert len(log.addresses) == 1
