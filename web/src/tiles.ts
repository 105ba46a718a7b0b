/** The newest content of each tile of a layer: what the server has said, and nothing else. */

import type { Box, Tick, Value } from "./messages";

/** The box of a web-mercator tile named "zoom/x/y". */
export function boxOf(tile: string): Box {
  const [zoom = 0, x = 0, y = 0] = tile.split("/").map(Number);
  const side = 2 ** zoom;
  const longitude = (column: number) => (column / side) * 360 - 180;
  const latitude = (row: number) => (Math.atan(Math.sinh(Math.PI * (1 - (2 * row) / side))) * 180) / Math.PI;
  return [longitude(x), latitude(y + 1), longitude(x + 1), latitude(y)];
}

export function overlap(one: Box, other: Box): boolean {
  return one[0] <= other[2] && other[0] <= one[2] && one[1] <= other[3] && other[1] <= one[3];
}

export class Tiles {
  /** The end of the window that is shown, milliseconds since the epoch; null before the first result. */
  time: number | null = null;

  #tiles = new Map<string, ReadonlyMap<string, readonly Value[]>>();
  #doubtful = false;

  /** Takes a tick. Each tile in it replaces what was there. */
  apply(tick: Tick): void {
    if (this.#doubtful) this.#tiles.clear();
    this.#doubtful = false;
    this.time = tick.time;
    for (const { tile, cells } of tick.tiles) {
      if (cells.length > 0) this.#tiles.set(tile, new Map(cells.map(([cell, ...values]) => [cell, values])));
      else this.#tiles.delete(tile);
    }
  }

  /** Forgets tiles outside the box, of which the server will say nothing from now on. */
  keepWithin(box: Box): void {
    for (const tile of this.#tiles.keys()) if (!overlap(boxOf(tile), box)) this.#tiles.delete(tile);
  }

  /** After a break, what is shown stays until the first tick, which brings everything; what it does not mention is gone. */
  doubt(): void {
    this.#doubtful = true;
  }

  /** Every cell with its values. */
  cells(): Map<string, readonly Value[]> {
    const all = new Map<string, readonly Value[]>();
    for (const cells of this.#tiles.values()) for (const [cell, values] of cells) all.set(cell, values);
    return all;
  }
}
