/** What the colours mean, and how many cells have each. */

import type { LayerInfo } from "./messages";
import { colour, type Step, steps, type Theme } from "./scale";
import { things, unitOf } from "./words";

/** How many of the values fall into each step. */
export function tally(values: Iterable<number>, classes: readonly Step[]): number[] {
  const counts = classes.map(() => 0);
  for (const value of values) {
    const index = classes.findIndex(({ from, until }) => value >= from && value < until);
    if (index >= 0) counts[index] = (counts[index] ?? 0) + 1;
  }
  return counts;
}

export class Legend {
  #drawn = "";

  constructor(private readonly list: HTMLElement) {}

  show(values: readonly number[], top: number, theme: Theme, info: LayerInfo): void {
    const classes = steps(top, info.unit === "");
    if (this.#drawn !== `${info.name} ${top} ${theme}`) this.#draw(classes, top, theme, info);
    const counts = tally(values, classes);
    const most = Math.max(1, ...counts);
    for (const [index, item] of [...this.list.children].entries()) {
      const count = counts[index] ?? 0;
      const bar = item.querySelector<HTMLElement>(".bar i");
      if (bar) bar.style.height = `${Math.round((count / most) * 100)}%`;
      const said = `${classes[index]?.label} ${unitOf(info)}: ${count} ${things(info)}`;
      item.setAttribute("aria-label", said);
      item.setAttribute("title", said);
    }
  }

  #draw(classes: readonly Step[], top: number, theme: Theme, info: LayerInfo): void {
    this.#drawn = `${info.name} ${top} ${theme}`;
    this.list.replaceChildren(
      ...classes.map(({ from, label }) => {
        const item = document.createElement("li");
        const paint = `rgb(${colour(from, top, theme).join(" ")})`;
        item.innerHTML = '<div class="bar"><i></i></div><div class="key"></div><span></span>';
        for (const part of item.querySelectorAll<HTMLElement>("i, .key")) part.style.background = paint;
        const text = item.querySelector("span");
        if (text) text.textContent = label;
        return item;
      }),
    );
  }
}
