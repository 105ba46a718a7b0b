/** The line to the server: opened again by itself whenever it breaks, with the newest subscription. */

import { parse, type ServerMessage, type Subscription } from "./messages";

export type LineState =
  | { readonly phase: "connecting" }
  | { readonly phase: "open" }
  | { readonly phase: "waiting"; readonly retryAt: number };

/** As much of a WebSocket as is used. */
export interface Line {
  send(text: string): void;
  close(): void;
  onopen: (() => void) | null;
  onmessage: ((event: { data: unknown }) => void) | null;
  onclose: (() => void) | null;
}

/** Everything from outside, so that tests hold the clock and the line. */
export interface Surroundings {
  readonly dial: () => Line;
  readonly now: () => number;
  readonly later: (ms: number, then: () => void) => () => void;
  readonly random: () => number;
}

const FIRST_DELAY = 500;
const LONGEST_DELAY = 8_000;
/** The server says something every second; a line on which nothing came for this long is dead, whatever the network believes. */
export const SILENCE = 6_000;

/** How long to wait before the given attempt: doubled each time, up to a limit, and spread so that viewers do not return all at once. */
export function delayBefore(attempt: number, random: number): number {
  return Math.round(Math.min(LONGEST_DELAY, FIRST_DELAY * 2 ** Math.min(attempt - 1, 10)) * (0.7 + 0.6 * random));
}

export class Connection {
  onMessage: (message: ServerMessage) => void = () => undefined;
  onState: (state: LineState) => void = () => undefined;

  #line: Line | null = null;
  #state: LineState = { phase: "connecting" };
  #attempts = 0;
  #subscription: Subscription | null = null;
  #cancelTimer: () => void = () => undefined;

  constructor(private readonly surroundings: Surroundings) {}

  get state(): LineState {
    return this.#state;
  }

  /** Opens the line now, without waiting any longer; nothing happens while one is open or opening. */
  open(): void {
    if (this.#line) return;
    this.#cancelTimer();
    this.#attempts += 1;
    this.#become({ phase: "connecting" });
    const line = this.surroundings.dial();
    this.#line = line;
    line.onopen = () => this.#opened(line);
    line.onmessage = (event) => this.#heard(line, event.data);
    line.onclose = () => this.#lost(line);
    this.#expectSomething(line);
  }

  /** Asks for these layers in this box, now and after every reconnect, until told otherwise. */
  subscribe(subscription: Subscription): void {
    this.#subscription = subscription;
    if (this.#state.phase === "open") this.#line?.send(JSON.stringify(subscription));
  }

  #opened(line: Line): void {
    if (line !== this.#line) return;
    this.#become({ phase: "open" });
    if (this.#subscription) line.send(JSON.stringify(this.#subscription));
    this.#expectSomething(line);
  }

  #heard(line: Line, data: unknown): void {
    if (line !== this.#line) return;
    this.#expectSomething(line);
    const message = typeof data === "string" ? parse(data) : null;
    if (!message) return;
    this.#attempts = 0;
    this.onMessage(message);
  }

  #lost(line: Line): void {
    if (line !== this.#line) return;
    this.#line = null;
    this.#cancelTimer();
    const delay = delayBefore(Math.max(1, this.#attempts), this.surroundings.random());
    this.#become({ phase: "waiting", retryAt: this.surroundings.now() + delay });
    this.#cancelTimer = this.surroundings.later(delay, () => this.open());
  }

  #expectSomething(line: Line): void {
    this.#cancelTimer();
    this.#cancelTimer = this.surroundings.later(SILENCE, () => {
      this.#lost(line);
      line.close();
    });
  }

  #become(state: LineState): void {
    this.#state = state;
    this.onState(state);
  }
}

/** The browser's own clock and WebSocket. */
export function browser(url: string): Surroundings {
  return {
    dial: () => new WebSocket(url) as unknown as Line,
    now: () => Date.now(),
    later: (ms, then) => {
      const timer = window.setTimeout(then, ms);
      return () => window.clearTimeout(timer);
    },
    random: () => Math.random(),
  };
}

/** `ws://host/api/live` beside the page, whatever path it is served under. */
export function liveUrl(page: string): string {
  const url = new URL("api/live", page);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  url.search = url.hash = "";
  return url.href;
}
