"""A lookup service per test."""

from collections.abc import Iterator

import pytest

from lookup_server import Service, serving


@pytest.fixture
def service() -> Iterator[Service]:
    with serving() as service:
        yield service
