/** How a kind of layer is drawn: cells as hexagons, arcs from cell to cell, points. Another kind is another function in DRAWN. */

import type { Layer, PickingInfo } from "@deck.gl/core";
import { H3HexagonLayer } from "@deck.gl/geo-layers";
import { ArcLayer, ScatterplotLayer } from "@deck.gl/layers";

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

type Paint = [red: number, green: number, blue: number, alpha: number];

/** What all kinds have in common. */
function common(id: string, slots: readonly Slot[], look: Look, onHover: Hover) {
  return {
    id,
    data: slots as Slot[],
    beforeId: look.beforeId,
    pickable: true,
    onHover,
    onClick: onHover,
    highlightedObjectIndex: look.marked,
    highlightColor: (look.theme === "dark" ? [255, 255, 255, 150] : [20, 12, 40, 130]) as Paint,
  };
}

/** From nearly nothing to the full colour of the value, in the direction of the flow; more is wider. */
function arcs(id: string, slots: readonly Slot[], look: Look, onHover: Hover): Layer {
  const paint = (alpha: number) => (slot: Slot): Paint => [...colour(slot.value, look.top, look.theme), slot.alive ? alpha : 0] as Paint;
  return new ArcLayer<Slot>({
    ...common(id, slots, look, onHover),
    getSourcePosition: (slot) => slot.position as [number, number],
    getTargetPosition: (slot) => slot.target as [number, number],
    getSourceColor: paint(25),
    getTargetColor: paint(255),
    getWidth: (slot) => 2.5 + 6 * share(slot.value, look.top),
    getHeight: 0.4,
    getTilt: 20,
    widthUnits: "pixels",
    numSegments: 24,
    updateTriggers: { getSourceColor: [look.theme, look.top], getTargetColor: [look.theme, look.top], getWidth: [look.top] },
  });
}

function points(id: string, slots: readonly Slot[], look: Look, onHover: Hover): Layer {
  const rim: [number, number, number] = look.theme === "dark" ? [255, 255, 255] : [29, 26, 43];
  return new ScatterplotLayer<Slot>({
    ...common(id, slots, look, onHover),
    getPosition: (slot) => slot.position as [number, number],
    getRadius: (slot) => 5 + 6 * share(slot.value, look.top),
    radiusUnits: "pixels",
    getFillColor: (slot) => [...colour(slot.value, look.top, look.theme), slot.alive ? 235 : 0] as Paint,
    stroked: true,
    getLineColor: (slot) => [...rim, slot.alive ? 200 : 0] as Paint,
    getLineWidth: 1.5,
    lineWidthUnits: "pixels",
    updateTriggers: { getFillColor: [look.theme, look.top], getRadius: [look.top], getLineColor: [look.theme] },
  });
}

function hexagons(id: string, slots: readonly Slot[], look: Look, onHover: Hover): Layer {
  const fill = (slot: Slot): Paint => {
    const [red, green, blue] = colour(slot.value, look.top, look.theme);
    return [red, green, blue, slot.alive ? (look.theme === "dark" ? 215 : 225) : 0];
  };
  const fade = { duration: look.still ? 0 : FADE, easing: (at: number) => 1 - (1 - at) ** 3 };
  return new H3HexagonLayer<Slot>({
    ...common(id, slots, look, onHover),
    getHexagon: (slot) => slot.cell,
    getFillColor: fill,
    getElevation: (slot) => (slot.alive ? 60 + TALLEST * share(slot.value, look.top) ** 1.3 : 0),
    extruded: look.relief,
    coverage: 0.92,
    stroked: false,
    material: { ambient: 0.65, diffuse: 0.5, shininess: 24 },
    updateTriggers: { getFillColor: [look.theme, look.top], getElevation: [look.top] },
    transitions: {
      getFillColor: { ...fade, enter: ([red = 0, green = 0, blue = 0]: number[]) => [red, green, blue, 0] },
      getElevation: { ...fade, enter: () => [0] },
    },
  } as ConstructorParameters<typeof H3HexagonLayer<Slot>>[0]);
}

export const DRAWN: Record<string, typeof hexagons> = { cells: hexagons, arcs, points };
