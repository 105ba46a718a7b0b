import { latLngToCell } from "h3-js";
import { describe, expect, it } from "vitest";

import type { Cell, Tick } from "../src/messages";
import { FADE, Slots, slotOf } from "../src/slots";
import { boxOf, overlap, Tiles } from "../src/tiles";

const tick = (time: number, tiles: Record<string, Cell[]>): Tick => ({
  type: "tick",
  layer: "vehicle-distribution",
  time,
  now: time,
  tiles: Object.entries(tiles).map(([tile, cells]) => ({ tile, cells })),
});

const COUNTS = { kind: "cells", unit: "", values: ["count"] };
const counts = (...cells: [string, number][]) => new Map(cells.map(([cell, count]) => [cell, [count]]));

const [A, B, C] = [60.17, 60.18, 60.19].map((latitude) => latLngToCell(latitude, 24.94, 9)) as [string, string, string];

describe("tiles", () => {
  it("a tile replaces what it held, and others stay", () => {
    const tiles = new Tiles();
    tiles.apply(tick(1, { "12/2331/1185": [[A, 1], [B, 2]], "12/2332/1185": [[C, 3]] }));
    tiles.apply(tick(2, { "12/2331/1185": [[A, 5]] }));
    expect(tiles.cells()).toEqual(counts([A, 5], [C, 3]));
    expect(tiles.time).toBe(2);
  });

  it("an empty tile holds nothing any more", () => {
    const tiles = new Tiles();
    tiles.apply(tick(1, { "12/2331/1185": [[A, 1]] }));
    tiles.apply(tick(2, { "12/2331/1185": [] }));
    expect(tiles.cells().size).toBe(0);
  });

  it("after a break the old content is shown until the first tick, which replaces all of it", () => {
    const tiles = new Tiles();
    tiles.apply(tick(1, { "12/2331/1185": [[A, 1]], "12/2332/1185": [[B, 2]] }));
    tiles.doubt();
    expect(tiles.cells().size).toBe(2);
    tiles.apply(tick(9, { "12/2332/1185": [[B, 4]] }));
    expect(tiles.cells()).toEqual(counts([B, 4]));
    tiles.apply(tick(10, { "12/2331/1185": [[A, 1]] }));
    expect(tiles.cells().size).toBe(2);
  });

  it("tiles outside the box are forgotten", () => {
    const tiles = new Tiles();
    tiles.apply(tick(1, { "12/2331/1185": [[A, 1]], "12/2400/1185": [[B, 2]] }));
    tiles.keepWithin(boxOf("12/2331/1185"));
    expect([...tiles.cells().keys()]).toEqual([A]);
  });

  it("the box of a tile is that of web mercator", () => {
    expect(boxOf("0/0/0").map((degrees) => Math.round(degrees * 100) / 100)).toEqual([-180, -85.05, 180, 85.05]);
    const [west, south, east, north] = boxOf("12/2331/1185");
    expect(west).toBeLessThan(24.94);
    expect(east).toBeGreaterThan(24.94);
    expect([south < 60.18, north > 60.18]).toEqual([true, true]);
    expect(overlap([0, 0, 1, 1], [2, 0, 3, 1])).toBe(false);
  });
});

describe("slots", () => {
  it("a cell keeps its index while it is shown, whatever comes and goes", () => {
    const slots = new Slots(COUNTS);
    slots.show(counts([A, 1], [B, 2]), 0);
    const place = slots.find(B);
    slots.show(counts([C, 7], [B, 3]), 100);
    expect(slots.find(B)).toBe(place);
    expect(slots.list[place]).toMatchObject({ cell: B, value: 3, alive: true });
    expect(slots.find(C)).toBe(2);
  });

  it("a cell that left keeps its place until it has faded, then another takes it", () => {
    const slots = new Slots(COUNTS);
    slots.show(counts([A, 1]), 0);
    slots.show(new Map(), 0);
    expect(slots.list[0]).toMatchObject({ cell: A, value: 1, alive: false });
    expect(slots.find(A)).toBe(-1);
    slots.show(counts([B, 1]), FADE - 1);
    expect(slots.find(B)).toBe(1);
    slots.show(counts([B, 1], [C, 1]), FADE);
    expect(slots.find(C)).toBe(0);
    slots.show(counts([A, 4], [B, 1], [C, 1]), FADE + 1);
    expect(slots.find(A)).toBe(2);
    expect(slots.list).toHaveLength(3);
  });

  it("a cell that returns while it fades is the same again", () => {
    const slots = new Slots(COUNTS);
    slots.show(counts([A, 1]), 0);
    slots.show(new Map(), 10);
    slots.show(counts([A, 2]), 20);
    slots.show(counts([A, 2], [B, 1]), 20 + FADE);
    expect(slots.list.map(({ cell, alive }) => [cell, alive])).toEqual([[A, true], [B, true]]);
  });

  it("a cell that returns after it has faded keeps its place when another comes with it", () => {
    const slots = new Slots(COUNTS);
    slots.show(counts([A, 1]), 0);
    slots.show(new Map(), 10);
    slots.show(counts([A, 2], [B, 1]), 10 + FADE);
    expect(slots.list.filter(({ alive }) => alive).map(({ cell, value }) => [cell, value])).toEqual([[A, 2], [B, 1]]);
    expect([slots.find(A), slots.find(B)]).toEqual([0, 1]);
  });

  it("whatever comes and goes, the slots that are alive are the cells that are shown", () => {
    const slots = new Slots(COUNTS);
    const cells = Array.from({ length: 60 }, (_, index) => latLngToCell(60.1 + index / 100, 24.94, 9));
    let seed = 7;
    const random = () => (seed = (seed * 48_271) % 2_147_483_647) / 2_147_483_647;
    for (let now = 0; now < 200 * 300; now += 300) {
      const shown = counts(...cells.filter(() => random() < 0.15).map((cell): [string, number] => [cell, Math.ceil(random() * 5)]));
      slots.show(shown, now);
      expect(new Map(slots.list.filter(({ alive }) => alive).map(({ cell, values }) => [cell, values]))).toEqual(shown);
      expect([...shown.keys()].every((cell) => slots.list[slots.find(cell)]?.cell === cell)).toBe(true);
    }
  });

  it("nothing new leaves the list as it is, so that nothing is uploaded again", () => {
    const slots = new Slots(COUNTS);
    slots.show(counts([A, 1]), 0);
    const before = slots.list;
    expect(slots.show(counts([A, 1]), 5)).toBe(false);
    expect(slots.list).toBe(before);
  });
});

describe("what is drawn", () => {
  it("a delay is coloured by minutes", () => {
    expect(slotOf({ kind: "cells", unit: "s", values: ["p50"] }, A, [150]).value).toBe(2.5);
  });

  it("an arc leads to the cell that it names, and nowhere without one", () => {
    const arcs = { kind: "arcs", unit: "", values: ["count", "to"] };
    const { position, target } = slotOf(arcs, A, [3, B]);
    expect(target[1]).toBeGreaterThan(position[1]);
    expect(target).toEqual(slotOf(arcs, B, [1, A]).position);
    expect(slotOf(arcs, A, [3, null]).target).toEqual(position);
  });

  it("a point is where it says, and counts by how far it is from zero", () => {
    const slot = slotOf({ kind: "points", unit: "m/s²", values: ["deceleration", "speed_difference"] }, "12/7", [-4.5, 11, 24.9, 60.2, 1_000]);
    expect(slot).toMatchObject({ cell: "12/7", value: 4.5, position: [24.9, 60.2], alive: true });
  });
});
