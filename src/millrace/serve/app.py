"""The routes of the server: JSON over HTTP, and the WebSocket of the live map."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import polars as pl
from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from millrace.serve.context import ServerContext
from millrace.serve.hub import Hub, error_message
from millrace.serve.metrics import CONTENT_TYPE, ServerMetrics
from millrace.serve.pages import Pages
from millrace.serve.slow_viewers import Viewer
from millrace.serve.tiles import Box, InvalidRequest
from millrace.serve.view_state import ViewState
from millrace.views import View

_LOCAL = {"localhost", "127.0.0.1", "::1"}


def make_app(context: ServerContext, *, pages: Path | None) -> Starlette:
    """The application. `pages`: the folder of the built map, None where it is not built."""
    server_metrics = ServerMetrics(context)

    async def metrics(_: Request) -> Response:
        return Response(server_metrics.render(), media_type=CONTENT_TYPE)

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
        routes=routes,
        lifespan=_lifespan,
        exception_handlers={InvalidRequest: _bad_request, HTTPException: _http_error},
    )
    app.state.millrace = context
    return app


@asynccontextmanager
async def _lifespan(app: Starlette) -> AsyncIterator[None]:
    context = _context(app)
    await asyncio.to_thread(context.reader.start)
    ticking = asyncio.create_task(context.hub.run())
    try:
        yield
    finally:
        ticking.cancel()
        with suppress(asyncio.CancelledError):
            await ticking
        await asyncio.to_thread(context.reader.stop)


async def healthz(request: Request) -> Response:
    """Whether the log can be read. Missing topics are not a fault: jobs may not have started yet."""
    context = _context(request.app)
    reader, viewers = context.reader, len(context.hub.viewers)
    if reader.problem is not None:
        return _json_response(
            {"status": "waiting", "problem": reader.problem, "log": reader.url, "viewers": viewers},
            status=503,
        )
    return _json_response(
        {"status": "ok", "log": reader.url, "missing_topics": reader.missing, "viewers": viewers}
    )


async def jobs(request: Request) -> Response:
    """The state of the jobs."""
    context = _context(request.app)
    return _json_response({"jobs": context.jobs.summaries(context.clock())})


async def views(request: Request) -> Response:
    """The views of this server."""
    return _json_response(
        {"views": [_describe_view(cells) for cells in _context(request.app).views.values()]}
    )


async def view(request: Request) -> Response:
    """The newest results of a view; `cell`, `box` and `top` choose among them."""
    context, name = _context(request.app), request.path_params["view"]
    if name not in context.views:
        raise HTTPException(404, f"there is no view {name!r}; there are {', '.join(context.views) or 'none'}")
    params = request.query_params
    if unknown := sorted(set(params) - {"box", "cell", "top"}):
        raise InvalidRequest(
            f"{unknown[0]}={params[unknown[0]]} is not understood; use box=west,south,east,north, cell=NAME "
            "and top=N"
        )
    definition, snapshot = context.views[name].view, context.views[name].snapshot()
    results = _choose_rows(snapshot.rows, definition, params).select(
        pl.col("cell").alias(definition.key if definition.kind == "points" else "cell"),
        *definition.values,
        "latitude",
        "longitude",
        "window_start",
        "window_end",
    )
    header = {
        "view": definition.name,
        "time": snapshot.time,
        "window_ms": definition.window_ms,
        "every_ms": definition.every_ms,
    }
    return _json_response({**header, "cells": msgspec.Raw(results.write_json().encode())})


def _choose_rows(rows: pl.DataFrame, definition: View, params: QueryParams) -> pl.DataFrame:
    """The rows that `cell`, `box` and `top` leave, ordered by cell or, with `top`,
    by the view's first value.
    """
    if "cell" in params:
        rows = rows.filter(pl.col("cell").is_in(params.getlist("cell")))
    if "box" in params:
        rows = rows.filter(Box.parse(params["box"]).contains(pl.col("latitude"), pl.col("longitude")))
    rows = rows.sort("cell")
    if "top" not in params:
        return rows
    rank = pl.col(definition.values[0])
    if definition.kind == "points":
        rank = rank.abs()
    ranked = rows.sort(rank, descending=True, nulls_last=True, maintain_order=True)
    return ranked.head(_parse_count(params["top"]))


async def watch(socket: WebSocket) -> None:
    """One viewer. It sends subscriptions, and receives the tiles that change."""
    hub = _context(socket.app).hub
    if not _is_welcome(socket):
        await socket.close(1008, "pages of other sites are not allowed")
        return
    with suppress(WebSocketDisconnect):
        await socket.accept()
        await socket.send_text(hub.hello_message())
        viewer = Viewer(socket.send_text)
        await _until_first_ends(hub.serve(viewer), _receive(socket, hub, viewer))


async def _until_first_ends(*coroutines: Coroutine[Any, Any, None]) -> None:
    """Runs until one of them ends, and cancels the others."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


async def _receive(socket: WebSocket, hub: Hub, viewer: Viewer) -> None:
    while (message := await socket.receive())["type"] == "websocket.receive":
        text: str | bytes = message.get("text") or message.get("bytes") or ""
        try:
            hub.subscribe(viewer, text)
        except InvalidRequest as refused:
            await socket.send_text(error_message(str(refused)))


def _is_welcome(socket: WebSocket) -> bool:
    """Refuses pages of other hosts, by the `Origin` of browsers. Programs send none, and are accepted."""
    origin = socket.headers.get("origin")
    if origin is None:
        return True
    try:
        host, name = urlsplit(origin).netloc, urlsplit(origin).hostname
    except ValueError:
        return False
    return bool(host) and (host == socket.headers.get("host") or name in _LOCAL)


async def unknown(request: Request) -> Response:
    """The answer to unknown paths."""
    raise HTTPException(404, f"there is no {request.url.path}; see /api/views and /api/jobs")


async def not_built(_: Request) -> Response:
    """The answer in place of the map."""
    return PlainTextResponse(
        "The map is not built yet: run `make web` in a checkout of millrace and start the server again.\n",
        503,
    )


async def _bad_request(_: Request, error: Exception) -> Response:
    return _json_response({"error": str(error)}, status=400)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if request.url.path.startswith("/api/"):
        return _json_response({"error": error.detail}, status=error.status_code)
    return PlainTextResponse(f"{error.detail}\n", error.status_code, error.headers)


def _describe_view(view_state: ViewState) -> dict[str, Any]:
    view, snapshot = view_state.view, view_state.snapshot()
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
        "shows": "window" if view.is_by_window else "newest",
        "problems": view_state.omissions.texts,
    }


def _parse_count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9 or int(text) < 1:
        raise InvalidRequest(
            f"top={text} is not a number of results; use a whole number from 1, such as top=10"
        )
    return int(text)


def _json_response(content: object, *, status: int = 200) -> Response:
    """A JSON answer that must not be cached."""
    return Response(msgspec.json.encode(content), status, {"cache-control": "no-store"}, "application/json")


def _context(app: Starlette) -> ServerContext:
    context: ServerContext = app.state.millrace
    return context
