"""The report in a real browser: a headless Chromium clicks, filters, plays, changes its colours and its width."""

from importlib import resources

import numpy as np
import pytest

from emu.study.analysis import stats
from emu.study.report.page import write_report
from study.report.chromium import Browser, find_chromium
from study.report.memories import invent_snapshot
from study.synthetic import make_study

CHROMIUM = find_chromium()
pytestmark = pytest.mark.skipif(
    CHROMIUM is None,
    reason="no Chromium here: install it (Debian: apt install chromium) to test the report in a browser",
)
STEPS = (30_000, 60_000, 90_000)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = make_study(tmp_path_factory.mktemp("browser") / "study", envs=("gridworld", "smac/3m"), seeds=5)
    for env in ("gridworld", "smac/3m"):
        for step in STEPS:
            invent_snapshot(folder / f"runs/{env.replace('/', '-')}/emu_qplex/seed0", env, step)
    return write_report(folder)


@pytest.fixture(scope="module")
def chromium():
    assert CHROMIUM
    browser = Browser(CHROMIUM)
    yield browser
    browser.close()


@pytest.fixture
def browser(chromium, page):
    """The page, freshly opened on a desk; afterwards: no complaint in the console and nothing asked of the network."""
    chromium.complaints.clear()
    chromium.requests.clear()
    chromium.prefer("light")
    chromium.resize(1200, 900)
    chromium.open(page)
    yield chromium
    chromium.frame()
    assert chromium.complaints == []
    assert {address.split(":")[0] for address in chromium.requests} <= {"file", "data"}


def text(browser, selector):
    return browser.run(f"document.querySelector({selector!r}).textContent")


def details(browser):
    """Names and values of what was clicked."""
    pairs = "[...document.querySelectorAll('#details dt')].map(e => [e.textContent, e.nextSibling.textContent])"
    return dict(browser.run(pairs))


def place(browser, kind, index):
    """Where a memory or a state of the path is in the window."""
    browser.run("document.getElementById('scatter').scrollIntoView({block: 'center', behavior: 'instant'})")
    browser.frame()
    return browser.run(
        "(() => { const b = document.getElementById('scatter').getBoundingClientRect();"
        f" const [x, y] = emuReport.explorer.scatter.placeOf({{kind: {kind!r}, index: {index}}});"
        " return [b.x + x, b.y + y] })()"
    )


def middle(browser):
    """The middle of the map in the window."""
    box = "(b => [b.x + b.width / 2, b.y + b.height / 2])(document.getElementById('scatter').getBoundingClientRect())"
    return browser.run(box)


def colours(browser, selector):
    """How many different colours a canvas shows, 0 while it is empty."""
    return browser.run(
        f"(() => {{ const c = document.querySelector({selector!r});"
        " const d = new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer);"
        " return new Set(d).size })()"
    )


def picture(browser, selector):
    return browser.run(f"document.querySelector({selector!r}).toDataURL()")


def shown(browser):
    return int(text(browser, "#shown").split(" of ")[0].replace(",", ""))


def test_a_clicked_memory_shows_its_values_and_its_drawing(browser):
    assert "Nothing chosen" in text(browser, "#details")
    browser.press("#episode")  # the path would lie in the way
    browser.click(*place(browser, "memory", 59))
    values = details(browser)
    assert values["highest return"] == "10" and values["visits"] == "60" and values["desirable"] == "no"
    assert values["time in the episode"] == "11" and values["desirable visits"] == "0"
    assert colours(browser, "#details canvas") > 5
    grid = picture(browser, "#details canvas")
    browser.set("#memory-run", "1")
    assert "Nothing chosen" in text(browser, "#details")
    browser.click(*place(browser, "memory", 57))
    assert details(browser)["desirable"] == "yes"
    assert text(browser, "#details figcaption") == "M marine"
    assert colours(browser, "#details canvas") > 5 and picture(browser, "#details canvas") != grid
    browser.click(*[x + 3 for x in place(browser, "memory", 57)])
    assert details(browser)["visits"] == "58"


