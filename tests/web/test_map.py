"""The live map in a real browser, over a real server: what it shows is what the API says,
whatever happens to either.
"""

import json
import re
import time

import polars as pl
import pytest
from playwright.sync_api import Page, Route, expect

from millrace.geo import cell_centres, geocell
from web.city import City, Server, wait_until
from web.conftest import Open

pytestmark = pytest.mark.web

CITY = "#10/60.2/24.94"
CENTRE = "#13/60.1719/24.9414"
WEST = "#13.5/60.2190/24.8130"


def cells(page: Page) -> dict[str, int]:
    return dict(page.evaluate("window.__millrace.cells()"))


def shows(page: Page, server: Server) -> None:
    """Waits until the page has exactly what the API has."""
    wait_until(
        lambda: page.evaluate("window.__millrace.time") == server.time() and cells(page) == server.view(),
        "the page showing what the API says",
    )


def colours(page: Page, *, clip: tuple[int, int, int, int]) -> set[tuple[int, ...]]:
    """The colours in a part of the page, as Chromium itself decodes its picture."""
    x, y, width, height = clip
    picture = page.screenshot(clip={"x": x, "y": y, "width": width, "height": height})
    pixels = page.evaluate(
        """async (bytes) => {
            const image = await createImageBitmap(new Blob([new Uint8Array(bytes)], {type: "image/png"}));
            const context = new OffscreenCanvas(image.width, image.height).getContext("2d");
            context.drawImage(image, 0, 0);
            const pixels = context.getImageData(0, 0, image.width, image.height).data;
            return [...new Set(new Uint32Array(pixels.buffer))];
        }""",
        list(picture),
    )
    return {(pixel & 255, pixel >> 8 & 255, pixel >> 16 & 255) for pixel in pixels}


def test_hexagons_appear_and_their_numbers_are_those_of_the_api(
    open_map: Open, server: Server, city: City
) -> None:
    page = open_map(CITY)
    city.go_on()
    total, where = page.locator("#total"), page.locator("#where")

    def agree() -> bool:
        view = server.view()
        texts = (total.inner_text(), where.inner_text())
        return (
            len(view) > 100
            and cells(page) == view
            and texts == (f"{sum(view.values()):,}", f"in {len(view)} cells, in view")
        )

    wait_until(agree, "cells, their sum and their number on the page as the API has them")
    expect(page.locator("#state")).to_have_text("Live")


def test_they_change_with_time(open_map: Open, server: Server, city: City) -> None:
    page = open_map(reduced_motion="no-preference")
    shows(page, server)
    before = cells(page)
    end = city.go_on()
    wait_until(lambda: page.evaluate("window.__millrace.time") == end, "the next window on the page")
    shows(page, server)
    assert cells(page) != before
    assert page.locator("#time").get_attribute("datetime") == page.evaluate(f"new Date({end}).toISOString()")
    expect(page.locator("#lag")).to_contain_text("s behind now")


def test_a_cell_under_the_pointer_tells_what_it_is(open_map: Open, server: Server) -> None:
    busiest = max(server.view().items(), key=lambda item: item[1])
    place = cell_centres(pl.Series([int(busiest[0], 16)]))
    page = open_map(f"#15/{place['latitude'][0]}/{place['longitude'][0]}")
    details = page.locator("#details")

    def pointed() -> bool:
        page.mouse.move(470, 300)
        page.mouse.move(500, 320, steps=2)
        return details.is_visible()

    wait_until(pointed, "details of the cell in the middle")
    expect(details).to_contain_text(busiest[0])
    expect(details.locator("b")).to_have_text(str(server.view()[busiest[0]]))
    expect(details).to_contain_text("Newest window")


def test_two_viewers_with_different_boxes_get_different_tiles(open_map: Open, server: Server) -> None:
    one, two = open_map(CENTRE), open_map(WEST)
    everything = server.view()
    for page in (one, two):
        shown = cells(page)
        assert 0 < len(shown) < len(everything)
        assert shown.items() <= everything.items()
    assert not cells(one).keys() & cells(two).keys()
    before = cells(one)
    one.evaluate(f"location.hash = '{WEST}'")
    wait_until(lambda: cells(one) == cells(two), "the tiles of the new place, and none of the old")
    assert cells(one).keys().isdisjoint(before)


def test_the_server_dies_and_returns_and_the_page_recovers_by_itself(
    open_map: Open, server: Server, city: City
) -> None:
    page = open_map()
    shows(page, server)
    before = cells(page)
    server.kill()
    expect(page.locator("#state")).to_have_text("Reconnecting")
    expect(page.locator("#notice")).to_contain_text("The server does not answer")
    assert cells(page) == before, "what was known stays to be seen"
    end = city.go_on()
    server.start()
    wait_until(
        lambda: page.evaluate("window.__millrace.connected && window.__millrace.time") == end,
        "the page's return",
    )
    shows(page, server)
    expect(page.locator("#state")).to_have_text("Live")
    expect(page.locator("#notice")).to_be_hidden()


