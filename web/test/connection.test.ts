import { beforeEach, describe, expect, it } from "vitest";

import { Connection, delayBefore, type Line, liveUrl, SILENCE } from "../src/connection";
import type { ServerMessage } from "../src/messages";

class FakeLine implements Line {
  sent: unknown[] = [];
  closed = false;
  onopen: (() => void) | null = null;
  onmessage: ((event: { data: unknown }) => void) | null = null;
  onclose: (() => void) | null = null;
  send(text: string): void {
    this.sent.push(JSON.parse(text));
  }
  close(): void {
    this.closed = true;
    this.onclose?.();
  }
}

/** A clock that moves when told, with what is due at each moment. */
class Time {
  now = 0;
  #due: { at: number; then: () => void }[] = [];
  later(ms: number, then: () => void): () => void {
    const entry = { at: this.now + ms, then };
    this.#due.push(entry);
    return () => (this.#due = this.#due.filter((other) => other !== entry));
  }
  pass(ms: number): void {
    const until = this.now + ms;
    for (;;) {
      const [next] = this.#due.filter(({ at }) => at <= until).sort((one, other) => one.at - other.at);
      if (!next) break;
      this.#due = this.#due.filter((other) => other !== next);
      this.now = next.at;
      next.then();
    }
    this.now = until;
  }
}

const BOX = { layers: ["vehicle-distribution"], box: [24, 60, 25, 61] as const };
const STATUS = JSON.stringify({ type: "status", now: 1, jobs: [] });
let time: Time;
let lines: FakeLine[];
let heard: ServerMessage[];
let connection: Connection;
const newest = (): FakeLine => lines.at(-1) as FakeLine;

beforeEach(() => {
  time = new Time();
  lines = [];
  heard = [];
  connection = new Connection({
    dial: () => {
      lines.push(new FakeLine());
      return newest();
    },
    now: () => time.now,
    later: (ms, then) => time.later(ms, then),
    random: () => 0.5,
  });
  connection.onMessage = (message) => heard.push(message);
  connection.open();
});

describe("a connection", () => {
  it("sends the newest subscription as soon as the line is open", () => {
    connection.subscribe({ ...BOX, box: [0, 0, 1, 1] });
    connection.subscribe(BOX);
    newest().onopen?.();
    expect(newest().sent).toEqual([BOX]);
  });

  it("sends a change of subscription at once while the line is open", () => {
    newest().onopen?.();
    connection.subscribe(BOX);
    expect(newest().sent).toEqual([BOX]);
  });

  it("opens a lost line again by itself and subscribes again", () => {
    connection.subscribe(BOX);
    newest().onopen?.();
    newest().close();
    expect(connection.state).toEqual({ phase: "waiting", retryAt: 500 });
    time.pass(500);
    expect(lines).toHaveLength(2);
    newest().onopen?.();
    expect(newest().sent).toEqual([BOX]);
    expect(connection.state.phase).toBe("open");
  });

  it("waits longer after each failure, and briefly again after it has heard something", () => {
    const waited: number[] = [];
    for (let round = 0; round < 7; round += 1) {
      newest().close();
      const state = connection.state;
      if (state.phase !== "waiting") throw new Error(state.phase);
      waited.push(state.retryAt - time.now);
      time.pass(state.retryAt - time.now);
    }
    expect(waited).toEqual([500, 1000, 2000, 4000, 8000, 8000, 8000]);
    newest().onopen?.();
    newest().onmessage?.({ data: STATUS });
    newest().close();
    expect(connection.state).toEqual({ phase: "waiting", retryAt: time.now + 500 });
  });

  it("takes a silent line for dead, also one that never opens", () => {
    time.pass(SILENCE);
    expect(lines[0]?.closed).toBe(true);
    time.pass(500);
    newest().onopen?.();
    time.pass(SILENCE - 1);
    newest().onmessage?.({ data: STATUS });
    time.pass(SILENCE - 1);
    expect(connection.state.phase).toBe("open");
    time.pass(1);
    expect(connection.state.phase).toBe("waiting");
  });

  it("goes back to work at once when told that there is a network", () => {
    newest().close();
    connection.open();
    expect(lines).toHaveLength(2);
    time.pass(500);
    expect(lines).toHaveLength(2);
  });

  it("ignores what an abandoned line still says", () => {
    time.pass(SILENCE + 500);
    lines[0]?.onmessage?.({ data: STATUS });
    lines[0]?.onopen?.();
    expect(heard).toEqual([]);
    expect(connection.state.phase).toBe("connecting");
  });

  it("is not stopped by words it does not know", () => {
    newest().onopen?.();
    for (const data of ["{", "null", '{"type": "news"}', '{"type": "tick"}', new ArrayBuffer(3)]) newest().onmessage?.({ data });
    newest().onmessage?.({ data: STATUS });
    expect(heard.map((message) => message.type)).toEqual(["status"]);
  });
});

it("waits are spread around their length", () => {
  expect([delayBefore(1, 0), delayBefore(1, 1)]).toEqual([350, 650]);
  expect(delayBefore(99, 1)).toBeLessThan(11_000);
});

it("the live address is beside the page, secure when the page is", () => {
  expect(liveUrl("http://127.0.0.1:8080/#11/60.2/24.9")).toBe("ws://127.0.0.1:8080/api/live");
  expect(liveUrl("https://example.org/map/?x=1")).toBe("wss://example.org/map/api/live");
});
