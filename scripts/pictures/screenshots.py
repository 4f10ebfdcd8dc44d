"""Take the screenshots of the guide: the page of ``aflow.web`` beside a replay of the flights.

``python -m scripts.pictures.screenshots`` needs Chromium, and the dependency groups ``test``, ``flights`` and ``docs``.
The files differ from run to run, as the measured values do.
"""

from __future__ import annotations

import asyncio
import shutil
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from PIL import Image
from playwright.async_api import Browser, Page, async_playwright

import aflow as af
import aflow.web
from flights.data import FlightData
from flights.files import Files
from flights.pipeline import build
from flights.replay import prepare
from scripts.pictures.chromium import FLAGS, NAMES
from scripts.pictures.shots import FOLDER, SHOTS, Shot

#: Seconds until the charts show something.
_WATCHED: Final = 25


async def main() -> None:
    """Run the replay, and take all screenshots of it."""
    with TemporaryDirectory() as folder:
        files = Files(Path(folder))
        prepare(FlightData.installed(), files, None)
        flow = build(
            files.source(),
            files.weather_source(),
            files.sinks(),
            max_delay=timedelta(hours=2),
        )
        checkpointing = af.Checkpointing(storage=files.checkpoints, every=timedelta(seconds=2))
        options = af.Options(samples=af.metrics.RecordSamples())
        async with flow.start(checkpointing=checkpointing, options=options) as job:
            async with aflow.web.serve(job, token="unused") as server:
                await _take_all(server.url)
            await job.cancel()


async def _take_all(url: str) -> None:
    program = next(found for name in NAMES if (found := shutil.which(name)))
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=FLAGS)
        pages = [(shot, await _opened(browser, shot, url)) for shot in SHOTS]
        await asyncio.sleep(_WATCHED)
        for shot, page in pages:
            content = await page.screenshot()
            await asyncio.to_thread(_save, content, FOLDER / f"{shot.name}.png")
        await browser.close()


async def _opened(browser: Browser, shot: Shot, url: str) -> Page:
    context = await browser.new_context(
        viewport={"width": shot.width, "height": shot.height},
        color_scheme="dark" if shot.dark else "light",
    )
    page = await context.new_page()
    await page.goto(url)
    if shot.step is not None:
        await page.get_by_role("button", name=shot.step, exact=True).click()
        await page.evaluate("scrollTo(0, 0)")
    return page


def _save(content: bytes, path: Path) -> None:
    """Write a screenshot with 256 colours, which takes a third of the bytes."""
    with Image.open(BytesIO(content)) as image:
        few = image.convert("RGB").quantize(
            256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
        )
        few.save(path, optimize=True)


if __name__ == "__main__":
    asyncio.run(main())
