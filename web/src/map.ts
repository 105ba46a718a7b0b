/** The map itself: ground, camera, and the layers of data between ground and names. */

import { MapLibreOverlay } from "@deck.gl/maplibre";
import { Map as MapLibre, setWorkerUrl } from "maplibre-gl";
import workerUrl from "maplibre-gl/dist/maplibre-gl-worker.mjs?worker&url";

import { firstNames, offline, online } from "./basemap";
import { DRAWN } from "./layer";
import type { Box } from "./messages";
import type { Theme } from "./scale";
import type { Slot } from "./slots";
import type { View } from "./view";

setWorkerUrl(new URL(workerUrl, document.baseURI).href);

const CITY = { center: [24.94, 60.205] as [number, number], zoom: 10.9 };
const REGION: [number, number, number, number] = [23.7, 59.75, 26.2, 60.75];
/** A subscription follows the camera once it rests this long. */
const REST = 200;

export class MapView {
  onMoved: (box: Box) => void = () => undefined;
  basemap: "offline" | "online" = "offline";

  readonly #map: MapLibre;
  readonly #overlay: MapLibreOverlay;
  readonly #still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  #relief = false;
  #resting = 0;
  #painting = 0;
  #redraw: () => void = () => undefined;
  #names: string | undefined;
  #ready = false;

  /** `hover` is told of the cell under the pointer, or the finger; null when there is none. */
  constructor(
    container: HTMLElement,
    theme: Theme,
    private readonly hover: (slot: Slot | null, x: number, y: number) => void,
  ) {
    this.#map = new MapLibre({
      container,
      style: offline(theme),
      ...CITY,
      hash: true,
      minZoom: 8.5,
      maxZoom: 16,
      maxPitch: 60,
      maxBounds: REGION,
      attributionControl: { customAttribution: "millrace" },
      canvasContextAttributes: { antialias: true },
    });
    const elsewhere = ({ picked }: { picked: boolean }) => !picked && hover(null, 0, 0);
    this.#overlay = new MapLibreOverlay({ interleaved: true, layers: [], pickingRadius: 3, onClick: elsewhere });
    this.#map.addControl(this.#overlay);
    this.#map.on("style.load", () => this.#loaded());
    this.#map.on("move", () => this.#moved());
    this.#map.on("resize", () => this.#moved());
    void this.#enrich(theme);
  }

  box(): Box {
    const bounds = this.#map.getBounds();
    return [bounds.getWest(), bounds.getSouth(), bounds.getEast(), bounds.getNorth()];
  }

  draw(view: View, theme: Theme, marked: string | null): void {
    this.#redraw = () => {
      const layer = DRAWN[view.info.kind];
      if (!layer || !this.#ready) return;
      const look = {
        theme,
        top: view.top,
        relief: this.#relief,
        marked: marked === null ? -1 : view.slots.find(marked),
        beforeId: this.#names,
        still: this.#still,
      };
      const hover = (info: { object?: Slot; x: number; y: number }) => this.hover(info.object?.alive ? info.object : null, info.x, info.y);
      this.#overlay.setProps({ layers: [layer(view.info.name, view.slots.list, look, hover)] });
    };
    this.#redraw();
  }

  /** Changes the ground with the theme. */
  paint(theme: Theme): void {
    this.#setStyle(offline(theme));
    this.basemap = "offline";
    void this.#enrich(theme);
  }

  raise(relief: boolean, drawn: () => void): void {
    this.#relief = relief;
    this.#map.easeTo({ pitch: relief ? 48 : 0, bearing: relief ? -14 : 0, duration: this.#still ? 0 : 700 });
    drawn();
  }

  zoom(by: number): void {
    this.#map.easeTo({ zoom: this.#map.getZoom() + by, duration: this.#still ? 0 : 250 });
  }

  home(): void {
    this.#map.flyTo({ ...CITY, animate: !this.#still });
  }

  flyTo([longitude, latitude]: readonly [number, number]): void {
    this.#map.flyTo({ center: [longitude, latitude], zoom: Math.max(13, this.#map.getZoom()), animate: !this.#still });
  }

  async #enrich(theme: Theme): Promise<void> {
    const turn = ++this.#painting;
    const style = await online(theme);
    if (!style || turn !== this.#painting) return;
    this.#setStyle(style);
    this.basemap = "online";
  }

  #loaded(): void {
    this.#names = firstNames(this.#map);
    this.#ready = true;
    this.#redraw();
    this.#map.once("idle", () => this.#redraw()); // the overlay takes nothing in until the sources are there too
  }

  #setStyle(style: Parameters<MapLibre["setStyle"]>[0]): void {
    this.#ready = false;
    this.#overlay.setProps({ layers: [] });
    this.#map.setStyle(style, { diff: false });
  }

  #moved(): void {
    clearTimeout(this.#resting);
    this.#resting = window.setTimeout(() => this.onMoved(this.box()), REST);
  }
}
