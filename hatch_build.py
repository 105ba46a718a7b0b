"""The wheel and the source distribution carry the built page: it is built before they are,
if it is missing or its sources changed.
"""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


def load(root: str) -> ModuleType:
    """`web/build.py`, which lies outside every package."""
    spec = importlib.util.spec_from_file_location("millrace_web_build", Path(root) / "web" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class PageHook(BuildHookInterface):  # type: ignore[type-arg]  # the parameter is the builder's own configuration
    """Called by hatchling for each kind of build."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Node as a package, where a build is due and there is no Node."""
        page = load(self.root)
        return [] if page.is_fresh() or page.find_node() else [page.NODE_WHEEL]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Builds the page; an editable install does without, and `make web` builds it when it is wanted."""
        if version == "editable":
            return
        page = load(self.root)
        try:
            page.build(self.app.display_info)
        except page.CannotBuild as error:
            self.app.abort(f"millrace's page: {error}")
