"""Every kind of node has an operator, and no operator inherits from another."""

import importlib
import inspect
import pkgutil

from millrace import graph
from millrace.engine import operators
from millrace.engine.operators.contract import StageOperator
from millrace.engine.operators.registry import OPERATORS


def subclasses(kind: type) -> set[type]:
    below: list[type] = kind.__subclasses__()
    return {kind}.union(*(subclasses(one) for one in below))


def test_every_kind_of_node_has_an_operator() -> None:
    concrete = {kind for kind in subclasses(graph.Operation) if not inspect.isabstract(kind)}
    assert {kind for kind in concrete if kind.__module__.startswith("millrace.")} == {*OPERATORS}


def test_kinds_are_told_apart_by_their_words() -> None:
    words = [kind.kind for kind in OPERATORS]
    assert len({*words}) == len(words)


def test_no_operator_inherits_from_another() -> None:
    modules = [
        importlib.import_module(f"{operators.__name__}.{module.name}")
        for module in pkgutil.iter_modules(operators.__path__)
    ]
    found = {
        value
        for module in modules
        for name, value in vars(module).items()
        if inspect.isclass(value) and name.endswith("Operator") and hasattr(value, "step")
    }
    assert len(found) > 8
    assert all(kind.__bases__ == (object,) for kind in found - {StageOperator})