def test_a_click_beside_everything_chooses_nothing(browser):
    browser.click(*place(browser, "memory", 59))
    browser.run("emuReport.explorer.choose({kind: 'memory', index: 3})")
    box = browser.run(
        "(() => { const b = document.getElementById('scatter').getBoundingClientRect(); return [b.x, b.y] })()"
    )
    browser.click(box[0] + 4, box[1] + 4)
    assert "Nothing chosen" in text(browser, "#details")


def test_the_slider_goes_through_training(browser):
    assert text(browser, "#moment-text") == "step 90,000"
    late = picture(browser, "#scatter")
    browser.set("#moment", "0")
    assert text(browser, "#moment-text") == "step 30,000" and picture(browser, "#scatter") != late
    browser.press("#play")
    browser.until("document.getElementById('moment-text').textContent === 'step 90,000'")
    browser.until("document.getElementById('play').textContent === '▶'")


def test_filters_leave_what_passes(browser):
    assert shown(browser) == 60
    browser.set("#filter-desirable", "yes")
    assert shown(browser) == 20
    browser.set("#filter-visits", "31")  # rows 30 ... 59, of which 30, 33, ... 57
    assert shown(browser) == 10
    browser.set("#filter-desirable", "no")
    assert shown(browser) == 20
    browser.press("#filter-reset")
    browser.set("#filter-low", "100")  # half of 0 ... 10; returns are 10 k / 59
    assert shown(browser) == 30
    browser.set("#filter-time", "0")  # every twelfth
    assert shown(browser) == 2  # rows 36 and 48
    browser.press("#filter-reset")
    assert shown(browser) == 60


def test_a_chosen_memory_that_is_filtered_away_is_no_longer_chosen(browser):
    browser.run("emuReport.explorer.choose({kind: 'memory', index: 1})")
    assert details(browser)["desirable"] == "no"
    browser.set("#filter-desirable", "yes")
    assert "Nothing chosen" in text(browser, "#details")


def test_colours_change_with_the_value_chosen(browser):
    pictures = set()
    for kind in ("best_return", "desirable", "visits", "time"):
        browser.set("#colour", kind)
        pictures.add(picture(browser, "#scatter"))
    assert len(pictures) == 4
    browser.set("#colour", "desirable")
    assert "not desirable" in text(browser, "#scale")


def test_the_episode_is_walked_along_and_its_states_can_be_clicked(browser):
    browser.set("#episode-step", "2")
    assert "State 2" in text(browser, "#details h3")
    assert details(browser)["it is desirable"] == "yes" and details(browser)["collected so far"] == "2.5"
    assert colours(browser, "#details canvas") > 5
    browser.click(*place(browser, "path", 3))
    assert "State 3" in text(browser, "#details h3") and details(browser)["recalls a memory"] == "no"
    with_path = picture(browser, "#scatter")
    browser.press("#episode")
    assert picture(browser, "#scatter") != with_path and "Nothing chosen" in text(browser, "#details")


def test_the_map_is_zoomed_and_moved_and_still_clicked_right(browser):
    browser.press("#episode")
    x, y = place(browser, "memory", 40)
    browser.wheel(x, y, -300)
    assert place(browser, "memory", 40) == pytest.approx([x, y], abs=2)  # the place under the pointer stays
    browser.press("#zoom-in")
    assert browser.run("emuReport.explorer.scatter.view.zoom") > 2
    before, (hold, height) = place(browser, "memory", 40), middle(browser)
    for kind, dx in (("mousePressed", 0), ("mouseMoved", -90), ("mouseReleased", -90)):
        browser.call("Input.dispatchMouseEvent", type=kind, x=hold + dx, y=height, button="left", clickCount=1)
    browser.frame()
    assert place(browser, "memory", 40) == pytest.approx([before[0] - 90, before[1]], abs=1)
    assert "Nothing chosen" in text(browser, "#details")  # a drag is no click
    browser.click(*place(browser, "memory", 40))
    assert details(browser)["visits"] == "41"
    browser.press("#zoom-reset")
    assert browser.run("emuReport.explorer.scatter.view") == {"zoom": 1, "x": 0, "y": 0}


