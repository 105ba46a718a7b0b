/**
 * Cells in places that do not change while they are shown. Transitions go from the value at an index to the new value at the same
 * index, so a cell must keep its index; one that left keeps it until it has faded.
 */

import { cellToLatLng } from "h3-js";

export interface Slot {
  readonly cell: string;
  readonly value: number;
  readonly alive: boolean;
  readonly position: readonly [longitude: number, latitude: number];
}

export const FADE = 700;

export class Slots {
  /** A new array after each change, as deck.gl wants it. */
  list: readonly Slot[] = [];

  #places = new Map<string, number>();
  #leftAt = new Map<number, number>();

  /** Shows these cells from now on; says whether anything is different. */
  show(cells: ReadonlyMap<string, number>, now: number): boolean {
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
    const free = this.#faded(now);
    for (const [cell, value] of cells) {
      const index = this.#places.get(cell);
      const slot = index === undefined ? undefined : next[index];
      if (index === undefined || !slot) this.#enter(next, free.pop() ?? next.length, cell, value);
      else if (slot.value === value && slot.alive) continue;
      else {
        next[index] = { ...slot, value, alive: true };
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

  #enter(next: Slot[], index: number, cell: string, value: number): void {
    const before = next[index];
    if (before) this.#places.delete(before.cell);
    this.#leftAt.delete(index);
    const [latitude, longitude] = cellToLatLng(cell);
    next[index] = { cell, value, alive: true, position: [longitude, latitude] };
    this.#places.set(cell, index);
  }

  #faded(now: number): number[] {
    return [...this.#leftAt].filter(([, at]) => now - at >= FADE).map(([index]) => index);
  }
}
