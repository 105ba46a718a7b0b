/** What the server and the page say to each other over `/api/live`. */

/** A layer of the map, as the server announces it. `kind` says how it is drawn. */
export interface LayerInfo {
  readonly name: string;
  readonly title: string;
  /** Where its results come from. */
  readonly topic: string;
  readonly kind: string;
  readonly window_ms: number;
  readonly every_ms: number;
  /** What is counted, in the plural. */
  readonly noun: string;
  /** What the first value means. */
  readonly legend: string;
  /** Of the first value; empty where it is a count. */
  readonly unit: string;
  /** The names of the values. */
  readonly values: readonly string[];
}

/** West, south, east, north, in degrees. */
export type Box = readonly [number, number, number, number];

export type Value = number | string | null;

/** A geocell, or what else a layer has a result for, and its values. Of points, longitude, latitude and time come after them. */
export type Cell = readonly [cell: string, ...values: Value[]];

/** The whole content of a web-mercator tile, in place of what was there. */
export interface Tile {
  readonly tile: string;
  readonly cells: readonly Cell[];
}

/** How a job is doing. A figure that is not known yet is null, or left out. */
export interface JobStatus {
  readonly job: string;
  /** The topics of its results. */
  readonly writes?: readonly string[];
  readonly watermark?: number | null;
  readonly lag_events?: number | null;
  readonly events_per_s?: number | null;
  readonly results_per_s?: number | null;
  readonly latency_ms?: number | null;
  readonly last_batch_at?: number | null;
}

export interface Hello {
  readonly type: "hello";
  readonly layers: readonly LayerInfo[];
  readonly tick_ms: number;
}

export interface Tick {
  readonly type: "tick";
  readonly layer: string;
  /** The end of the window that is shown; null before the first result. */
  readonly time: number | null;
  readonly now: number;
  readonly tiles: readonly Tile[];
}

export interface Status {
  readonly type: "status";
  readonly now: number;
  readonly jobs: readonly JobStatus[];
  /** By layer: results that cannot be shown as they are, each kind in a sentence. */
  readonly problems?: Readonly<Record<string, readonly string[]>>;
}

export interface Refusal {
  readonly type: "error";
  readonly error: string;
}

export type ServerMessage = Hello | Tick | Status | Refusal;

/** Replaces whatever was subscribed to before. */
export interface Subscription {
  readonly layers: readonly string[];
  readonly box: Box;
}

const LISTS: Record<string, string | null> = { hello: "layers", tick: "tiles", status: "jobs", error: null };

/** The message in a frame; null for anything else, such as what a newer server may say. */
export function parse(text: string): ServerMessage | null {
  let message: unknown;
  try {
    message = JSON.parse(text);
  } catch {
    return null;
  }
  if (typeof message !== "object" || message === null || !("type" in message)) return null;
  const list = LISTS[String(message.type)];
  if (list === undefined) return null;
  if (list !== null && !Array.isArray((message as Record<string, unknown>)[list])) return null;
  return message as ServerMessage;
}
