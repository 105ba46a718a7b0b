/** The ground under the data: one that is always there, and a richer one where there is a network. */

import type { LayerSpecification, Map as MapLibre, StyleSpecification } from "maplibre-gl";

import region from "../basemap/region.json?url";
import { places } from "./places";
import type { Theme } from "./scale";

/** How long the richer map may take to answer. */
export const PATIENCE = 2_500;

const ONLINE: Record<Theme, string> = {
  dark: "https://tiles.openfreemap.org/styles/dark",
  light: "https://tiles.openfreemap.org/styles/positron",
};

const COAST = 'Coast: <a href="https://www.soest.hawaii.edu/pwessel/gshhg/" target="_blank" rel="noopener">GSHHG</a> (LGPL)';

const PAINT = {
  dark: { water: "#0d0d16", land: "#181824", shore: "#35344d", name: "#dddbee", halo: "#12121c" },
  light: { water: "#d9e3ec", land: "#f6f5f2", shore: "#b6c3cf", name: "#3d3a4e", halo: "#ffffff" },
} as const;

/** Land, shore and names, from the page's own files alone; letters are drawn with the viewer's fonts. */
export function offline(theme: Theme): StyleSpecification {
  const paint = PAINT[theme];
  const names = (rank: number, size: number, minzoom: number): LayerSpecification => ({
    id: `names-${rank}`,
    type: "symbol",
    source: "places",
    minzoom,
    filter: ["==", ["get", "rank"], rank],
    layout: {
      "text-field": ["get", "name"],
      "text-font": ["sans-serif"],
      "text-size": size,
      "text-letter-spacing": 0.04,
      "text-padding": 8,
    },
    paint: { "text-color": paint.name, "text-halo-color": paint.halo, "text-halo-width": 1.4 },
  });
  return {
    version: 8,
    name: `millrace offline ${theme}`,
    sources: {
      region: { type: "geojson", data: new URL(region, document.baseURI).href, attribution: COAST, tolerance: 0.2 },
      places: { type: "geojson", data: places },
    },
    layers: [
      { id: "water", type: "background", paint: { "background-color": paint.water } },
      { id: "land", type: "fill", source: "region", paint: { "fill-color": paint.land } },
      { id: "shore", type: "line", source: "region", paint: { "line-color": paint.shore, "line-width": 0.8 } },
      names(1, 17, 7),
      names(2, 13, 9),
      names(3, 12, 10.5),
    ],
  };
}

/** The richer style; null when it does not answer in time or there is no network. */
export async function online(theme: Theme, patience = PATIENCE): Promise<StyleSpecification | null> {
  if (!navigator.onLine) return null;
  try {
    const answer = await fetch(ONLINE[theme], { signal: AbortSignal.timeout(patience) });
    if (!answer.ok) return null;
    const style: unknown = await answer.json();
    return typeof style === "object" && style !== null && "layers" in style ? (style as StyleSpecification) : null;
  } catch {
    return null;
  }
}

/** The first layer of names, under which data is drawn. */
export function firstNames(map: MapLibre): string | undefined {
  return map.getStyle()?.layers.find((layer) => layer.type === "symbol")?.id;
}