def test_curves_answer_to_hover_legend_metric_and_seeds(browser):
    browser.run("document.getElementById('curves').scrollIntoView({behavior: 'instant'})")
    box = browser.run("(() => { const b = document.querySelector('.panel canvas').getBoundingClientRect();"
                      " return [b.x, b.y, b.width, b.height] })()")  # fmt: skip
    browser.move(box[0] + box[2] - 14, box[1] + box[3] / 2)
    assert "step 100K" in text(browser, ".panel .tip") and "EMU (QPLEX): 1" in text(browser, ".panel .tip")
    browser.move(5, 5)
    assert browser.run("document.querySelector('.panel .tip').hidden")
    pictures = [picture(browser, ".panel canvas")]
    for step in (
        lambda: browser.press("#legend button:nth-child(2)"),
        lambda: browser.press("#seeds"),
        lambda: browser.set("#band", "none"),
        lambda: browser.press("#training"),
        lambda: browser.set("#metric", "memory_size"),
    ):
        step()
        pictures.append(picture(browser, ".panel canvas"))
    assert len(set(pictures)) == 6
    assert browser.run("document.querySelector('#legend button:nth-child(2)').ariaPressed") == "false"
    assert browser.run("document.querySelectorAll('.panel').length") == 2


def test_the_band_is_the_interval_that_figures_and_tables_have(browser):
    seeds = np.random.default_rng(5).normal(size=(6, 4))
    script = resources.files("emu.study.report").joinpath("template/chart.js").read_text()
    call = f"return intervalOf({{columns: {seeds.tolist()}, grid: [0, 1, 2, 3]}})"
    found = browser.run(f"(() => {{ {script}\n{call} }})()")
    for step in range(4):
        wanted = stats.interval([seeds[:, step]], stats.mean)
        width = wanted.high - wanted.low
        assert found["low"][step] == pytest.approx(wanted.low, abs=0.12 * width)  # 500 resamples beside 5,000
        assert found["high"][step] == pytest.approx(wanted.high, abs=0.12 * width)


def test_light_and_dark_follow_the_system_until_the_button_is_pressed(browser):
    name = "document.documentElement.dataset.theme"
    paper = "getComputedStyle(document.body).backgroundColor"
    assert browser.run(name) == "light"
    light, map_light = browser.run(paper), picture(browser, "#scatter")
    browser.prefer("dark")
    assert browser.run(name) == "dark" and browser.run(paper) != light
    assert picture(browser, "#scatter") != map_light
    browser.press("#theme")
    assert browser.run(name) == "light" and browser.run(paper) == light
    browser.prefer("light")
    browser.press("#theme")
    browser.prefer("dark")
    browser.prefer("light")
    assert browser.run(name) == "dark"  # what was chosen stays


def test_a_phone_shows_everything_within_its_width_and_hears_taps(browser, page):
    browser.resize(360, 740, phone=True)
    browser.open(page)
    assert browser.run("document.documentElement.scrollWidth") <= 360
    everything = "[...document.querySelectorAll('canvas, select, fieldset, article')]"
    assert browser.run(f"{everything}.filter(e => e.getBoundingClientRect().right > 361).length") == 0
    browser.run("document.getElementById('episode').click()")
    browser.tap(*place(browser, "memory", 59))
    assert details(browser)["visits"] == "60" and colours(browser, "#details canvas") > 5


def test_a_page_without_any_memory_says_so(chromium, tmp_path):
    chromium.complaints.clear()
    chromium.open(write_report(make_study(tmp_path / "study", labels={"qmix": ("qmix", {})}, seeds=1, memory=False)))
    assert chromium.run("document.getElementById('explorer').hidden && !document.getElementById('no-memory').hidden")
    assert chromium.complaints == []
