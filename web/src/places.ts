/** Names on the offline map. Rank 1 is seen from afar, rank 3 from near. */

type Place = readonly [name: string, longitude: number, latitude: number, rank: 1 | 2 | 3];

const PLACES: readonly Place[] = [
  ["Helsinki", 24.9414, 60.1719, 1],
  ["Espoo", 24.6559, 60.2052, 1],
  ["Vantaa", 25.0378, 60.2934, 1],
  ["Porvoo", 25.6651, 60.3923, 1],
  ["Kauniainen", 24.7295, 60.2113, 2],
  ["Kerava", 25.105, 60.4028, 2],
  ["Järvenpää", 25.089, 60.4737, 2],
  ["Tuusula", 25.0265, 60.4037, 2],
  ["Nurmijärvi", 24.809, 60.464, 2],
  ["Sipoo", 25.2567, 60.377, 2],
  ["Kirkkonummi", 24.4385, 60.1237, 2],
  ["Nummela", 24.329, 60.333, 2],
  ["Airport", 24.9633, 60.3172, 2],
  ["Pasila", 24.9335, 60.1987, 3],
  ["Kallio", 24.95, 60.184, 3],
  ["Leppävaara", 24.813, 60.219, 3],
  ["Tapiola", 24.805, 60.1755, 3],
  ["Matinkylä", 24.739, 60.1598, 3],
  ["Espoonlahti", 24.656, 60.149, 3],
  ["Itäkeskus", 25.081, 60.2105, 3],
  ["Vuosaari", 25.144, 60.2075, 3],
  ["Lauttasaari", 24.876, 60.1595, 3],
  ["Munkkiniemi", 24.875, 60.198, 3],
  ["Haaga", 24.896, 60.218, 3],
  ["Oulunkylä", 24.965, 60.229, 3],
  ["Malmi", 25.01, 60.251, 3],
  ["Viikki", 25.02, 60.226, 3],
  ["Herttoniemi", 25.032, 60.195, 3],
  ["Laajasalo", 25.048, 60.17, 3],
  ["Kontula", 25.085, 60.236, 3],
  ["Myyrmäki", 24.854, 60.261, 3],
  ["Korso", 25.08, 60.351, 3],
  ["Suomenlinna", 24.988, 60.1454, 3],
];

export const places: GeoJSON.FeatureCollection = {
  type: "FeatureCollection",
  features: PLACES.map(([name, longitude, latitude, rank]) => ({
    type: "Feature",
    properties: { name, rank },
    geometry: { type: "Point", coordinates: [longitude, latitude] },
  })),
};
