/** How a kind of layer is drawn. Cells are hexagons; another kind is another function in DRAWN. */

import type { Layer, PickingInfo } from "@deck.gl/core";
import { H3HexagonLayer } from "@deck.gl/geo-layers";

import { colour, share, type Theme } from "./scale";
import { FADE, type Slot } from "./slots";

/** What drawing depends on besides the data. */
export interface Look {
  readonly theme: Theme;
  readonly top: number;
  readonly relief: boolean;
  readonly marked: number;
  readonly beforeId: string | undefined;
  readonly still: boolean;
}

export type Hover = (info: PickingInfo<Slot>) => void;

const TALLEST = 2_600;

function hexagons(id: string, slots: readonly Slot[], look: Look, onHover: Hover): Layer {
  const fill = (slot: Slot): [number, number, number, number] => {
    const [red, green, blue] = colour(slot.value, look.top, look.theme);
    return [red, green, blue, slot.alive ? (look.theme === "dark" ? 215 : 225) : 0];
  };
  const fade = { duration: look.still ? 0 : FADE, easing: (at: number) => 1 - (1 - at) ** 3 };
  return new H3HexagonLayer<Slot>({
    id,
    data: slots as Slot[],
    beforeId: look.beforeId,
    getHexagon: (slot) => slot.cell,
    getFillColor: fill,
    getElevation: (slot) => (slot.alive ? 60 + TALLEST * share(slot.value, look.top) ** 1.3 : 0),
    extruded: look.relief,
    coverage: 0.92,
    stroked: false,
    material: { ambient: 0.65, diffuse: 0.5, shininess: 24 },
    pickable: true,
    onHover,
    onClick: onHover,
    highlightedObjectIndex: look.marked,
    highlightColor: look.theme === "dark" ? [255, 255, 255, 150] : [20, 12, 40, 130],
    updateTriggers: { getFillColor: [look.theme, look.top], getElevation: [look.top] },
    transitions: {
      getFillColor: { ...fade, enter: ([red = 0, green = 0, blue = 0]: number[]) => [red, green, blue, 0] },
      getElevation: { ...fade, enter: () => [0] },
    },
  } as ConstructorParameters<typeof H3HexagonLayer<Slot>>[0]);
}

export const DRAWN: Record<string, typeof hexagons> = { cells: hexagons };
