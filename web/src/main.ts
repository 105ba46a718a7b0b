/** Puts the parts together: messages change views, views are drawn, and the clock goes on meanwhile. */

import "maplibre-gl/dist/maplibre-gl.css";
import "./style.css";

import { duration, figure, ServerClock, timeOfDay } from "./clock";
import { browser, Connection, liveUrl } from "./connection";
import { Details } from "./details";
import { element, say } from "./elements";
import { Layers } from "./layers";
import { Legend } from "./legend";
import { MapView } from "./map";
import type { Box, JobStatus, LayerInfo, ServerMessage, Value } from "./messages";
import type { Theme } from "./scale";
import type { Slot } from "./slots";
import { Summary } from "./summary";
import { CellTable } from "./table";
import { follow } from "./theme";
import { View } from "./view";
import { jobOf, nouns, total, unitOf, valueOf, where } from "./words";

declare global {
  interface Window {
    /** For tests: what the page knows. */
    __millrace: { cells(): [string, ...Value[]][]; readonly layer: string; readonly time: number | null; readonly connected: boolean; readonly basemap: string };
  }
}

/** Until the server has said what there is. */
const NOTHING: LayerInfo = { name: "", title: "", topic: "", kind: "cells", window_ms: 0, every_ms: 5_000, noun: "", legend: "", unit: "", values: [] };
const SPOKEN_EVERY = 20_000;

let view = new View(NOTHING);
const clock = new ServerClock();
const connection = new Connection(browser(liveUrl(document.baseURI)));
const summary = new Summary();
const legend = new Legend(element("steps"));
const details = new Details();
const layers = new Layers();
let jobs: readonly JobStatus[] = [];
let problems: Readonly<Record<string, readonly string[]>> = {};
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
  legend.show(visible.map((slot) => slot.value), view.top, theme.now, view.info);
  table.show(view.info, visible, view.top, theme.now);
  showDetails();
  tell(visible);
}

function showDetails(): void {
  const slot = pointed && view.slots.list[view.slots.find(pointed.cell)];
  const end = view.tiles.time;
  if (!pointed || !slot || end === null) details.hide();
  else details.show(view.info, slot, { start: end - view.info.window_ms, end }, pointed.x, pointed.y);
}

/** Everything that depends on the clock. */
function tell(visible: readonly Slot[] = view.within(map.box())): void {
  const now = Date.now();
  const [info, time, serverNow] = [view.info, view.tiles.time, clock.at(now)];
  const all = total(info, visible);
  const said = { total: figure(all), noun: nouns(info, all), where: where(info, visible.length) };
  const idle = jobs.length > 0 && !jobOf(info, jobs) ? info.name : null;
  summary.show({ line: connection.state, ...said, time, every: info.every_ms, idle, problems: problems[info.name] ?? [], serverNow, now });
  if (time === null || now - spokenAt < SPOKEN_EVERY) return;
  spokenAt = now;
  const most = visible.reduce<Slot | null>((one, other) => (one && one.value >= other.value ? one : other), null);
  const greatest = most ? `; the greatest is ${valueOf(info, most)}` : "";
  say(element("spoken"), `At ${timeOfDay(time)}, ${duration(serverNow - time)} ago: ${said.total} ${said.noun} ${said.where}${greatest}.`);
}

/** Shows another layer; what there is of it comes with the next tick. */
function show(info: LayerInfo): void {
  view = new View(info);
  spokenAt = 0;
  summary.job(jobOf(info, jobs));
  mark((pointed = null));
  say(element("legend-title"), info.unit === "" ? info.legend : `${info.legend}, ${unitOf(info)}`);
  subscribe(map.box());
}

function heard(message: ServerMessage): void {
  const now = Date.now();
  switch (message.type) {
    case "hello":
      view.tiles.doubt();
      offered(message.layers);
      break;
    case "tick":
      clock.heard(message.now, now);
      if (message.layer !== view.info.name) break;
      view.apply(message, now);
      draw();
      break;
    case "status":
      clock.heard(message.now, now);
      jobs = message.jobs;
      problems = message.problems ?? {};
      summary.job(jobOf(view.info, jobs));
      break;
    case "error":
      console.warn(`the server refused what the page asked for: ${message.error}`);
  }
}

/** After a break the layer that is shown stays, unless the server has another one under its name. */
function offered(infos: readonly LayerInfo[]): void {
  const chosen = layers.offer(infos);
  if (chosen && JSON.stringify(chosen) !== JSON.stringify(view.info)) show(chosen);
}

function subscribe(box: Box): void {
  connection.subscribe({ layers: view.info === NOTHING ? [] : [view.info.name], box });
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
layers.onChosen = show;
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
  cells: () => [...view.tiles.cells()].map(([cell, values]) => [cell, ...values]),
  get layer() {
    return view.info.name;
  },
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
