/** What is known of what is under the pointer. */

import { timeOfDay } from "./clock";
import { element } from "./elements";
import type { LayerInfo } from "./messages";
import type { Slot } from "./slots";
import { capital, nouns, told, valueOf } from "./words";

export interface Window {
  readonly start: number;
  readonly end: number;
}

/** Names and what they are, from top to bottom. */
export function facts(info: LayerInfo, slot: Slot, window: Window): [string, string][] {
  const [longitude, latitude] = slot.position;
  const point = info.kind === "points";
  const place = `${latitude.toFixed(4)}, ${longitude.toFixed(4)}`;
  const others = info.values.map((name, index): [string, string] => [capital(name), told(info, name, slot.values[index])]).slice(1);
  const time = point ? timeOfDay(Number(slot.values.at(-1))) : `${timeOfDay(window.start)} – ${timeOfDay(window.end)}`;
  return [[point ? "Vehicle" : "Cell", slot.cell], [point ? "Place" : "Centre", place], ...others, [point ? "Time" : "Newest window", time]];
}

export class Details {
  readonly #panel = element("details");

  hide(): void {
    this.#panel.hidden = true;
  }

  /** Beside the pointer, on the side where there is room. */
  show(info: LayerInfo, slot: Slot, window: Window, x: number, y: number): void {
    const head = document.createElement("p");
    head.innerHTML = "<b></b> <span class='quiet'></span>";
    (head.firstElementChild as HTMLElement).textContent = valueOf(info, slot);
    (head.lastElementChild as HTMLElement).textContent = info.unit === "" ? nouns(info, slot.value) : info.legend.toLowerCase();
    const list = document.createElement("dl");
    for (const [name, text] of facts(info, slot, window)) {
      list.append(document.createElement("dt"), document.createElement("dd"));
      (list.lastElementChild as HTMLElement).textContent = text;
      (list.lastElementChild?.previousElementSibling as HTMLElement).textContent = name;
    }
    this.#panel.replaceChildren(head, list);
    this.#panel.hidden = false;
    const { offsetWidth: width, offsetHeight: height } = this.#panel;
    const left = x + 18 + width > innerWidth ? x - 18 - width : x + 18;
    const top = Math.min(Math.max(8, y - height / 2), innerHeight - height - 8);
    this.#panel.style.transform = `translate(${Math.max(8, left)}px, ${top}px)`;
  }
}
