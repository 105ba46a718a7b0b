"""The routes: what can be asked over HTTP, and the WebSocket of the live map."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import polars as pl
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from millrace.serve import hub as live
from millrace.serve.context import State
from millrace.serve.metrics import CONTENT_TYPE, Figures
from millrace.serve.pages import Pages
from millrace.serve.tiles import Box, Refused
from millrace.serve.view_state import Cells

_LOCAL = {"localhost", "127.0.0.1", "::1"}


def make_app(state: State, *, pages: Path | None) -> Starlette:
    """The application. `pages`: the folder of the built map, None where it is not built."""
    figures = Figures(state)

    async def metrics(_: Request) -> Response:
        return Response(figures.text(), media_type=CONTENT_TYPE)

    routes: list[BaseRoute] = [
        Route("/healthz", healthz),
        Route("/metrics", metrics),
        Route("/api/jobs", jobs),
        Route("/api/views", views),
        Route("/api/views/{view}", view),
        WebSocketRoute("/api/live", watch),
        Route("/api/{rest:path}", unknown),
        Mount("/", app=Pages(directory=pages)) if pages is not None else Route("/", not_built),
    ]
    app = Starlette(
        routes=routes, lifespan=_running, exception_handlers={Refused: _refused, HTTPException: _failed}
    )
    app.state.millrace = state
    return app


@asynccontextmanager
async def _running(app: Starlette) -> AsyncIterator[None]:
    state = _state(app)
    await asyncio.to_thread(state.reader.start)
    ticking = asyncio.create_task(state.hub.run())
    try:
        yield
    finally:
        ticking.cancel()
        with suppress(asyncio.CancelledError):
            await ticking
        await asyncio.to_thread(state.reader.stop)


async def healthz(request: Request) -> Response:
    """Whether the log can be read. A topic that is not there yet is no fault."""
    state = _state(request.app)
    reader, viewers = state.reader, len(state.hub.viewers)
    if reader.problem is not None:
        return _json(
            {"status": "waiting", "problem": reader.problem, "log": reader.url, "viewers": viewers},
            status=503,
        )
    return _json({"status": "ok", "log": reader.url, "missing_topics": reader.missing, "viewers": viewers})


async def jobs(request: Request) -> Response:
    """How the jobs are."""
    state = _state(request.app)
    return _json({"jobs": state.jobs.at(state.clock())})


async def views(request: Request) -> Response:
    """What can be looked at."""
    return _json({"views": [_about(cells) for cells in _state(request.app).views.values()]})


async def view(request: Request) -> Response:
    """The newest results of a view; `cell`, `box` and `top` choose among them."""
    state, name = _state(request.app), request.path_params["view"]
    if name not in state.views:
        raise HTTPException(404, f"there is no view {name!r}; there are {', '.join(state.views) or 'none'}")
    asked = request.query_params
    if unknown := sorted(set(asked) - {"box", "cell", "top"}):
        raise Refused(
            f"{unknown[0]}={asked[unknown[0]]} is not understood; use box=west,south,east,north, cell=NAME and top=N"
        )
    cells = state.views[name]
    snapshot, chosen = cells.snapshot(), cells.view
    rows = snapshot.rows
    if "cell" in asked:
        rows = rows.filter(pl.col("cell").is_in(asked.getlist("cell")))
    if "box" in asked:
        rows = rows.filter(Box.parse(asked["box"]).holds(pl.col("latitude"), pl.col("longitude")))
    rows = rows.sort("cell")
    if "top" in asked:
        rank = pl.col(chosen.values[0]).abs() if chosen.kind == "points" else pl.col(chosen.values[0])
        rows = rows.sort(rank, descending=True, nulls_last=True, maintain_order=True).head(
            _count(asked["top"])
        )
    called = chosen.key if chosen.kind == "points" else "cell"
    found = rows.select(
        pl.col("cell").alias(called), *chosen.values, "latitude", "longitude", "window_start", "window_end"
    ).write_json()
    about = {
        "view": chosen.name,
        "time": snapshot.time,
        "window_ms": chosen.window_ms,
        "every_ms": chosen.every_ms,
    }
    return _json({**about, "cells": msgspec.Raw(found.encode())})


async def watch(socket: WebSocket) -> None:
    """One viewer: what it says replaces what it looks at; what it looks at is sent as it changes."""
    hub = _state(socket.app).hub
    if not _welcome(socket):
        await socket.close(1008, "another site's page may not look in")
        return
    with suppress(WebSocketDisconnect):
        await socket.accept()
        await socket.send_text(hub.hello())
        viewer = live.Viewer(socket.send_text)
        await _either(hub.serve(viewer), _listen(socket, hub, viewer))


async def _either(*those: Coroutine[Any, Any, None]) -> None:
    """Until one of them has ended; then the others end too."""
    tasks = [asyncio.create_task(each) for each in those]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


async def _listen(socket: WebSocket, hub: live.Hub, viewer: live.Viewer) -> None:
    while (message := await socket.receive())["type"] == "websocket.receive":
        said: str | bytes = message.get("text") or message.get("bytes") or ""
        try:
            hub.subscribe(viewer, said)
        except Refused as refused:
            await socket.send_text(live.error(str(refused)))


def _welcome(socket: WebSocket) -> bool:
    """A browser says whose page it is. Programs say nothing; pages of this host and of this machine are welcome."""
    origin = socket.headers.get("origin")
    if origin is None:
        return True
    try:
        host, name = urlsplit(origin).netloc, urlsplit(origin).hostname
    except ValueError:
        return False
    return bool(host) and (host == socket.headers.get("host") or name in _LOCAL)


async def unknown(request: Request) -> Response:
    """Nothing is there."""
    raise HTTPException(404, f"there is no {request.url.path}; see /api/views and /api/jobs")


async def not_built(_: Request) -> Response:
    """In place of the map."""
    return PlainTextResponse(
        "The map is not built yet: run `make web` in a checkout of millrace and start the server again.\n",
        503,
    )


async def _refused(_: Request, error: Exception) -> Response:
    return _json({"error": str(error)}, status=400)


async def _failed(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if request.url.path.startswith("/api/"):
        return _json({"error": error.detail}, status=error.status_code)
    return PlainTextResponse(f"{error.detail}\n", error.status_code, error.headers)


def _about(cells: Cells) -> dict[str, Any]:
    view, snapshot = cells.view, cells.snapshot()
    return {
        "name": view.name,
        "title": view.title,
        "kind": view.kind,
        "topic": view.topic.name,
        "values": view.values,
        "window_ms": view.window_ms,
        "every_ms": view.every_ms,
        "time": snapshot.time,
        "results": len(snapshot.rows),
        "shows": "window" if view.by_window else "newest",
        "problems": cells.omissions.texts,
    }


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9 or int(text) < 1:
        raise Refused(f"top={text} is no number of results; use a whole number from 1, such as top=10")
    return int(text)


def _json(said: object, *, status: int = 200) -> Response:
    """What is asked for now must not come from a cache."""
    return Response(msgspec.json.encode(said), status, {"cache-control": "no-store"}, "application/json")


def _state(app: Starlette) -> State:
    state: State = app.state.millrace
    return state
