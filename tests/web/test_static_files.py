"""The files of the page: complete, without inline code, and as they were published."""

from __future__ import annotations

import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path
from threading import get_ident

import httpx
import pytest

import aflow.web
from aflow import PushSource
from aflow.testing.virtual_time import virtual_time
from aflow.web.static_files import static_files
from tests.web.requests import error, requesting, visits

STATIC = Path(aflow.web.__file__).parent / "static"
OWN = sorted(path for path in STATIC.iterdir() if path.suffix in {".mjs", ".css", ".html"})


async def fetch(path: str, **headers: str) -> httpx.Response:
    async with visits(PushSource[str]()).start() as job, requesting(job, read_token="r") as client:
        return await client.get(path, headers={k.replace("_", "-"): v for k, v in headers.items()})


@virtual_time
async def test_the_page_needs_no_token_and_allows_its_own_files_only() -> None:
    page = await fetch("/")

    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    policy = page.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "frame-ancestors 'none'" in policy
    assert page.headers["x-content-type-options"] == "nosniff"


@virtual_time
async def test_a_file_that_the_browser_has_is_not_sent_again() -> None:
    first = await fetch("/static/page.css")
    again = await fetch("/static/page.css", if_none_match=f'"other", {first.headers["etag"]}')
    other = await fetch("/static/page.css", if_none_match='"other"')

    assert first.headers["cache-control"] == "no-cache"
    assert (again.status_code, again.content) == (304, b"")
    assert (other.status_code, other.content) == (200, first.content)


@virtual_time
async def test_files_are_read_once_and_not_on_the_loop_of_the_jobs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[int] = []
    read = Path.read_bytes

    def recorded(path: Path) -> bytes:
        threads.append(get_ident())
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", recorded)
    static_files.cache_clear()
    await fetch("/")
    first = len(threads)
    await fetch("/")

    assert len(threads) == first > len(OWN)
    assert get_ident() not in threads


@pytest.mark.parametrize(
    "path",
    ["/static/", "/static/missing.mjs", "/static/..%2Froutes.py", "/static/%2e%2e/routes.py"],
)
@virtual_time
async def test_only_files_of_the_page_are_served(path: str) -> None:
    refused = await error(await fetch(path))

    assert refused[:2] == (404, "unknown_path")


class Links(HTMLParser):
    """Collects what a page loads, and what its policy would refuse."""

    def __init__(self) -> None:
        super().__init__()
        self.files: list[str] = []
        self.refused: list[str] = []
        self._script = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self._script = tag == "script"
        if tag in {"script", "link", "img"}:
            self.files.append(given.get("src") or given.get("href") or "")
        if tag == "style" or any(name == "style" or name.startswith("on") for name in given):
            self.refused.append(self.get_starttag_text() or tag)

    def handle_data(self, data: str) -> None:
        if self._script and data.strip():
            self.refused.append(data)

    def handle_endtag(self, tag: str) -> None:
        self._script = False


@virtual_time
async def test_all_files_of_the_page_are_served_from_relative_addresses() -> None:
    links = Links()
    links.feed((STATIC / "index.html").read_text(encoding="utf-8"))

    assert links.refused == []
    assert len(links.files) == 5
    for file in links.files:
        assert file.startswith("static/")
        assert (await fetch(f"/{file}")).status_code == 200, file


def test_modules_import_files_that_exist() -> None:
    for path in OWN:
        text = path.read_text(encoding="utf-8")
        for target in re.findall(r'from "(\./[^"]+)"', text):
            assert (STATIC / target).is_file(), f"{path.name} imports {target}"


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_no_value_is_parsed_as_code_and_no_other_host_is_used(path: Path) -> None:
    text = path.read_text(encoding="utf-8")

    for unsafe in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert unsafe not in text
    assert re.findall(r"https?://", text) == []
    assert len(text.splitlines()) <= 500


def test_third_party_files_are_as_published_and_have_their_licences() -> None:
    vendor = STATIC / "vendor"
    listed = dict(
        re.findall(
            r"\| `([^`]+)` \|.*\| `([0-9a-f]{64})` \|",
            (vendor / "README.md").read_text(encoding="utf-8"),
        )
    )

    files = {path.name: path for path in vendor.iterdir() if path.suffix in {".mjs", ".js", ".css"}}
    assert listed == {
        name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()
    }
    licences = [path.read_text(encoding="utf-8") for path in vendor.glob("LICENSE.*.txt")]
    assert len(licences) == 4
    assert all("Permission is hereby granted" in licence for licence in licences)
