/** Which layer is shown: the viewer's choice among those of the server. It is part of the page's address. */

import { element } from "./elements";
import type { LayerInfo } from "./messages";

const NAME = "layer";

/** The layer of that name; the first where there is none of it. */
export function find(layers: readonly LayerInfo[], name: string | null): LayerInfo | undefined {
  return layers.find((layer) => layer.name === name) ?? layers[0];
}

export class Layers {
  onChosen: (layer: LayerInfo) => void = () => undefined;

  readonly #panel = element("layers");
  #offered: readonly LayerInfo[] = [];

  /** Offers these; the one that the address names, or the first, is chosen. */
  offer(layers: readonly LayerInfo[]): LayerInfo | undefined {
    const chosen = find(layers, new URL(location.href).searchParams.get(NAME));
    if (JSON.stringify(layers) !== JSON.stringify(this.#offered)) this.#panel.replaceChildren(...layers.map((layer) => this.#choice(layer)));
    this.#offered = layers;
    this.#panel.hidden = layers.length < 2;
    for (const input of this.#panel.querySelectorAll("input")) {
      input.checked = input.value === chosen?.name;
      if (input.checked) input.parentElement?.scrollIntoView({ block: "nearest", inline: "center" });
    }
    return chosen;
  }

  #choice(layer: LayerInfo): HTMLElement {
    const made = document.createElement("label");
    made.innerHTML = `<input type="radio" name="${NAME}" class="unseen" /><span></span>`;
    const [input, text] = [made.querySelector("input"), made.querySelector("span")];
    if (!input || !text) throw new Error("a choice has a button and a text");
    input.value = layer.name;
    text.textContent = layer.title;
    input.addEventListener("change", () => {
      const address = new URL(location.href);
      address.searchParams.set(NAME, layer.name);
      history.replaceState(history.state, "", address);
      this.onChosen(layer);
    });
    return made;
  }
}
