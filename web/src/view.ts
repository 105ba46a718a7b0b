/** A layer as it stands: what the server said of it, in the places in which it is drawn. */

import type { Box, LayerInfo, Tick } from "./messages";
import { topFor } from "./scale";
import { type Slot, Slots } from "./slots";
import { Tiles } from "./tiles";

export class View {
  readonly tiles = new Tiles();
  readonly slots: Slots;
  top = 0;

  constructor(readonly info: LayerInfo) {
    this.slots = new Slots(info);
  }

  apply(tick: Tick, now: number): void {
    this.tiles.apply(tick);
    this.refresh(now);
  }

  keepWithin(box: Box, now: number): void {
    this.tiles.keepWithin(box);
    this.refresh(now);
  }

  refresh(now: number): void {
    this.slots.show(this.tiles.cells(), now);
    const largest = this.slots.list.reduce((most, slot) => (slot.alive ? Math.max(most, slot.value) : most), 0);
    this.top = topFor(largest, this.top);
  }

  /** The cells whose centre is in the box. */
  within([west, south, east, north]: Box): Slot[] {
    return this.slots.list.filter(({ alive, position: [x, y] }) => alive && x >= west && x <= east && y >= south && y <= north);
  }
}
