"""A board's supply current -> traces and joules: power meters behind one small interface, arm, trigger, read a `Trace`.

| module | instrument | reached by |
|---|---|---|
| `n6705.py` | Keysight N6705/N6700 with an N678x source/measure unit | PyVISA |
| `truevolt.py` | Keysight 34465A/34470A digitising the voltage over a shunt | PyVISA |
| `lpm01a.py` | ST X-NUCLEO-LPM01A | pyserial |
| `joulescope.py`, `ppk2.py`, `otii.py` | Joulescope JS110/JS220, Nordic PPK2, Otii | their packages, optional |

`instrument.py` is the interface, `trace.py` what is read, `energy.py` turns traces into joules with their uncertainty,
`simulated/` holds instruments that speak the real bytes and misbehave on request. This file imports nothing, so that
whoever only wants locks or discovery does not pay for numpy and PyVISA.
"""

__all__ = ["energy", "instrument", "joulescope", "lpm01a", "n6705", "otii", "ppk2", "trace", "truevolt"]
