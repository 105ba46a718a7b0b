"""Each job has a view of its own on the map, with its own words, chosen with one click or by its address."""

import re
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from millrace.transit.views import VIEWS
from web.city import VEHICLES, City, Server, wait_until
from web.conftest import Open
from web.test_map import colours

pytestmark = pytest.mark.web

NOUNS = {
    "vehicle-distribution": r"vehicles",
    "delay-distribution": r"arrivals",
    "final-stop-distribution": r"vehicles",
    "flow-direction": r"crossings",
    "emergency-stop": r"emergency stops",
}
"""By layer: what the headline counts."""


def shown(page: Page) -> dict[str, list[Any]]:
    return {cell: values for cell, *values in page.evaluate("window.__millrace.cells()")}


def cells_of(server: Server, layer: str) -> dict[str, list[Any]]:
    """The same of the API: the values, and of points where and when they are."""
    [view] = [view for view in VIEWS if view.name == layer]
    key, more = (
        ("vehicle_id", ("longitude", "latitude", "window_end")) if view.kind == "points" else ("cell", ())
    )
    return {each[key]: [each[name] for name in (*view.values, *more)] for each in server.results(layer)}


def vivid(page: Page) -> set[tuple[int, ...]]:
    """Colours on the map that the ground and its names do not have."""
    return {paint for paint in colours(page, clip=(330, 60, 560, 560)) if max(paint) - min(paint) > 60}


def choose(page: Page, title: str) -> None:
    page.locator("#layers").get_by_text(title, exact=True).click()


def point_at_the_middle(page: Page) -> Locator:
    """The panel with details of the middle of the map."""
    details = page.locator("#details")

    def pointed() -> bool:
        page.mouse.move(501, 320)
        page.mouse.move(500, 320)
        return details.is_visible()

    wait_until(pointed, "details of what is in the middle")
    return details


def newest(server: Server, city: City, layer: str) -> list[dict[str, Any]]:
    """The results of the last window; each topic is read by itself, so one may arrive before the other."""
    wait_until(
        lambda: any(each["window_end"] == city.end for each in server.results(layer)), "the last window"
    )
    return [each for each in server.results(layer) if each["window_end"] == city.end]


@pytest.mark.parametrize("layer", NOUNS)
def test_each_layer_shows_what_the_api_says_in_its_own_words(
    open_map: Open, server: Server, city: City, layer: str
) -> None:
    page = open_map(f"?layer={layer}#10.4/60.2/24.94")
    wait_until(
        lambda: page.evaluate("window.__millrace.layer") == layer and shown(page) == cells_of(server, layer),
        "all of the layer",
    )
    found = cells_of(server, layer)
    total = sum(each.get("count", 1) for each in server.results(layer))
    expect(page.locator(".headline")).to_contain_text(re.compile(rf"{total:,}\s+{NOUNS[layer]}"))
    expect(page.locator("#layers input:checked")).to_have_value(layer)
    wait_until(lambda: len(vivid(page)) >= 5, "the layer on the map")
    page.click("#open-table")
    expect(page.locator("#rows tr")).to_have_count(min(25, len(found)))
    assert page.locator("#rows tr button").first.inner_text() == max(
        found, key=lambda key: (abs(found[key][0]), [-ord(c) for c in key])
    )


def headline(page: Page) -> int:
    """The total that the page says."""
    return int(page.locator("#total").inner_text().replace(",", ""))


def test_the_headline_is_the_number_of_vehicles_in_one_window_whatever_happens(
    open_map: Open, server: Server, city: City
) -> None:
    """Two browsers, windows that come, a camera that moves, and a server that dies: 700 vehicles stay 700."""
    first, second = open_map("#10.4/60.2/24.94"), open_map("#10.4/60.2/24.94")
    for _ in range(3):
        end = city.go_on()
        for page in (first, second):
            wait_until(
                lambda page=page, end=end: page.evaluate("window.__millrace.time") == end,  # type: ignore[misc]
                "the window",
            )
            wait_until(lambda page=page: headline(page) == VEHICLES, "the headline")  # type: ignore[misc]
    assert sum(server.view().values()) == VEHICLES
    first.click("#closer")
    wait_until(lambda: headline(first) < VEHICLES, "fewer from near")
    first.click("#farther")
    wait_until(lambda: headline(first) == VEHICLES, "all of them again")
    server.kill()
    end = city.go_on()
    server.start()
    for page in (first, second):
        wait_until(
            lambda page=page: page.evaluate("window.__millrace.time") == end,  # type: ignore[misc]
            "the window after the break",
        )
        wait_until(lambda page=page: headline(page) == VEHICLES, "the headline after the break")  # type: ignore[misc]


def test_layers_are_changed_by_click_and_key_and_the_address_remembers(
    open_map: Open, server: Server, city: City
) -> None:
    page = open_map("#10.4/60.2/24.94")
    assert page.evaluate("window.__millrace.layer") == "vehicle-distribution"
    choose(page, "Flow")
    wait_until(lambda: shown(page) == cells_of(server, "flow-direction"), "the flow")
    page.keyboard.press("ArrowRight")
    wait_until(lambda: shown(page) == cells_of(server, "emergency-stop"), "the stops")
    assert "layer=emergency-stop" in page.url
    assert "#10.4/" in page.url
    page.reload()
    wait_until(lambda: shown(page) == cells_of(server, "emergency-stop"), "the same after a reload")
    choose(page, "Vehicles")
    end = city.go_on()
    wait_until(
        lambda: (
            page.evaluate("window.__millrace.time") == end
            and shown(page) == cells_of(server, "vehicle-distribution")
        ),
        "what is new",
    )


def test_a_stop_under_the_pointer_tells_who_and_how_hard(open_map: Open, server: Server, city: City) -> None:
    stop = max(newest(server, city, "emergency-stop"), key=lambda each: each["speed_difference"])
    page = open_map(f"?layer=emergency-stop#15/{stop['latitude']}/{stop['longitude']}")
    details = point_at_the_middle(page)
    expect(details).to_contain_text(stop["vehicle_id"])
    expect(details.locator("b")).to_have_text(f"{stop['deceleration']:.1f} m/s²")
    expect(details).to_contain_text("Speed difference")


def test_a_border_under_the_pointer_tells_where_it_leads(open_map: Open, server: Server, city: City) -> None:
    flow = max(newest(server, city, "flow-direction"), key=lambda each: each["count"])
    page = open_map(f"?layer=flow-direction#15.5/{flow['latitude']}/{flow['longitude']}")
    details = point_at_the_middle(page)
    expect(details).to_contain_text("To")
    expect(details).to_contain_text(re.compile(r"89[0-9a-f]{13}.*89[0-9a-f]{13}"))


def test_layers_fit_on_a_phone(open_map: Open, server: Server) -> None:
    page = open_map(
        "#11.5/60.19/24.94",
        viewport={"width": 390, "height": 844},
        device_scale_factor=2,
        is_mobile=True,
        has_touch=True,
    )
    page.locator("#layers").get_by_text("Emergency stops").tap()
    wait_until(lambda: page.evaluate("window.__millrace.layer") == "emergency-stop" and shown(page), "stops")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
