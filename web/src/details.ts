/** What is known of the cell under the pointer. */

import { timeOfDay } from "./clock";
import { element } from "./elements";
import type { Slot } from "./slots";

export interface Window {
  readonly start: number;
  readonly end: number;
}

export class Details {
  readonly #panel = element("details");

  hide(): void {
    this.#panel.hidden = true;
  }

  /** Beside the pointer, on the side where there is room. */
  show(slot: Slot, window: Window, x: number, y: number): void {
    const [longitude, latitude] = slot.position;
    this.#panel.innerHTML = "<p><b></b> <span class='quiet'></span></p><dl><dt>Cell</dt><dd></dd><dt>Centre</dt><dd></dd><dt>Newest window</dt><dd></dd></dl>";
    const [value, unit] = [this.#panel.querySelector("b"), this.#panel.querySelector("span")];
    if (value) value.textContent = String(slot.value);
    if (unit) unit.textContent = slot.value === 1 ? "vehicle" : "vehicles";
    const facts = [slot.cell, `${latitude.toFixed(4)}, ${longitude.toFixed(4)}`, `${timeOfDay(window.start)} – ${timeOfDay(window.end)}`];
    for (const [index, item] of [...this.#panel.querySelectorAll("dd")].entries()) item.textContent = facts[index] ?? "";
    this.#panel.hidden = false;
    const { offsetWidth: width, offsetHeight: height } = this.#panel;
    const left = x + 18 + width > innerWidth ? x - 18 - width : x + 18;
    const top = Math.min(Math.max(8, y - height / 2), innerHeight - height - 8);
    this.#panel.style.transform = `translate(${Math.max(8, left)}px, ${top}px)`;
  }
}
