import { describe, expect, it } from "vitest";

import { duration, figure, ServerClock } from "../src/clock";
import { facts } from "../src/details";
import { find } from "../src/layers";
import { tally } from "../src/legend";
import type { LayerInfo } from "../src/messages";
import { colour, share, steps, topFor } from "../src/scale";
import { slotOf } from "../src/slots";
import { type Facts, noticeFor, phaseOf } from "../src/summary";
import { busiest } from "../src/table";
import { next } from "../src/theme";
import { jobOf, nouns, told, total, where } from "../src/words";

describe("the scale", () => {
  it("begins at one, ends at the top, and is even by doublings", () => {
    expect([1, 2, 4, 16, 99].map((value) => share(value, 16))).toEqual([0, 0.25, 0.5, 1, 1]);
  });

  it("follows the largest value up at once, and down only when it is far too large", () => {
    expect(topFor(3, 0)).toBe(8);
    expect(topFor(9, 8)).toBe(16);
    expect(topFor(8, 16)).toBe(16);
    expect(topFor(8, 64)).toBe(8);
  });

  it("has a step for each doubling, the last one open", () => {
    expect(steps(8).map(({ label }) => label)).toEqual(["1", "2–3", "4–7", "8+"]);
    expect(tally([1, 1, 2, 3, 7, 8, 900], steps(8))).toEqual([2, 2, 1, 2]);
    expect(steps(8, false).map(({ label }) => label)).toEqual(["<2", "2–4", "4–8", "8+"]);
    expect(tally([-3, 0.5, 3.9, 8], steps(8, false))).toEqual([2, 1, 0, 1]);
  });

  it.each(["dark", "light"] as const)("more is further from the ground on a %s map", (theme) => {
    const brightness = [1, 2, 4, 8].map((value) => colour(value, 8, theme).reduce((sum, channel) => sum + channel, 0));
    const sorted = [...brightness].sort((one, other) => (theme === "dark" ? one - other : other - one));
    expect(brightness).toEqual(sorted);
  });
});

describe("the clock", () => {
  it("believes the quickest message", () => {
    const clock = new ServerClock();
    expect(clock.at(100)).toBe(100);
    clock.heard(5_000, 1_000);
    clock.heard(5_900, 2_000);
    expect(clock.at(3_000)).toBe(7_000);
  });

  it("forgets what was long ago, so that a clock set anew is followed", () => {
    const clock = new ServerClock();
    clock.heard(5_000, 1_000);
    for (let second = 0; second < 30; second += 1) clock.heard(2_000, 1_000);
    expect(clock.at(0)).toBe(1_000);
  });

  it("says durations and figures as people do", () => {
    expect([-5, 2_440, 9_940, 9_960, 59_400, 200_000, 18_180_000].map(duration)).toEqual(["0.0 s", "2.4 s", "9.9 s", "10 s", "59 s", "3 min 20 s", "5 h 3 min"]);
    expect([0, 3.14, 1234.5].map(figure)).toEqual(["0", "3.1", "1,235"]);
  });
});

describe("the state of the page", () => {
  const facts: Facts = { line: { phase: "open" }, total: "1", noun: "vehicle", where: "in view", time: 100_000, every: 5_000, idle: null, problems: [], serverNow: 104_000, now: 0 };

  it("is live while results come, old when several did not, and lost without a line", () => {
    expect(phaseOf(facts, true)).toBe("live");
    expect(phaseOf({ ...facts, serverNow: 120_001 }, true)).toBe("old");
    expect(phaseOf({ ...facts, time: null }, true)).toBe("waiting");
    expect(phaseOf({ ...facts, line: { phase: "connecting" } }, true)).toBe("lost");
    expect(phaseOf({ ...facts, line: { phase: "connecting" } }, false)).toBe("connecting");
    expect(phaseOf({ ...facts, line: { phase: "waiting", retryAt: 0 } }, false)).toBe("lost");
  });

  it("says what is wrong and what happens next", () => {
    expect(noticeFor("live", facts)).toBeNull();
    expect(noticeFor("live", { ...facts, problems: ["1 result: geocell=5 is not an H3 cell"] })).toBe("1 result: geocell=5 is not an H3 cell");
    expect(noticeFor("waiting", facts)).toContain("when the first window is complete");
    expect(noticeFor("waiting", { ...facts, idle: "flow-direction" })).toBe("Nothing to show yet: is flow-direction running?");
    expect(noticeFor("lost", { ...facts, line: { phase: "waiting", retryAt: 2_100 } })).toBe("The server does not answer. Next attempt in 3 s.");
    expect(noticeFor("old", { ...facts, serverNow: 125_000 })).toBe("Nothing new for 25 s: is the job running?");
  });
});

