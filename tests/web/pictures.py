"""Takes the pictures of the documentation anew, of a city that is running:
`PYTHONPATH=tests python -m web.pictures http://127.0.0.1:8080 [NAME ...]`.
"""

import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

from web.chromium import FLAGS, chromium

IMAGES = Path(__file__).parents[2] / "docs" / "images"
DESK = {"width": 1280, "height": 760}
PHONE = {"width": 390, "height": 844}


def raise_columns(page: Page) -> None:
    page.click("#relief")


def open_table(page: Page) -> None:
    page.click("#open-table")


def open_sheet(page: Page) -> None:
    page.tap("#sheet")


PICTURES: dict[str, tuple[str, dict[str, Any], Any]] = {
    "map": ("#11.3/60.205/24.93", {"viewport": DESK, "color_scheme": "dark"}, None),
    "map-columns": ("#11.6/60.19/24.94", {"viewport": DESK, "color_scheme": "dark"}, raise_columns),
    "map-light": ("#11.3/60.205/24.93", {"viewport": DESK, "color_scheme": "light"}, open_table),
    "map-phone": (
        "#11.6/60.18/24.94",
        {"viewport": PHONE, "color_scheme": "dark", "is_mobile": True, "has_touch": True},
        open_sheet,
    ),
}
"""Where to look, with what, and what to do before the picture is taken."""


def main(address: str, names: list[str]) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        for name in names or PICTURES:
            place, options, then = PICTURES[name]
            page = browser.new_page(reduced_motion="reduce", **options)
            page.goto(f"{address}/{place}")
            page.wait_for_function("window.__millrace.cells().length > 50", timeout=90_000)
            page.wait_for_load_state("networkidle")
            if then is not None:
                then(page)
            page.wait_for_timeout(3_000)  # the names on the map fade in, and nothing says when they have
            page.screenshot(path=IMAGES / f"{name}.png")
            page.close()
        browser.close()


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    main(sys.argv[1].rstrip("/"), sys.argv[2:])
