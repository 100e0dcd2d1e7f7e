"""A network on its twin, as for the measure step."""

from tests.stages.measure.conftest import flashed

__all__ = ["flashed"]
