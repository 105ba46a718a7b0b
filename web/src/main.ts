/** Puts the parts together: messages change views, views are drawn, and the clock goes on meanwhile. */

import "maplibre-gl/dist/maplibre-gl.css";
import "./style.css";

import { duration, figure, ServerClock, timeOfDay } from "./clock";
import { browser, Connection, liveUrl } from "./connection";
import { Details } from "./details";
import { element, say } from "./elements";
import { Legend } from "./legend";
import { MapView } from "./map";
import type { Box, LayerInfo, ServerMessage } from "./messages";
import type { Theme } from "./scale";
import type { Slot } from "./slots";
import { Summary } from "./summary";
import { CellTable } from "./table";
import { follow } from "./theme";
import { View } from "./view";

declare global {
  interface Window {
    /** For tests: what the page knows. */
    __millrace: { cells(): [string, number][]; readonly time: number | null; readonly connected: boolean; readonly basemap: string };
  }
}

const FIRST: LayerInfo = { name: "vehicle-distribution", title: "Vehicles", kind: "cells", window_ms: 30_000, every_ms: 5_000 };
const SPOKEN_EVERY = 20_000;

const view = new View(FIRST);
const clock = new ServerClock();
const connection = new Connection(browser(liveUrl(document.baseURI)));
const summary = new Summary();
const legend = new Legend(element("steps"));
const details = new Details();
let spokenAt = 0;
let marked: string | null = null;
let pointed: { cell: string; x: number; y: number } | null = null;

const theme = { now: follow(element("theme"), repaint) };
const map = new MapView(element("map"), theme.now, hover);
const table = new CellTable({ chosen: (slot) => map.flyTo(slot.position), marked: mark });

function repaint(chosen: Theme): void {
  theme.now = chosen;
  map.paint(chosen);
  draw();
}

function hover(slot: Slot | null, x: number, y: number): void {
  pointed = slot ? { cell: slot.cell, x, y } : null;
  mark(slot?.cell ?? null);
}

function mark(cell: string | null): void {
  if (marked !== cell) map.draw(view, theme.now, (marked = cell));
  showDetails();
}

/** Everything that depends on the data. */
function draw(): void {
  const visible = view.within(map.box());
  map.draw(view, theme.now, marked);
  legend.show(visible.map((slot) => slot.value), view.top, theme.now);
  table.show(visible, view.top, theme.now);
  showDetails();
  tell(visible);
}

function showDetails(): void {
  const slot = pointed && view.slots.list[view.slots.find(pointed.cell)];
  const end = view.tiles.time;
  if (!pointed || !slot || end === null) details.hide();
  else details.show(slot, { start: end - view.info.window_ms, end }, pointed.x, pointed.y);
}

/** Everything that depends on the clock. */
function tell(visible: readonly Slot[] = view.within(map.box())): void {
  const now = Date.now();
  const total = visible.reduce((sum, slot) => sum + slot.value, 0);
  const time = view.tiles.time;
  const serverNow = clock.at(now);
  summary.show({ line: connection.state, total, cells: visible.length, time, every: view.info.every_ms, serverNow, now });
  if (time === null || now - spokenAt < SPOKEN_EVERY) return;
  spokenAt = now;
  const most = Math.max(0, ...visible.map((slot) => slot.value));
  say(
    element("spoken"),
    `At ${timeOfDay(time)}, ${duration(serverNow - time)} ago: ${figure(total)} vehicles in ${figure(visible.length)} cells in view; the busiest cell has ${most}.`,
  );
}

function heard(message: ServerMessage): void {
  const now = Date.now();
  switch (message.type) {
    case "hello":
      view.info = message.layers.find((layer) => layer.name === view.info.name) ?? view.info;
      say(element("legend-title"), `${view.info.title} per hexagon`);
      view.tiles.doubt();
      break;
    case "tick":
      clock.heard(message.now, now);
      if (message.layer !== view.info.name) break;
      view.apply(message, now);
      draw();
      break;
    case "status":
      clock.heard(message.now, now);
      summary.job(message.jobs.find((job) => job.job === view.info.name) ?? message.jobs[0]);
      break;
    case "error":
      console.warn(`the server refused what the page asked for: ${message.error}`);
  }
}

function subscribe(box: Box): void {
  connection.subscribe({ layers: [view.info.name], box });
  view.keepWithin(box, Date.now());
  draw();
}

function toggle(button: HTMLElement, attribute: string, change: (on: boolean) => void): void {
  button.addEventListener("click", () => {
    const on = button.getAttribute(attribute) !== "true";
    button.setAttribute(attribute, String(on));
    change(on);
  });
}

connection.onMessage = heard;
connection.onState = () => tell();
map.onMoved = subscribe;
table.onOpen = draw;
toggle(element("sheet"), "aria-expanded", () => undefined);
toggle(element("relief"), "aria-pressed", (on) => map.raise(on, draw));
element("closer").addEventListener("click", () => map.zoom(1));
element("farther").addEventListener("click", () => map.zoom(-1));
element("home").addEventListener("click", () => map.home());
element("retry").addEventListener("click", () => connection.open());
window.addEventListener("online", () => connection.open());
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) connection.open();
});
setInterval(() => tell(), 200);

window.__millrace = {
  cells: () => [...view.tiles.cells()],
  get time() {
    return view.tiles.time;
  },
  get connected() {
    return connection.state.phase === "open";
  },
  get basemap() {
    return map.basemap;
  },
};

subscribe(map.box());
connection.open();
