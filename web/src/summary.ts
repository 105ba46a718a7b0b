/** The panel of figures: how much there is, of what time, how late, and whether the line stands. */

import { duration, figure, timeOfDay } from "./clock";
import type { LineState } from "./connection";
import { element, say } from "./elements";
import type { JobStatus } from "./messages";

/** What the panel says, computed elsewhere. */
export interface Facts {
  readonly line: LineState;
  readonly total: string;
  readonly noun: string;
  readonly where: string;
  /** The end of the window that is shown; null before the first result. */
  readonly time: number | null;
  readonly every: number;
  /** The job of this layer, where jobs run and it is none of them; else null. */
  readonly idle: string | null;
  /** What the server cannot show of this layer's results. */
  readonly problems: readonly string[];
  /** The server's clock, now. */
  readonly serverNow: number;
  /** This browser's clock, now. */
  readonly now: number;
}

export type Phase = "connecting" | "waiting" | "live" | "old" | "lost";

/** Data is old when several results in a row did not come. */
export const OLD = 20_000;

export function phaseOf(facts: Facts, everOpened: boolean): Phase {
  if (facts.line.phase !== "open") return everOpened || facts.line.phase === "waiting" ? "lost" : "connecting";
  if (facts.time === null) return "waiting";
  return facts.serverNow - facts.time > Math.max(OLD, 4 * facts.every) ? "old" : "live";
}

const SAID: Record<Phase, string> = { connecting: "Connecting", waiting: "Waiting for data", live: "Live", old: "Old data", lost: "Reconnecting" };

/** The sentence over the map; null when all is well. */
export function noticeFor(phase: Phase, facts: Facts): string | null {
  switch (phase) {
    case "waiting":
      return facts.idle === null ? "Connected. The first results appear when the first window is complete." : `Nothing to show yet: is ${facts.idle} running?`;
    case "old":
      return `Nothing new for ${duration(facts.serverNow - (facts.time ?? facts.serverNow))}: is the job running?`;
    case "lost":
      return facts.line.phase === "waiting"
        ? `The server does not answer. Next attempt in ${Math.max(0, Math.ceil((facts.line.retryAt - facts.now) / 1000))} s.`
        : "The server does not answer. Trying again …";
    default:
      return facts.problems[0] ?? null;
  }
}

export class Summary {
  #everOpened = false;
  #beaten = 0;

  show(facts: Facts): void {
    this.#everOpened ||= facts.line.phase === "open";
    const phase = phaseOf(facts, this.#everOpened);
    const state = element("state");
    state.dataset["phase"] = phase;
    say(state.lastElementChild as HTMLElement, SAID[phase]);
    document.querySelector("main")?.setAttribute("data-line", phase);
    this.#notice(phase, facts);
    say(element("title"), facts.noun);
    say(element("total"), facts.time === null ? "–" : facts.total);
    say(element("where"), facts.time === null ? "in view" : facts.where);
    if (facts.time === null) return;
    this.#pulse(facts.time);
    const time = element<HTMLTimeElement>("time");
    say(time, timeOfDay(facts.time));
    time.dateTime = new Date(facts.time).toISOString();
    const lag = facts.serverNow - facts.time;
    const said = element("lag");
    say(said, `${duration(lag)} behind now`);
    said.dataset["old"] = String(phase === "old");
    element("beat").style.transform = `scaleX(${Math.min(1, Math.max(0, (lag % facts.every) / facts.every))})`;
  }

  /** How the job that feeds the layer is doing. */
  job(status: JobStatus | undefined): void {
    const known = (value: number | null | undefined, text: (value: number) => string) => (typeof value === "number" ? text(value) : "–");
    say(element("events"), known(status?.events_per_s, figure));
    say(element("results"), known(status?.results_per_s, figure));
    say(element("latency"), known(status?.latency_ms, (ms) => (ms < 1000 ? `${Math.round(ms)} ms` : duration(ms))));
  }

  /** The dot beats once for each new window: seen to be alive, and nothing is drawn in between. */
  #pulse(time: number): void {
    if (time === this.#beaten) return;
    this.#beaten = time;
    const dot = element("state").firstElementChild;
    dot?.classList.remove("beats");
    requestAnimationFrame(() => dot?.classList.add("beats"));
  }

  #notice(phase: Phase, facts: Facts): void {
    const text = noticeFor(phase, facts);
    element("notice").hidden = text === null;
    if (text !== null) say(element("notice-text"), text);
    element("retry").hidden = phase !== "lost";
  }
}
