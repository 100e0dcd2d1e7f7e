"""Qoitech Otii Arc or Ace, through the package `otii-tcp-client` (optional) and the running Otii application.

The application must be running, logged in and hold an automation licence; this module touches no account. Main current
(`mc`) comes at 4 kHz on an Arc, the timestamp pin goes to GPI1 (`i1`), whose changes come with their own time stamps.

Written from the package's public interface (1.0: `OtiiClient.connect`, `get_devices`, `enable_channel`,
`start_recording`, `get_channel_data`). No Otii was at hand: the tests run it against a stand-in with these calls.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

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
from hil.instruments.scpi import refuse_over_range
from hil.instruments.trace import Trace
from pipeline.errors import HardwareAbsent, InstrumentError

_HOST = "127.0.0.1"
_FREQUENCY_HZ = 4000
_LONGEST_S = 600.0
_EDGE_S = 1e-3
_VOLTAGE_GAIN = 0.001
_TIME_BASE = 100e-6


class Otii(Instrument):
    """One device, by its name or id ('' where only one is attached), which also supplies the board."""

    def __init__(self, device: str = "", *, voltage_v: float, max_current_a: float = 0.5, package: Any = None) -> None:
        super().__init__()
        package = package or optional_package("otii_tcp_client.otii_client", "otii-tcp-client", "Otii")
        self._voltage_v = voltage_v
        self._client = package.OtiiClient()
        try:
            self._otii = self._client.connect(host=_HOST, licensing=package.LicensingMode.MANUAL)
            found = [each for each in self._otii.get_devices() if device in ("", each.name, each.id)]
        except Exception as error:  # the package has one exception class, and socket errors pass through it
            reason = f"cannot be reached ({error}); is the application running?"
            raise HardwareAbsent(f"Otii at {_HOST}: {reason}") from error
        if len(found) != 1:
            self._client.disconnect()
            raise HardwareAbsent(f"Otii at {_HOST}: {len(found)} devices {device}, needed one")
        self._device = found[0]
        self._range = Range(max_current_a, 0.001, 5e-5)
        self.description = Description(
            name=f"Otii {self._device.name}",
            kind="otii",
            ranges=(self._range,),
            min_interval_s=1 / _FREQUENCY_HZ,
            max_samples=round(_LONGEST_S * _FREQUENCY_HZ),
            time_base=_TIME_BASE,
            sees_edges=True,
            edge_trigger=False,
        )
        self._project: Any = None

    def _arm(self, capture: Capture) -> None:
        if abs(capture.interval_s * _FREQUENCY_HZ - 1) > 1e-6:
            raise InstrumentError(f"{self.description.name}: samples at {_FREQUENCY_HZ} Hz, at no other rate")
        with foreign_errors(self.description.name, "arming"):
            self._project = self._project or self._otii.create_project()
            self._device.add_to_project()
            self._device.set_main_voltage(self._voltage_v)
            self._device.set_max_current(self._range.limit_a)
            for channel in ("mc", "i1"):
                self._device.enable_channel(channel, True)
            self._device.set_main(True)

    def _trigger(self) -> None:
        with foreign_errors(self.description.name, "starting"):
            self._project.start_recording()
        self._started = time.monotonic()

    def _read(self, capture: Capture) -> Trace:
        time.sleep(max(0.0, capture.duration_s - (time.monotonic() - self._started)))
        with foreign_errors(self.description.name, "reading"):
            self._project.stop_recording()
            recording = self._project.get_last_recording()
            count = recording.get_channel_data_count(self._device.id, "mc")
            data = recording.get_channel_data(self._device.id, "mc", 0, count)
            changes = recording.get_channel_data(
                self._device.id, "i1", 0, recording.get_channel_data_count(self._device.id, "i1")
            )["values"]
        current_a = np.asarray(data["values"], dtype=np.float64)
        if len(current_a) < 0.99 * capture.samples:
            raise InstrumentError(
                f"{self.description.name}: lost samples, {len(current_a)} came, needed {capture.samples}; measure again"
            )
        refuse_over_range(self.description.name, current_a, self._range.limit_a, "A", "raise max_current in bench.yaml")
        dt_s = float(data["interval"])
        known = VoltageKnown(self._voltage_v, _VOLTAGE_GAIN)
        return Trace(
            source=self.description.name,
            t0_s=float(data["timestamp"]),
            dt_s=dt_s,
            power_w=current_a * self._voltage_v,
            kind="mean",
            accuracy=power_accuracy(self._range, known, 0.0, _TIME_BASE, _EDGE_S),
            edges_s=tuple(float(change["timestamp"]) for change in changes if not change["value"]),
            current_a=current_a,
        )

    def _close(self) -> None:
        with foreign_errors(self.description.name, "closing"):
            self._device.set_main(False)
            self._client.disconnect()
