/** The greatest values as a table: the map for those who do not see it, and for those who like numbers. */

import { element, say } from "./elements";
import type { LayerInfo } from "./messages";
import { colour, type Theme } from "./scale";
import type { Slot } from "./slots";
import { capital, unitOf, valueOf } from "./words";

const ROWS = 25;

/** The cells with the largest values, then by name, so that rows do not dance. */
export function busiest(slots: readonly Slot[], rows = ROWS): Slot[] {
  return slots
    .filter((slot) => slot.alive)
    .sort((one, other) => other.value - one.value || (one.cell < other.cell ? -1 : 1))
    .slice(0, rows);
}

export interface TableEvents {
  /** A cell was chosen, to be flown to. */
  readonly chosen: (slot: Slot) => void;
  /** A cell has the focus or the pointer; null when none has. */
  readonly marked: (cell: string | null) => void;
}

export class CellTable {
  readonly #panel = element("table");
  readonly #rows = element("rows");
  readonly #opener = element("open-table");

  constructor(private readonly events: TableEvents) {
    this.#opener.addEventListener("click", () => this.toggle(!this.open));
    element("close-table").addEventListener("click", () => this.toggle(false));
    this.#panel.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.toggle(false);
    });
  }

  get open(): boolean {
    return !this.#panel.hidden;
  }

  onOpen: () => void = () => undefined;

  toggle(open: boolean): void {
    this.#panel.hidden = !open;
    this.#opener.setAttribute("aria-expanded", String(open));
    if (open) {
      this.onOpen();
      element("close-table").focus();
    } else {
      this.events.marked(null);
      this.#opener.focus();
    }
  }

  /** Rows are changed in place, so that the one with the focus keeps it. */
  show(info: LayerInfo, slots: readonly Slot[], top: number, theme: Theme): void {
    if (!this.open) return;
    const point = info.kind === "points";
    const heads = [point ? "Vehicle" : "Cell", info.kind === "arcs" ? "To" : point ? "Place" : "Centre", capital(unitOf(info))];
    for (const [index, head] of [...element("heads").children].entries()) say(head as HTMLElement, heads[index] ?? "");
    say(element("table-title"), `${info.title}, the greatest in view`);
    const shown = busiest(slots);
    while (this.#rows.children.length > shown.length) this.#rows.lastElementChild?.remove();
    while (this.#rows.children.length < shown.length) this.#rows.append(row());
    for (const [index, slot] of shown.entries()) this.#fill(this.#rows.children[index] as HTMLTableRowElement, info, slot, top, theme);
  }

  #fill(target: HTMLTableRowElement, info: LayerInfo, slot: Slot, top: number, theme: Theme): void {
    const [name, centre, value] = target.cells;
    const button = name?.querySelector("button");
    if (!name || !centre || !value || !button) return;
    say(button.querySelector("span") as HTMLElement, slot.cell);
    (button.querySelector("i") as HTMLElement).style.background = `rgb(${colour(slot.value, top, theme).join(" ")})`;
    const to = info.kind === "arcs" ? slot.values[info.values.indexOf("to")] : null;
    say(centre, typeof to === "string" ? to : `${slot.position[1].toFixed(3)}, ${slot.position[0].toFixed(3)}`);
    say(value, valueOf(info, slot));
    button.onclick = () => this.events.chosen(slot);
    button.onfocus = button.onmouseenter = () => this.events.marked(slot.cell);
    button.onblur = button.onmouseleave = () => this.events.marked(null);
  }
}

function row(): HTMLTableRowElement {
  const made = document.createElement("tr");
  made.innerHTML = '<td><button type="button" title="Show on the map"><i aria-hidden="true"></i><span></span></button></td><td></td><td class="number"></td>';
  return made;
}