def test_it_is_usable_on_a_phone(open_map: Open, server: Server) -> None:
    page = open_map(
        "#11.5/60.19/24.94",
        viewport={"width": 390, "height": 844},
        device_scale_factor=2,
        is_mobile=True,
        has_touch=True,
    )
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    expect(page.locator("#legend")).not_to_be_visible()
    page.tap("#sheet")
    expect(page.locator("#legend")).to_be_visible()
    for part in ("#summary", "#controls", "#theme", "#steps"):
        box = page.locator(part).bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
        assert box["y"] + box["height"] <= 845
    button = page.locator("#open-table").bounding_box()
    assert button is not None
    assert button["width"] >= 40
    wait_until(lambda: len(colours(page, clip=(0, 0, 330, 400))) > 20, "a map above the sheet")


def test_light_and_dark_follow_the_system_until_the_viewer_chooses(open_map: Open, server: Server) -> None:
    page = open_map(color_scheme="light")
    root = page.locator("html")
    expect(root).to_have_attribute("data-theme", "light")
    page.emulate_media(color_scheme="dark")
    expect(root).to_have_attribute("data-theme", "dark")
    page.click("#theme")
    expect(root).to_have_attribute("data-theme", "light")
    page.reload()
    expect(root).to_have_attribute("data-theme", "light")
    expect(page.locator("#theme")).to_have_attribute("aria-label", "Colours: light")
    shows(page, server)
    wait_until(lambda: (246, 245, 242) in colours(page, clip=(500, 20, 300, 200)), "light land")


def test_without_a_network_there_is_land_and_sea_and_the_source_of_the_coast_is_named(
    open_map: Open, server: Server
) -> None:
    page = open_map("#11.5/60.1719/24.9414")
    shows_land_and_sea = {(13, 13, 22), (24, 24, 36)}
    wait_until(lambda: shows_land_and_sea <= colours(page, clip=(320, 100, 500, 500)), "land and sea")
    wait_until(
        lambda: any(red > 150 and green < 190 for red, green, _ in colours(page, clip=(320, 100, 500, 400))),
        "busy cells in warm colours",
    )
    assert page.evaluate("window.__millrace.basemap") == "offline"
    expect(page.locator(".maplibregl-ctrl-attrib")).to_contain_text("GSHHG")


def test_where_there_is_a_network_the_ground_is_the_richer_one(open_map: Open, server: Server) -> None:
    style = {
        "version": 8,
        "sources": {},
        "layers": [{"id": "plain", "type": "background", "paint": {"background-color": "#003300"}}],
    }
    page = open_map(
        outside=lambda route: route.fulfill(
            body=json.dumps(style), headers={"access-control-allow-origin": "*"}
        )
    )
    wait_until(lambda: page.evaluate("window.__millrace.basemap") == "online", "the online style")
    wait_until(lambda: {(0, 51, 0)} < colours(page, clip=(330, 100, 500, 400)), "hexagons on the new ground")


def test_a_network_that_does_not_answer_holds_nothing_up(open_map: Open, server: Server) -> None:
    asked: list[Route] = []
    page = open_map(outside=lambda route: asked.append(route))
    shows(page, server)
    failed: list[float] = []
    page.on("requestfailed", lambda request: failed.append(time.monotonic()))
    wait_until(lambda: page.evaluate("1") and failed, "giving up on the online style")
    assert page.evaluate("window.__millrace.basemap") == "offline"


def test_it_can_be_used_by_keyboard_and_read_aloud(open_map: Open, server: Server) -> None:
    page = open_map()
    shows(page, server)
    expect(page.locator("#spoken")).to_contain_text(
        re.compile(r"\d+ vehicles in \d+ cells, in view; the greatest is \d+")
    )
    unnamed = page.locator("button").evaluate_all(
        "all => all.filter(one => !(one.ariaLabel || one.textContent.trim())).length"
    )
    assert unnamed == 0
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    page.locator("#open-table").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#close-table")).to_be_focused()
    rows = [row.split() for row in page.locator("#rows tr").all_inner_texts()]
    top = sorted(server.view().items(), key=lambda item: (-item[1], item[0]))[: len(rows)]
    assert [(row[0], int(row[-1])) for row in rows] == top
    place = (
        pl.DataFrame({"latitude": [float(rows[0][1].rstrip(","))], "longitude": [float(rows[0][2])]})
        .select(geocell())
        .item()
    )
    assert f"{place:x}" == rows[0][0], "h3-js and h3ronpy agree on where a cell is"
    page.keyboard.press("Escape")
    expect(page.locator("#table")).to_be_hidden()
    expect(page.locator("#open-table")).to_be_focused()


def test_columns_can_be_raised(open_map: Open, server: Server) -> None:
    page = open_map("#11/60.19/24.94")
    page.click("#relief")
    expect(page.locator("#relief")).to_have_attribute("aria-pressed", "true")
    wait_until(lambda: page.url.rpartition("/")[2] == "48", "a tilted camera")
    shows(page, server)
