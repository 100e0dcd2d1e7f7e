"""A power timeline -> simulated instruments that speak the real bytes and misbehave on request.

`timeline.py` is what the board draws; `scpi_server.py` carries SCPI over TCP for PyVISA; `n6705.py` and `truevolt.py`
are instruments behind it, which share `triggered_meter.py`; `visa_sim.py` turns sessions with them into pyvisa-sim
definitions; `lpm01a.py` is an X-NUCLEO-LPM01A on a pseudo-terminal; `twin_supply.py` puts an N6705 together for the
virtual bench and lets it follow what a twin executes.
"""

__all__ = ["lpm01a", "n6705", "scpi_server", "timeline", "truevolt", "twin_supply", "visa_sim"]