it("the table has the busiest cells first, equal ones by name, and none that has left", () => {
  const slot = (cell: string, value: number, alive = true) => ({ cell, value, values: [value], alive, position: [0, 0] as const, target: [0, 0] as const });
  const rows = busiest([slot("c", 1), slot("b", 1), slot("a", 9, false), slot("d", 4)], 3);
  expect(rows.map(({ cell }) => cell)).toEqual(["d", "b", "c"]);
});

it("colours go round: as the system, light, dark", () => {
  expect(next("system")).toBe("light");
  expect(next("light")).toBe("dark");
  expect(next("dark")).toBe("system");
});

describe("what is said of a layer", () => {
  const layer = (more: Partial<LayerInfo>): LayerInfo => ({
    name: "a", title: "A", topic: "as", kind: "cells", window_ms: 30_000, every_ms: 5_000, noun: "vehicles", legend: "A", unit: "", values: ["count"], ...more,
  });
  const delays = layer({ name: "delays", noun: "arrivals", unit: "s", values: ["p50", "p90", "count"] });
  const stops = layer({ kind: "points", noun: "emergency stops", unit: "m/s²", values: ["deceleration", "speed_difference"] });
  const cell = "8911269a2cbffff";

  it("one is said otherwise than many", () => {
    expect([nouns(stops, 1), nouns(stops, 2), where(layer({}), 1), where(delays, 1200)]).toEqual(
      ["emergency stop", "emergency stops", "in 1 cell, in view", "in 1,200 cells, in view"],
    );
  });

  it("durations are said as such, and early is not late", () => {
    expect([told(delays, "p90", 150), told(delays, "p50", -20), told(delays, "count", 3), told(delays, "p50", null)]).toEqual(["2 min 30 s", "20 s early", "3", "–"]);
    expect(told(stops, "deceleration", -4.52)).toBe("-4.5 m/s²");
    expect(told(layer({ unit: "°C", values: ["mean"] }), "mean", -5)).toBe("-5 °C");
  });

  it("the sum is of what was counted, else of results", () => {
    const two = [slotOf(delays, cell, [10, 20, 7]), slotOf(delays, cell, [10, 20, 5])];
    expect(total(delays, two)).toBe(12);
    expect(total(stops, two)).toBe(2);
    const named = layer({ values: ["vehicles"] });
    expect(total(named, [slotOf(named, cell, [3]), slotOf(named, cell, [4])])).toBe(7);
  });

  it("a point tells who, where and when", () => {
    const told = facts(stops, slotOf(stops, "12/7", [-4.5, 11.25, 24.9, 60.2, 0]), { start: 0, end: 0 });
    expect(told.slice(0, 3)).toEqual([["Vehicle", "12/7"], ["Place", "60.2000, 24.9000"], ["Speed difference", "11"]]);
    expect(told[3]?.[0]).toBe("Time");
  });

  it("the figures are those of the job that writes the layer's topic, of several runs the one that is newest", () => {
    const job = (name: string, writes: string[], at: number) => ({ job: name, writes, last_batch_at: at });
    const flow = layer({ name: "flow", topic: "flows" });
    expect(jobOf(flow, [job("other", ["counts"], 9)])).toBeUndefined();
    expect(jobOf(flow, [job("other", ["counts"], 9), job("mine", ["flows"], 2), job("mine", ["flows"], 5), job("mine", ["flows"], 3)])?.last_batch_at).toBe(5);
    expect(jobOf(flow, [job("flow", ["flows@v2"], 1)])?.job).toBe("flow");
  });

  it("the layer of an address is found, and the first where there is none", () => {
    expect(find([layer({}), delays], "delays")).toBe(delays);
    expect(find([layer({}), delays], "trains")?.name).toBe("a");
    expect(find([], null)).toBeUndefined();
  });
});
