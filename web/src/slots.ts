/**
 * Cells in places that do not change while they are shown. Transitions go from the value at an index to the new value at the same
 * index, so a cell must keep its index; one that left keeps it until it has faded.
 */

import { cellToLatLng } from "h3-js";

import type { LayerInfo, Value } from "./messages";

export type Position = readonly [longitude: number, latitude: number];

export interface Slot {
  readonly cell: string;
  /** What is coloured: the first of the values; a duration in minutes; of points, how far from zero. */
  readonly value: number;
  readonly values: readonly Value[];
  readonly alive: boolean;
  readonly position: Position;
  /** Of arcs: where it leads. */
  readonly target: Position;
}

function centre(cell: string): Position {
  const [latitude, longitude] = cellToLatLng(cell);
  return [longitude, latitude];
}

/** A result as it is drawn. */
export function slotOf(info: Pick<LayerInfo, "kind" | "unit" | "values">, cell: string, values: readonly Value[]): Slot {
  const first = Number(values[0] ?? 0) / (info.unit === "s" ? 60 : 1);
  if (info.kind === "points") {
    const [longitude, latitude] = values.slice(info.values.length);
    const position: Position = [Number(longitude), Number(latitude)];
    return { cell, value: Math.abs(first), values, alive: true, position, target: position };
  }
  const to = info.kind === "arcs" ? values[info.values.indexOf("to")] : null;
  const position = centre(cell);
  return { cell, value: first, values, alive: true, position, target: typeof to === "string" ? centre(to) : position };
}

export const FADE = 700;

export class Slots {
  /** A new array after each change, as deck.gl wants it. */
  list: readonly Slot[] = [];

  constructor(private readonly info: Pick<LayerInfo, "kind" | "unit" | "values">) {}

  #places = new Map<string, number>();
  #leftAt = new Map<number, number>();

  /** Shows these cells from now on; says whether anything is different. */
  show(cells: ReadonlyMap<string, readonly Value[]>, now: number): boolean {
    const next = [...this.list];
    let changed = false;
    for (const [cell, index] of this.#places) {
      const slot = next[index];
      if (slot?.alive && !cells.has(cell)) {
        next[index] = { ...slot, alive: false };
        this.#leftAt.set(index, now);
        changed = true;
      }
    }
    const free = this.#faded(now).filter((index) => !cells.has(next[index]?.cell ?? ""));
    for (const [cell, values] of cells) {
      const index = this.#places.get(cell);
      const slot = index === undefined ? undefined : next[index];
      if (index === undefined || !slot) this.#enter(next, free.pop() ?? next.length, cell, values);
      else if (slot.alive && values.every((value, place) => value === slot.values[place])) continue;
      else {
        next[index] = slotOf(this.info, cell, values);
        this.#leftAt.delete(index);
      }
      changed = true;
    }
    if (changed) this.list = next;
    return changed;
  }

  find(cell: string): number {
    const index = this.#places.get(cell);
    return index !== undefined && this.list[index]?.alive ? index : -1;
  }

  #enter(next: Slot[], index: number, cell: string, values: readonly Value[]): void {
    const before = next[index];
    if (before) this.#places.delete(before.cell);
    this.#leftAt.delete(index);
    next[index] = slotOf(this.info, cell, values);
    this.#places.set(cell, index);
  }

  #faded(now: number): number[] {
    return [...this.#leftAt].filter(([, at]) => now - at >= FADE).map(([index]) => index);
  }
}
