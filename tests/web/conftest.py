"""Chromium, opened once, and pages in it that must not complain."""

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Route, expect, sync_playwright

from millrace.log import open_log
from millrace.transit.views import VIEWS
from web.chromium import FLAGS, chromium
from web.city import LIMIT, City, Server, wait_until

EXPECTED = (
    "Failed to load resource",
    "WebSocket connection to",
    "GPU stall",
    "luma.gl: layout for attribute",
)
"""What the browser says of an address that does not answer, and of drawing without a graphics card; and one
of deck.gl's own remarks.
"""

DESK = {"width": 1000, "height": 640}


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=LIMIT * 1000)
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        yield opened
        opened.close()


def free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return int(opened.getsockname()[1])


@pytest.fixture(scope="module")
def city(tmp_path_factory: pytest.TempPathFactory) -> Iterator[City]:
    """One window has gone by when the tests begin."""
    log = open_log(f"embedded:{tmp_path_factory.mktemp('city') / 'log'}")
    for view in VIEWS:
        log.ensure(view.topic)
    made = City(log)
    made.go_on()
    yield made
    log.close()


@pytest.fixture(scope="module")
def server(city: City, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    started = Server(city.log.url, tmp_path_factory.mktemp("serve"), free_port())
    started.start()
    wait_until(lambda: started.time() > 0, "the first result in the API")
    yield started
    started.kill()


Open = Callable[..., Page]


@pytest.fixture
def open_map(browser: Browser, server: Server) -> Iterator[Open]:
    """Opens the map and waits for results.
    Whatever the page complained of fails the test, but for the lack of what is not there.
    """
    contexts: list[BrowserContext] = []
    complaints: list[str] = []

    def heard(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not any(sign in message.text for sign in EXPECTED):
            complaints.append(message.text)

    def open_one(
        at: str = "",
        *,
        wait: bool = True,
        outside: Callable[[Route], None] = lambda route: route.abort(),
        **options: Any,
    ) -> Page:
        context = browser.new_context(
            **{"viewport": DESK, "color_scheme": "dark", "reduced_motion": "reduce", **options}
        )
        contexts.append(context)
        context.route(lambda url: not url.startswith(server.address), outside)
        page = context.new_page()
        page.on("console", heard)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(f"{server.address}/{at}")
        if wait:
            page.wait_for_function("window.__millrace.cells().length > 0")
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert complaints == []
