"""bench.yaml: which instrument measures which board, by the serial number of the board's debug probe.

    boards:
      066DFF505053846867:           # pipeline boards lists the serial numbers
        instrument: n6705           # n6705, truevolt, lpm01a, joulescope, ppk2 or otii
        address: TCPIP::192.168.1.20::5025::SOCKET   # VISA resource, serial port or the device's serial number
        channel: 1
        edge_channel: 2             # n6705: measures the timestamp pin
        point: mcu                  # whose current it sees: the board's supply, the MCU's (IDD jumper), or its core's
        voltage: 3.3V
        max_current: 500mA

Other keys: `shunt`, `shunt_tolerance` and `voltage_tolerance` (truevolt), `visa_library` (default @py), `pin_voltage`.
An unknown key or instrument, a missing unit and a key that the instrument has no use for are refused, with the file and
the nearest key. Reading the file imports neither PyVISA nor numpy; opening an instrument does.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, model_validator

from pipeline.errors import ConfigError, HardwareAbsent

if TYPE_CHECKING:
    from hil.instruments.instrument import Instrument

Point = Literal["board", "mcu", "core"]
Kind = Literal["n6705", "truevolt", "lpm01a", "joulescope", "ppk2", "otii"]

_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z%µ]*)\s*")
_PREFIXES = {"u": 1e-6, "µ": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3}


def _in_units(unit: str, example: str, prefixes: Mapping[str, float] = _PREFIXES) -> BeforeValidator:
    scales = {f"{prefix}{unit}": scale for prefix, scale in prefixes.items()}

    def parse(value: Any) -> float:
        match = None if isinstance(value, bool) else _QUANTITY.fullmatch(str(value))
        if match is None or match[2] not in scales or not float(match[1]) > 0:
            raise ValueError(f"found {value!r}, needed a quantity with its unit, such as {example}")
        return float(match[1]) * scales[match[2]]

    return BeforeValidator(parse)


Volts = Annotated[float, _in_units("V", "3.3V")]
Amperes = Annotated[float, _in_units("A", "500mA")]
Ohms = Annotated[float, _in_units("Ohm", "100mOhm")]
Share = Annotated[float, _in_units("%", "0.1%", {"": 0.01})]

_COMMON = ("instrument", "address", "point", "voltage")
_USED: Mapping[Kind, tuple[str, ...]] = {
    "n6705": ("channel", "edge_channel", "pin_voltage", "max_current", "visa_library"),
    "truevolt": ("shunt", "shunt_tolerance", "voltage_tolerance", "max_current", "visa_library"),
    "lpm01a": (),
    "joulescope": (),
    "ppk2": (),
    "otii": ("max_current",),
}


class _Described(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class BoardWiring(_Described):
    """One board's instrument and how it is wired."""

    instrument: Kind
    address: str
    point: Point  # in every row beside the energy: figures of one chip differ by several times between them
    voltage: Volts  # there
    channel: int = 1
    edge_channel: int | None = None
    pin_voltage: Volts = 3.3
    max_current: Amperes = 0.5  # an H743 at full clock stays below; chooses the range
    shunt: Ohms | None = None
    shunt_tolerance: Share = 0.001
    voltage_tolerance: Share = 0.01
    visa_library: str = "@py"

    @model_validator(mode="after")
    def _fits_the_instrument(self) -> BoardWiring:
        useless = self.model_fields_set - {*_COMMON, *_USED[self.instrument]}
        if useless:
            used = ", ".join((*_COMMON, *_USED[self.instrument]))
            raise ValueError(
                f"found {', '.join(sorted(useless))}, of which {self.instrument} makes no use; it has {used}"
            )
        if self.instrument == "truevolt" and self.shunt is None:
            raise ValueError("found no shunt, needed one for a truevolt, such as shunt: 100mOhm")
        if self.edge_channel == self.channel:
            raise ValueError(f"found edge_channel {self.edge_channel} like channel, needed another one for the pin")
        return self


class Bench(_Described):
    """The whole file."""

    boards: Mapping[str, BoardWiring]

    def wiring(self, probe_serial: str) -> BoardWiring | None:
        """The board's instrument, or None: then latency is measured, and energy is not."""
        wanted = probe_serial.upper()
        return next((wiring for serial, wiring in self.boards.items() if serial.upper() == wanted), None)


