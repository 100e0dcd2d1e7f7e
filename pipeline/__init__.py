"""From training to on-device measurement: `from pipeline import run, inspect, optimize, compile, measure, prune`.

The rooms of the engine are below: DAG, cache, configuration, executor, command line. They know no machine learning, no
C, no serial port. What is public is named in `__init__.pyi`, which type checkers read; here it is loaded when it is
first asked for, because every command and every step imports this package and few of them need pandas.
"""

import importlib

_PUBLIC = {
    "pipeline.api.networks": (
        "compile",
        "evaluate",
        "fit",
        "import_keras",
        "inspect",
        "measure",
        "optimize",
        "resources",
    ),
    "pipeline.api.pruning": ("Pruner", "prune"),
    "pipeline.api.results": ("Compilation", "Evaluation", "Inspection", "Measurement", "Optimization", "Resources"),
    "pipeline.api.run": ("Run", "run"),
    "pipeline.errors": ("ConfigError", "PipelineError"),
}
_HOME_OF = {name: module for module, names in _PUBLIC.items() for name in names}
__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'pipeline' has no attribute {name!r}; public are {', '.join(__all__)}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return __all__
