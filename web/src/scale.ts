/** From values to colours: by the logarithm, since most cells hold one vehicle and a few hold many. */

export type Colour = readonly [red: number, green: number, blue: number];
export type Theme = "light" | "dark";

/** Few to many. On a dark map many is bright, on a light one dark, so that the eye goes to the same places. */
const RAMPS: Record<Theme, readonly Colour[]> = {
  dark: [[88, 80, 196], [134, 78, 204], [188, 78, 184], [229, 89, 136], [251, 137, 97], [254, 196, 120], [255, 244, 200]],
  light: [[253, 205, 150], [251, 160, 115], [238, 108, 107], [203, 68, 122], [149, 44, 130], [95, 28, 121], [44, 12, 84]],
};

const SMALLEST_TOP = 8;

/** The power of two at which the ramp ends: it follows the largest value up at once and down only when far too large. */
export function topFor(largest: number, before: number): number {
  const needed = Math.max(SMALLEST_TOP, 2 ** Math.ceil(Math.log2(Math.max(1, largest))));
  return needed > before || needed < before / 2 ? needed : before;
}

/** Where a value stands between 1 and the top, from 0 to 1. */
export function share(value: number, top: number): number {
  return Math.min(1, Math.max(0, Math.log2(Math.max(1, value)) / Math.log2(top)));
}

export function colour(value: number, top: number, theme: Theme): Colour {
  const ramp = RAMPS[theme];
  const at = share(value, top) * (ramp.length - 1);
  const low = Math.floor(at);
  const [from, to] = [ramp[low], ramp[Math.min(low + 1, ramp.length - 1)]];
  if (!from || !to) throw new RangeError(`no colour for ${value} of ${top}`);
  const mix = (channel: 0 | 1 | 2) => Math.round(from[channel] + (to[channel] - from[channel]) * (at - low));
  return [mix(0), mix(1), mix(2)];
}

/** A class of the legend: values from `from` up to, not including, `until`. */
export interface Step {
  readonly from: number;
  readonly until: number;
  readonly label: string;
}

/** One step for each doubling, the first and the last one open. Counts are whole; of what is measured, a step ends where the next begins. */
export function steps(top: number, counts = true): Step[] {
  const powers = Array.from({ length: Math.round(Math.log2(top)) + 1 }, (_, power) => 2 ** power);
  return powers.map((power) => {
    const from = power === 1 ? -Infinity : power;
    const until = power === top ? Infinity : power * 2;
    const last = counts ? until - 1 : until;
    const label = until === Infinity ? `${power}+` : last === power ? `${power}` : power === 1 ? `<${until}` : `${power}–${last}`;
    return { from, until, label };
  });
}
