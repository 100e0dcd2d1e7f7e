"""Joulescope JS110 or JS220, through the package `joulescope` (optional).

The board's current runs through the instrument; the timestamp pin goes to its first general purpose input, whose every
sample comes beside current and voltage (`current_lsb` in the package's words). Both ranges switch by themselves, so
that there is no range to exceed below the instrument's own limit, where it opens the circuit and the samples become
NaN: an error here, as are samples that USB lost (NaN as well).

Written from the package's public interface (1.5: `scan`, `open`, `parameter_set`, `read(contiguous_duration=...,
out_format='samples_get')`). No Joulescope was at hand: the tests run it against a stand-in with these calls.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hil.instruments.collector import Collector
from hil.instruments.instrument import (
    Capture,
    Description,
    Instrument,
    Range,
    VoltageKnown,
    foreign_errors,
    optional_package,
    power_accuracy,
)
from hil.instruments.scpi import refuse_lost, refuse_over_range
from hil.instruments.trace import FloatArray, Trace, falling_edges
from pipeline.errors import HardwareAbsent, InstrumentError

_FREQUENCIES_HZ = (1_000_000, 500_000, 200_000, 100_000, 50_000, 20_000, 10_000, 5_000, 2_000, 1_000)
_LONGEST_S = 30.0  # the package's sample buffer
_RANGE = Range(3.0, 0.005, 1e-5)  # limits of error of the widest range; the smaller ones are better
_VOLTAGE_GAIN = 0.003
_TIME_BASE = 50e-6


class Joulescope(Instrument):
    """One Joulescope, by its serial number ('' where only one is attached)."""

    def __init__(self, serial_number: str = "", *, margin_s: float = 5.0, package: Any = None) -> None:
        super().__init__()
        package = package or optional_package("joulescope", "joulescope", "Joulescope")
        devices = [device for device in package.scan(config="auto") if serial_number in ("", device.serial_number)]
        if len(devices) != 1:
            wanted = f"with serial number {serial_number}" if serial_number else "attached"
            raise HardwareAbsent(f"Joulescope: {len(devices)} {wanted}, needed one; is it connected by USB?")
        self._device, self._margin_s = devices[0], margin_s
        self._collector: Collector | None = None
        self._data: Any = None
        self.description = Description(
            name=f"Joulescope {self._device.serial_number}",
            kind="joulescope",
            ranges=(_RANGE,),
            min_interval_s=1 / _FREQUENCIES_HZ[0],
            max_samples=int(_LONGEST_S * _FREQUENCIES_HZ[0]),
            time_base=_TIME_BASE,
            sees_edges=True,
            edge_trigger=False,
        )
        try:
            self._device.open()
        except Exception as error:  # the package's driver has no exceptions of its own
            raise HardwareAbsent(f"{self.description.name}: cannot be opened ({error})") from error

    def _arm(self, capture: Capture) -> None:
        frequency_hz = round(1 / capture.interval_s)
        if frequency_hz not in _FREQUENCIES_HZ or capture.duration_s > _LONGEST_S:
            raise InstrumentError(
                f"{self.description.name}: {capture.duration_s:g} s at {frequency_hz} Hz asked, it takes at most"
                f" {_LONGEST_S:g} s at {', '.join(map(str, _FREQUENCIES_HZ))} Hz"
            )
        with foreign_errors(self.description.name, "arming"):
            self._device.parameter_set("sampling_frequency", frequency_hz)
            self._device.parameter_set("buffer_duration", max(1.0, 2 * capture.duration_s))

    def _trigger(self) -> None:
        assert self._capture is not None
        duration_s = self._capture.duration_s

        def take() -> bool:
            with foreign_errors(self.description.name, "reading"):
                self._data = self._device.read(
                    contiguous_duration=duration_s,
                    out_format="samples_get",
                    fields=["current", "voltage", "current_lsb"],
                )
            return True

        self._collector = Collector(self.description.name, take)

    def _read(self, capture: Capture) -> Trace:
        assert self._collector is not None
        collector, self._collector = self._collector, None
        collector.result(capture.duration_s + self._margin_s)
        signals = {name: _array(signal["value"]) for name, signal in self._data["signals"].items()}
        missing = {"current", "voltage", "current_lsb"} - set(signals)
        if missing:
            raise InstrumentError(f"{self.description.name}: sent no {', '.join(sorted(missing))}")
        current_a, voltage_v, pin = signals["current"], signals["voltage"], signals["current_lsb"]
        for array in (current_a, voltage_v, pin):
            refuse_lost(self.description.name, len(array), capture.samples)
        known_a = np.nan_to_num(current_a)  # samples that are no numbers make no trace
        refuse_over_range(self.description.name, known_a, _RANGE.limit_a, "A", "its widest range ends there")
        known = VoltageKnown(float(np.mean(voltage_v)), _VOLTAGE_GAIN)
        return Trace(
            source=self.description.name,
            t0_s=0.0,
            dt_s=capture.interval_s,
            power_w=current_a * voltage_v,
            kind="mean",
            accuracy=power_accuracy(_RANGE, known, 0.0, _TIME_BASE, capture.interval_s),
            edges_s=falling_edges(0.0, capture.interval_s, pin, 0.5),
            current_a=current_a,
            voltage_v=voltage_v,
        )

    def _close(self) -> None:
        with foreign_errors(self.description.name, "closing"):
            if self._collector is not None:
                self._device.stop()
                self._collector.cancel()
            self._device.close()


def _array(values: Any) -> FloatArray:
    return np.asarray(values, dtype=np.float64)
