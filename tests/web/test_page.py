"""The page in a real browser: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
import threading
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from playwright.async_api import Browser, Page, async_playwright, expect

import aflow as af
import aflow.web
from aflow.web import WebServer
from scripts.pictures.chromium import FLAGS, NAMES

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

TOKEN = "secret-of-the-tests"
HOSTILE = "<script>document.title='hacked'</script><img src=x onerror=\"document.title='hacked'\">"

#: Longer than any machine needs for what the page shows in the end.
PATIENCE_MS = 60_000

#: Some records per second.
RATE = re.compile(r"[1-9].*/s")


@dataclass
class Site:
    """A browser, and a server whose jobs a test chooses."""

    browser: Browser
    server: WebServer
    jobs: list[af.Job] = field(default_factory=list[af.Job])

    @asynccontextmanager
    async def page(
        self,
        *jobs: af.Job,
        url: str | None = None,
        width: int = 1280,
        dark: bool = False,
        faults: str | None = None,
    ) -> AsyncGenerator[Page]:
        """Open the page with ``jobs``. Fails if the browser reports an error that does not match ``faults``."""
        self.jobs[:] = jobs
        context = await self.browser.new_context(
            viewport={"width": width, "height": 800}, color_scheme="dark" if dark else "light"
        )
        context.set_default_timeout(PATIENCE_MS)
        expect.set_options(timeout=PATIENCE_MS)
        page = await context.new_page()
        reported: list[str] = []
        page.on("pageerror", lambda error: reported.append(str(error)))
        page.on("console", lambda one: reported.append(one.text) if one.type == "error" else None)
        try:
            await page.goto(url or self.server.url)
            yield page
        finally:
            await context.close()
        assert [one for one in reported if not (faults and re.search(faults, one))] == []


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(require: Callable[[str, str], None]) -> AsyncGenerator[Site]:
    program = next((name for name in NAMES if shutil.which(name)), NAMES[0])
    require(program, "apt-get install chromium")
    jobs: list[af.Job] = []
    # One thread for all tests, started now: each test checks that it leaves none.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    await asyncio.to_thread(int)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=shutil.which(program), args=FLAGS
        )
        async with aflow.web.serve(lambda: jobs, token=TOKEN) as server:
            yield Site(browser, server, jobs)
        await browser.close()


@dataclass
class Orders:
    """A job that counts orders while ``feed`` sends them."""

    source: af.PushSource[str]
    job: af.Job
    feeding: asyncio.Task[None] | None = None

    async def feed(self) -> None:
        while True:
            await self.source.send_many(["a", "b", "c"])
            await asyncio.sleep(0.05)


def orders_flow(source: af.Source[str], name: str = "orders", step: str = "check") -> af.Flow:
    def check(order: str) -> str:
        if order.startswith("fail"):
            raise ValueError(f"no such product: {order}")
        return order

    flow = af.Flow(name)
    checked = flow.source(source, name="orders").map(check, name=step)
    keyed = checked.key_by(lambda order: order, name="product")
    keyed.fold(int, lambda total, _: total + 1, name="total").to(
        af.CallbackSink[int](lambda _: None), name="out"
    )
    return flow


@asynccontextmanager
async def orders(
    *, name: str = "orders", step: str = "check", feeding: bool = True, **start: Any
) -> AsyncGenerator[Orders]:
    source = af.PushSource[str]()
    async with orders_flow(source, name, step).start(**start) as job:
        running = Orders(source, job)
        async with asyncio.TaskGroup() as group:
            if feeding:
                running.feeding = group.create_task(running.feed())
            try:
                yield running
            finally:
                if running.feeding is not None:
                    running.feeding.cancel()


async def text(page: Page, selector: str) -> str:
    return str(await page.locator(selector).first.text_content())


async def shows(page: Page, selector: str, content: str | re.Pattern[str]) -> None:
    """Wait until the first element has this text."""
    await expect(page.locator(selector).first).to_have_text(content)


async def fits(page: Page) -> bool:
    """Return True if the page cannot be scrolled sideways."""
    return bool(await page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


async def test_the_page_shows_the_graph_and_the_changing_numbers_of_a_job(site: Site) -> None:
    async with orders() as running, site.page(running.job) as page:
        await shows(page, "#figures dd", RATE)
        rows = await page.locator("#step-rows th button").all_text_contents()
        first = await text(page, "#step-rows tr:first-child td:nth-child(3)")
        drawn = await page.evaluate(
            """() => [...document.querySelectorAll('#graph canvas')].some((canvas) => canvas.width > 0
                && canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.some((v) => v > 0))"""
        )
        await page.locator("#step-rows button", has_text="total").click()
        before = await text(page, "#panel dd")
        await expect(page.locator("#panel dd").first).not_to_have_text(before)
        await page.get_by_label("Steps that only route").check()
        all_rows = await page.locator("#step-rows th button").all_text_contents()

        assert rows == ["orders", "check", "total", "out"]
        assert all_rows == ["orders", "check", "product", "total", "out"]
        assert drawn
        assert re.fullmatch(r"[\d,.]+", first)
        assert await text(page, "#status") == "running"
        assert await text(page, "#connection") == "live"


async def test_the_panel_of_a_step_is_opened_and_closed_by_keyboard(site: Site) -> None:
    async with orders() as running, site.page(running.job) as page:
        await page.locator("#step-rows button").first.wait_for()
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")  # skips to the steps
        await page.keyboard.press("Tab")
        await page.keyboard.press("Tab")
        outline = await page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        await page.keyboard.press("Enter")
        title = page.locator("#panel-title")

        assert outline == "solid"
        assert await title.text_content() == "check"
        assert await page.evaluate("document.activeElement.id") == "panel-title"
        await page.keyboard.press("Escape")
        assert await page.locator("#panel").is_hidden()
        assert await page.evaluate("document.activeElement.textContent") == "check"


async def test_checkpoints_appear_with_duration_and_size(site: Site, tmp_path: Path) -> None:
    checkpointing = af.Checkpointing(storage=tmp_path / "jobs", every=None)
    async with orders(checkpointing=checkpointing) as running, site.page(running.job) as page:
        await shows(page, "#no-checkpoints", "None has ended yet.")
        await running.job.checkpoint()
        await page.locator("#checkpoint-rows tr").first.wait_for()
        cells = await page.locator("#checkpoint-rows td").all_text_contents()

    assert cells[0] == "1"
    assert cells[1:3] == ["completed", "checkpoint"]
    assert re.fullmatch(r"[\d.]+ m?s", cells[4])
    assert re.fullmatch(r"[\d.]+ k?B", cells[5])


async def test_a_failure_shows_the_step_the_record_and_the_line(site: Site) -> None:
    restart = af.restart.FixedDelay(1, timedelta(seconds=30))
    source = af.PushSource[str]()
    job = orders_flow(source).start(restart=restart)
    async with site.page(job) as page, job:
        await source.send(f"fail {HOSTILE}")
        await shows(page, "#status", "restarting")
        banner = await text(page, "#failure")
        listed = await text(page, "#exceptions")
        title = await page.title()
        await job.cancel()

    for shown in (banner, listed):
        assert "Stepcheck" in shown
        assert "Record'fail <script>" in shown
        assert "ValueError: no such product" in shown
        assert 'raise ValueError(f"no such product: {order}")' in shown
        assert "test_page.py:" in shown
    assert title == "orders · aflow"


async def test_a_blocked_event_loop_is_shown_with_the_step_and_the_line(site: Site) -> None:
    reported = threading.Event()

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "step 'load'" in record.getMessage():
                reported.set()

    def load(order: str) -> str:
        reported.wait(PATIENCE_MS / 1000)
        return order

    listener = Listener(logging.WARNING)

    source = af.PushSource[str]()
    flow = af.Flow("blocking")
    loaded = flow.source(source, name="orders").map(load, name="load")
    loaded.to(af.CallbackSink[str](lambda _: None), name="out")
    # A busy machine may block the loop for a shorter time.
    options = af.Options(watchdog=timedelta(milliseconds=400))
    logging.getLogger().addHandler(listener)
    try:
        async with flow.start(options=options) as job, site.page(job) as page:
            await shows(page, "#no-blocked", re.compile("longer than 400 ms"))
            await source.send("a")
            await page.locator("#blocked li").first.wait_for()
            shown = await text(page, "#blocked li")
    finally:
        logging.getLogger().removeHandler(listener)

    assert "in step load" in shown
    assert "reported.wait(PATIENCE_MS / 1000)" in shown
    assert "test_page.py:" in shown


async def test_a_savepoint_needs_the_right_token(site: Site, tmp_path: Path) -> None:
    checkpointing = af.Checkpointing(storage=tmp_path / "jobs", every=None)
    async with (
        orders(checkpointing=checkpointing) as running,
        site.page(running.job, faults="401|409") as page,
    ):
        await page.get_by_role("button", name="Savepoint…").click()
        await page.get_by_label("New folder", exact=True).fill(str(tmp_path / "monday"))
        dialog = page.locator("#savepoint-dialog")
        token = dialog.get_by_label("Token for writes")
        await token.fill("wrong")
        await token.press("Enter")
        await dialog.get_by_text("The token is wrong.").wait_for()
        refused = (tmp_path / "monday").exists()
        await token.fill(TOKEN)
        await token.press("Enter")
        await dialog.get_by_text("Written: ").wait_for()
        await token.press("Enter")
        await dialog.get_by_text("already: a savepoint needs").wait_for()

    assert not refused
    assert (tmp_path / "monday").is_dir()


async def test_a_job_is_stopped_from_the_page_and_its_last_state_remains(site: Site) -> None:
    async with orders(feeding=False) as running, site.page(running.job) as page:
        await page.get_by_role("button", name="Stop…").click()
        await page.locator("#stop-token").fill(TOKEN)
        await page.get_by_role("button", name="Stop the job").click()
        await page.get_by_text("Accepted").wait_for()
        await running.job.wait()
        await shows(page, "#connection", "ended")

        assert await text(page, "#status") == "finished"
        assert await page.locator("#stop-open").is_disabled()
        assert (
            await page.locator("#savepoint-open").get_attribute("title") == "The job is finished."
        )


async def test_names_and_records_with_markup_are_shown_as_text(site: Site) -> None:
    options = af.Options(samples=af.metrics.RecordSamples())
    async with (
        orders(name=HOSTILE, step=HOSTILE, feeding=False, options=options) as running,
        site.page(running.job) as page,
    ):
        await running.source.send(HOSTILE)
        await page.locator("#step-rows button", has_text="<script>").click()
        sample = page.locator(".samples code").first
        await sample.wait_for()

        assert await sample.text_content() == repr(HOSTILE)
        assert await text(page, "#job-name") == HOSTILE
        assert await text(page, "#panel-title") == HOSTILE
        assert await page.title() == f"{HOSTILE} · aflow"
        assert await page.locator("main script, main img, aside img").count() == 0


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_a_narrow_page_has_no_horizontal_scrolling(site: Site, dark: bool) -> None:
    async with orders() as running, site.page(running.job, width=400, dark=dark) as page:
        await shows(page, "#figures dd", RATE)
        closed = await fits(page)
        await page.locator("#step-rows button").nth(1).click()
        opened = await fits(page)
        panel = await page.locator("#panel").bounding_box()
        await page.get_by_label("Close the panel").click()
        await page.get_by_role("button", name="Stop…").click()
        dialog = await page.locator("#stop-dialog").bounding_box()
        background = await page.evaluate("getComputedStyle(document.body).backgroundColor")

    assert closed
    assert opened
    for box in (panel, dialog):
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 400
    darkness = max(int(part) for part in re.findall(r"\d+", background))
    assert (darkness < 60) is dark


async def test_a_server_that_stops_is_shown_and_the_page_connects_again(site: Site) -> None:
    async with orders() as running, AsyncExitStack() as stack:
        server = await stack.enter_async_context(aflow.web.serve(running.job))
        async with site.page(url=server.url, faults="ERR_|503") as page:
            await shows(page, "#connection", "live")
            await stack.pop_all().aclose()
            await shows(page, "#connection", re.compile("^disconnected"))
            kept = await text(page, "#status")
            await stack.enter_async_context(aflow.web.serve(running.job, port=server.port))
            await shows(page, "#connection", "live")

    assert kept == "running"


async def test_the_page_asks_for_the_token_of_reads(site: Site) -> None:
    async with (
        orders() as running,
        aflow.web.serve(running.job, read_token="read-me") as server,
        site.page(url=server.url, faults="401") as page,
    ):
        field = page.get_by_label("Token for reads")
        await field.fill("wrong")
        await field.press("Enter")
        await page.get_by_text("The token is wrong.").wait_for()
        await field.fill("read-me")
        await field.press("Enter")
        await page.locator("#step-rows button").first.wait_for()

        assert await field.is_hidden()
        assert await page.locator("#stop-open").is_disabled()
        title = await page.locator("#stop-open").get_attribute("title")
        assert title == "Writes are off: the application was started without a token."


async def test_a_page_waits_for_a_job_and_offers_a_choice_of_several(site: Site) -> None:
    async with site.page() as page:
        await page.get_by_text("No job is there.").wait_for()
        async with orders(name="first/1") as first, orders(name="second") as second:
            site.jobs[:] = [first.job, second.job]
            await page.get_by_label("Job", exact=True).select_option("second")
            await shows(page, "#job-name", "second")
            await page.get_by_label("Job", exact=True).select_option("first/1")
            await shows(page, "#connection", "live")

            assert await text(page, "#job-name") == "first/1"
            assert await page.evaluate("location.hash") == "#job=first%2F1"


async def test_the_page_works_below_a_prefix(site: Site) -> None:
    async with orders() as running:
        host = web.Application()
        host.add_subapp("/internal/aflow/", aflow.web.aiohttp_app(running.job))
        runner = web.AppRunner(host)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            address, port = runner.addresses[0][:2]
            async with site.page(url=f"http://{address}:{port}/internal/aflow") as page:
                await page.locator("#step-rows button").first.wait_for()
                at = page.url
        finally:
            await runner.cleanup()

    assert at.startswith(f"http://{address}:{port}/internal/aflow/")


#: Feeds a model of the page with snapshots of a job whose source is read through a ``key_by``.
MODEL = """async () => {
    const { JobModel } = await import(new URL("static/model.mjs", document.baseURI));
    const step = (name, operation, kind, task) => ({ name, operation, kind, task, parallelism: 1 });
    const edge = (from, to, side) => ({ from, to, side, role: null, chained: false });
    const model = new JobModel();
    model.describe({
        graph: {
            tasks: [{ index: 0, name: "t", parallelism: 2 }],
            steps: [step("in", "source", "source", 0), step("key", "key_by", "step", 0), step("out", "to", "sink", 0)],
            edges: [edge("in", "key", "late"), edge("key", "out", null)],
        },
        checkpoints: [],
    });
    const snapshot = (steady, records, restarts, busy) => ({
        at: steady * 1000, steady, status: "running", checkpoints: [],
        metrics: {
            restarts, latencies: [],
            steps: Object.fromEntries(["in", "key", "out"].map((name) => [name, {
                records_in: records, records_out: records, sides: { late: records / 2 }, lag_ms: null, calls: null,
            }])),
            tasks: [0, 1].map((subtask) => ({
                name: "t", subtask, queued_records: 3, busy_s: busy, idle_s: 0, backpressured_s: 0, calling_s: 0,
                aligning_s: 0,
            })),
        },
    });
    const rates = [];
    const take = (...values) => {
        model.update(snapshot(...values));
        rates.push([model.steps.get("in").outRate, model.tasks.get(0).shares.busy]);
    };
    take(10, 100, 0, 1);
    take(12, 300, 0, 2);
    take(12, 300, 0, 2);    // the same snapshot after a new connection
    take(13, 500, 1, 0.5);  // a restart: all counters began at zero
    take(14, 600, 1, 0.75);
    take(30, 2200, 1, 4.75);
    const { edges } = model.visible(false);
    return {
        rates,
        queued: model.totals.queued,
        edges: edges.map((one) => [one.from, one.to, one.side, model.edgeRate(one)]),
        history: model.history.out,
    };
}"""


async def test_rates_are_unknown_across_restarts_and_follow_steps_that_only_route(
    site: Site,
) -> None:
    async with site.page() as page:
        found = await page.evaluate(MODEL)

    assert found["rates"] == [
        [None, None],
        [100, 0.5],
        [100, 0.5],
        [None, None],
        [100, 0.25],
        [100, 0.25],
    ]
    assert found["queued"] == 6
    assert found["edges"] == [["in", "out", "late", 50]]
    assert found["history"] == [None, 100, None, 100, None, 100]  # a gap before the last


#: Draws a chart without values, and with one.
CHART = """async () => {
    const { Chart } = await import(new URL("static/charts.mjs", document.baseURI));
    const box = document.createElement("div");
    box.style.width = "400px";
    document.body.append(box);
    const formatted = [];
    const format = (value) => { formatted.push(value); return String(value); };
    const chart = new Chart(box, [{ name: "a", colour: "line-a" }], format, { points: true });
    const shown = async (times, values) => {
        chart.set(times, values);
        await new Promise(requestAnimationFrame);
        return [chart.plot.scales.x.min, chart.plot.scales.x.max];
    };
    const now = Date.now() / 1000;
    const empty = await shown([], []);
    const labels = formatted.length;
    const one = await shown([1000], [5]);
    return { empty: empty.map((at) => at - now), labels, one, two: await shown([900, 1000], [5, 6]) };
}"""


async def test_a_chart_without_values_shows_the_last_minute_and_one_value_is_at_its_end(
    site: Site,
) -> None:
    async with site.page() as page:
        found = await page.evaluate(CHART)

    first, last = found["empty"]
    assert last - first == 60
    assert 0 <= last < 10
    assert found["labels"] == 0  # there is no unit for values that are not there
    assert found["one"] == [940, 1000]
    assert found["two"] == [900, 1000]


#: Draws a graph with a side output, and returns the box of the label and the end of the arrow.
SIDE = """async () => {
    const { Graph } = await import(new URL("static/graph.mjs", document.baseURI));
    const scroll = document.createElement("div");
    const box = document.createElement("div");
    scroll.append(box);
    document.body.append(scroll);
    const step = (name) => ({ name, operation: "map", kind: "step", task: 0, parallelism: 1 });
    const edge = (id, from, to, side) => ({ id, from, to, side, chained: true });
    const steps = [step("parse"), step("bad"), step("good")];
    const edges = [edge(0, "parse", "bad", "bad lines of the input"), edge(1, "parse", "good", null)];
    const graph = new Graph(scroll, box, () => {});
    graph.draw({ visible: () => ({ steps, edges }), edgeRate: () => 123456, tasks: new Map() }, false);
    const drawn = graph.cy.getElementById("edge 0");
    const label = drawn.boundingBox({ includeNodes: false, includeEdges: false, includeLabels: true });
    return { from: drawn.sourceEndpoint().x, left: label.x1, right: label.x2, to: drawn.targetEndpoint().x };
}"""


async def test_the_name_of_a_side_output_leaves_its_arrow_visible(site: Site) -> None:
    async with site.page() as page:
        at = await page.evaluate(SIDE)

    assert at["from"] < at["left"]
    assert at["right"] + 8 < at["to"]  # the length of the arrow head


async def test_no_figure_is_cut_off(site: Site) -> None:
    async with orders() as running, site.page(running.job, width=1240) as page:
        await page.locator("#figures .note").first.wait_for()
        cut = await page.evaluate(
            "[...document.querySelectorAll('#figures .note')]"
            ".filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.textContent)"
        )

    assert cut == []
