"""A job under a scripted stream, for unit tests: see `millrace.testing.script`."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millrace.testing.script import Backend, On, OnEngine, OnModel, Script, backend, reads

__all__ = ["Backend", "On", "OnEngine", "OnModel", "Script", "backend", "reads"]


if not TYPE_CHECKING:  # a type checker would take every name that is missing for Any

    def __getattr__(name: str) -> Any:
        # Loaded when first asked for: the model lies in this package, and does not need what runs scripts.
        if name not in __all__:
            raise AttributeError(
                f"module 'millrace.testing' has no attribute {name!r}; it has {', '.join(__all__)}"
            )
        return getattr(importlib.import_module("millrace.testing.script"), name)


def __dir__() -> list[str]:
    return __all__
