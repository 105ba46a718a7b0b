/** What time it is at the server, and how old the data is. */

const REMEMBERED = 30;

/** The server's clock, from what it says it is when messages arrive: the quickest message is nearest to the truth. */
export class ServerClock {
  #offsets: number[] = [];

  heard(serverNow: number, now: number): void {
    this.#offsets = [...this.#offsets.slice(1 - REMEMBERED), serverNow - now];
  }

  at(now: number): number {
    return now + (this.#offsets.length > 0 ? Math.max(...this.#offsets) : 0);
  }
}

/** "2.4 s", "48 s", "3 min 20 s", "5 h 3 min". */
export function duration(ms: number): string {
  const seconds = Math.max(0, ms) / 1000;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

const TIME = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

/** The time of day, in the viewer's zone. */
export function timeOfDay(ms: number): string {
  return TIME.format(ms);
}

const COUNT = new Intl.NumberFormat("en-GB");
const SMALL = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 1 });

export function figure(value: number): string {
  return Math.abs(value) < 10 ? SMALL.format(value) : COUNT.format(Math.round(value));
}