def load_bench(path: Path) -> Bench:
    """Read bench.yaml."""
    try:
        content = yaml.load(path.read_text(), Loader=_TextKeys)
    except OSError as error:
        raise ConfigError(f"{path.name}: not readable ({error.strerror})") from error
    except yaml.YAMLError as error:
        line = getattr(getattr(error, "problem_mark", None), "line", None)
        where = path.name if line is None else f"{path.name}:{line + 1}"
        raise ConfigError(f"{where}: not valid YAML ({getattr(error, 'problem', error)})") from error
    try:
        return Bench.model_validate(content)
    except ValidationError as error:
        raise ConfigError(_sentence(path, error)) from error


def open_instrument(bench: Bench, probe_serial: str) -> Instrument:
    """Open the instrument that measures this board; `hil.bench.locks.instrument_lock` keeps others away from it."""
    wiring = bench.wiring(probe_serial)
    if wiring is None:
        known = ", ".join(bench.boards) or "none"
        raise HardwareAbsent(f"bench.yaml: no instrument for the board with probe {probe_serial}, boards are {known}")
    return _OPENERS[wiring.instrument](wiring)


def _open_n6705(wiring: BoardWiring) -> Instrument:
    from hil.instruments.n6705 import N6705, N6705Wiring
    from hil.instruments.scpi import ScpiSession

    session = ScpiSession(wiring.address, library=wiring.visa_library)
    wired = N6705Wiring(wiring.channel, wiring.edge_channel, wiring.pin_voltage, wiring.max_current)
    return N6705(session, wired)


def _open_truevolt(wiring: BoardWiring) -> Instrument:
    from hil.instruments.scpi import ScpiSession
    from hil.instruments.truevolt import Shunt, Truevolt

    assert wiring.shunt is not None
    shunt = Shunt(wiring.shunt, wiring.voltage, wiring.shunt_tolerance, wiring.voltage_tolerance, wiring.max_current)
    return Truevolt(ScpiSession(wiring.address, library=wiring.visa_library), shunt)


def _open_lpm01a(wiring: BoardWiring) -> Instrument:
    from hil.instruments.lpm01a import Lpm01a

    return Lpm01a(wiring.address, voltage_v=wiring.voltage)


def _open_joulescope(wiring: BoardWiring) -> Instrument:
    from hil.instruments.joulescope import Joulescope

    return Joulescope(wiring.address)


def _open_ppk2(wiring: BoardWiring) -> Instrument:
    from hil.instruments.ppk2 import Ppk2

    return Ppk2(wiring.address, voltage_v=wiring.voltage)


def _open_otii(wiring: BoardWiring) -> Instrument:
    from hil.instruments.otii import Otii

    return Otii(wiring.address, voltage_v=wiring.voltage, max_current_a=wiring.max_current)


_OPENERS: Mapping[Kind, Callable[[BoardWiring], Instrument]] = {
    "n6705": _open_n6705,
    "truevolt": _open_truevolt,
    "lpm01a": _open_lpm01a,
    "joulescope": _open_joulescope,
    "ppk2": _open_ppk2,
    "otii": _open_otii,
}


class _TextKeys(yaml.SafeLoader):
    """Serial numbers such as 0669 or 12e5 stay text where they are keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                key.tag = "tag:yaml.org,2002:str"
        return super().construct_mapping(node, deep)


def _sentence(path: Path, error: ValidationError) -> str:
    # A misspelt key is the cause of the missing one beside it: name it first.
    first = min(error.errors(), key=lambda item: item["type"] != "extra_forbidden")
    keys = [str(part) for part in first["loc"]]
    where = f"{path.name}: {'.'.join(keys) or 'the whole file'}"
    if first["type"] == "extra_forbidden":
        known = Bench.model_fields if len(keys) == 1 else BoardWiring.model_fields
        return f"{where}: unknown key; {_nearest(keys[-1], known)}"
    if first["type"] == "missing":
        return f"{where}: missing; add it"
    if first["type"] == "literal_error":
        words = get_args(Point) if keys[-1] == "point" else get_args(Kind)
        return f"{where}: found {first['input']!r}; {_nearest(str(first['input']), words)}"
    reason = first["msg"].removeprefix("Value error, ")
    return f"{where}: {reason}" if reason.startswith("found ") else f"{where}: found {first['input']!r}, {reason}"


def _nearest(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"did you mean '{near[0]}'?" if near else f"known are {', '.join(known)}"
