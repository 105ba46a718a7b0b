"""Errors for names of the API that do not exist: with the name that is meant, also by its word elsewhere."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_OTHER_WORDS = {
    "avg": "mean",
    "average": "mean",
    "by": "group_by",
    "groupby": "group_by",
    "key_by": "group_by",
    "partition_by": "group_by",
    "where": "filter",
    "map": "with_columns",
    "assign": "with_columns",
    "mutate": "with_columns",
    "tumbling": "fixed",
    "hopping": "sliding",
    "session": "sessions",
    "count_window": "counted",
    "to": "write",
    "sink": "write",
    "dedup": "deduplicate",
    "drop_duplicates": "deduplicate",
    "unique": "distinct",
    "n_unique": "distinct",
    "after_watermark": "at_watermark",
    "after_processing_time": "after_delay",
    "fixed_delay": "bounded",
    "bounded_out_of_orderness": "bounded",
}
"""Words of other systems, and what the same thing is called here."""


def missing_name(owner: str, name: str, known: Iterable[str]) -> AttributeError:
    """The error for `name`, which `owner` does not have."""
    names = [one for one in known if not one.startswith("_")]
    other = _OTHER_WORDS.get(name)
    close = [other] if other in names else difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean {close[0]}?" if close else f"; it has {', '.join(sorted(names))}"
    return AttributeError(f"{owner} has no {name!r}{hint if not name.startswith('_') else ''}", name=name)
