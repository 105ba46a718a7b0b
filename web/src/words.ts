/** What is said of a layer: its values with their units, and how many there are of what. */

import { duration, figure } from "./clock";
import type { JobStatus, LayerInfo, Value } from "./messages";
import type { Slot } from "./slots";

/** "vehicle" for one, else "vehicles". */
export function nouns(info: LayerInfo, count: number): string {
  return count === 1 ? info.noun.replace(/s$/, "") : info.noun;
}

/** What a layer has results for. */
export function things(info: LayerInfo, count = 2): string {
  const thing = info.kind === "points" ? "place" : info.kind === "arcs" ? "border" : "cell";
  return count === 1 ? thing : `${thing}s`;
}

/** In what the colours are told. */
export function unitOf(info: LayerInfo): string {
  return info.unit === "" ? info.noun : info.unit === "s" ? "minutes" : info.unit;
}

/** A value by its name, as people say it. */
export function told(info: LayerInfo, name: string, value: Value | undefined): string {
  if (typeof value !== "number") return value ?? "–";
  const measured = name === info.values[0] || /^p\d+$/.test(name);
  if (!measured || info.unit === "") return figure(value);
  if (info.unit !== "s") return `${figure(value)} ${info.unit}`;
  return value < 0 ? `${duration(-value * 1000)} early` : duration(value * 1000);
}

/** The value that is coloured, with its unit. */
export function valueOf(info: LayerInfo, slot: Slot): string {
  return told(info, info.values[0] ?? "", slot.values[0]);
}

/** How much there is in all: the sum of the first value where it has no unit, which is a count; else of `count`; else how many results. */
export function total(info: LayerInfo, slots: readonly Slot[]): number {
  const place = info.unit === "" ? 0 : info.values.indexOf("count");
  return place < 0 ? slots.length : slots.reduce((sum, slot) => sum + Number(slot.values[place] ?? 0), 0);
}

/** The job that writes the layer's topic, or has its name; of several runs the one whose last batch is the newest. */
export function jobOf(info: LayerInfo, jobs: readonly JobStatus[]): JobStatus | undefined {
  const writers = jobs.filter((job) => job.writes?.includes(info.topic));
  const mine = writers.length > 0 ? writers : jobs.filter((job) => job.job === info.name);
  return mine.reduce<JobStatus | undefined>((one, other) => ((one?.last_batch_at ?? -1) >= (other.last_batch_at ?? 0) ? one : other), undefined);
}

/** "in 12 cells, in view"; points are counted already. */
export function where(info: LayerInfo, count: number): string {
  return info.kind === "points" ? "in view" : `${info.kind === "arcs" ? "over" : "in"} ${figure(count)} ${things(info, count)}, in view`;
}

/** As a heading: "speed_difference" is "Speed difference". */
export function capital(name: string): string {
  return `${name.slice(0, 1).toUpperCase()}${name.slice(1).replaceAll("_", " ")}`;
}
