"""The boards this project knows: one folder each, described by its `board.yaml`, read here into a typed `Board`.

`load_board` refuses an unknown name (and names the nearest one), an unknown key, a missing unit and a region that is
named but not described. Everything model- or experiment-specific lives elsewhere.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from pipeline.errors import ConfigError
from pipeline.units import Bytes, Hertz, Watts

__all__ = [
    "BOARDS_FOLDER",
    "CALIBRATION",
    "ENERGY_BAUD",
    "SPLIT_FLASH",
    "Board",
    "Cache",
    "CacheLevel",
    "CalibratedPower",
    "Calibration",
    "Chip",
    "ClockSetting",
    "Console",
    "Flashing",
    "Memory",
    "OpenOcdSetup",
    "PowerPoint",
    "Predicted",
    "Probe",
    "board_names",
    "calibrated",
    "load_board",
]

BOARDS_FOLDER = Path(__file__).parent

CALIBRATION = "calibration.yaml"  # beside board.yaml: written by `pipeline calibrate`
IDLE_DYNAMIC_SHARE = 1 / 3  # assumed: what a sleeping core, its clocks on, takes of what a running one does
SPLIT_FLASH = "m-[option: nDBANK=0]"  # in the boot message of a chip whose flash is set up as two banks
ENERGY_BAUD = 9600  # MLPerf Tiny, energy mode: the device's runner knows no other rate

Pin = Annotated[str, Field(pattern=r"^P[A-K]([0-9]|1[0-5])$")]
PowerPoint = Literal["board", "mcu", "core"]
Cycles = Annotated[float, Field(ge=0, allow_inf_nan=False)]
UsbId = Annotated[str, Field(pattern=r"^[0-9a-f]{4}:[0-9a-f]{4}$")]


class _Described(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Memory(_Described):
    """One region of the memory map."""

    origin: int
    size: Bytes
    kind: Literal["flash", "itcm", "dtcm", "sram"]

    @property
    def cached(self) -> bool:
        """Tightly coupled memory is read in one cycle and bypasses the caches."""
        return self.kind in ("flash", "sram")


class Console(_Described):
    """The UART that the debug probe forwards to the host."""

    uart: str
    tx: Pin
    rx: Pin
    baud: int


class Probe(_Described):
    """How the on-board ST-LINK shows itself on USB."""

    usb_ids: tuple[UsbId, ...]
    mbed_code: Annotated[str, Field(pattern=r"^[0-9A-F]{4}$")]  # first four characters of the drive's board id


class OpenOcdSetup(_Described):
    """Files that OpenOCD reads one after the other, and the transport to choose behind the first."""

    files: tuple[str, ...]
    transport: str


class Flashing(_Described):
    """The names under which the flashing tools know the board, and which of them to try first."""

    pyocd_target: str
    openocd_config: str
    openocd_under_reset: OpenOcdSetup | None = None  # instead of the config, where the reset line is to be held
    order: tuple[Literal["pyocd", "openocd", "drive"], ...] = ("pyocd", "openocd", "drive")
    connect_under_reset: bool = False  # try again with the reset line held: for a program that shuts the debugger out


class CacheLevel(_Described):
    """One level-1 cache."""

    size: Bytes
    ways: int


class Cache(_Described):
    """Both level-1 caches and what the core waits for a line, in its cycles."""

    instruction: CacheLevel
    data: CacheLevel
    line: Bytes
    flash_fill_cycles: float
    flash_fill_cycles_dual_bank: float | None = None  # with option bit nDBANK cleared, where the chip has one
    ram_load_fill_cycles: float
    ram_store_fill_cycles: float  # the store itself has gone into the store buffer: the core goes on
    write_back_cycles: float  # of a dirty line that made room: through a buffer, behind the core's back


class LineCosts(_Described):
    """Those of Cache above, as fitted."""

    flash_fill_cycles: Cycles
    ram_load_fill_cycles: Cycles
    ram_store_fill_cycles: Cycles
    write_back_cycles: Cycles


class Predicted(_Described):
    """Modelled over measured, of so many things that were not in a fit; what the fit itself leaves open is within."""

    n: int
    low: float
    high: float

    @property
    def most(self) -> float:
        """The largest share by which it may be off."""
        return max(abs(self.low - 1), abs(self.high - 1))


class CalibratedPower(_Described):
    """Watts of a core that executes, beside it for multiplying in every cycle, and while it waits for cache lines."""

    core_w: float
    multiply_w: float
    line_w: float
    uncertainty: Mapping[str, float]  # 2 sigma
    instrument: str
    point: PowerPoint  # where it was measured
    kinds_w: Mapping[str, float]  # mean power of loops of one kind, as measured
    networks: Predicted  # energies of whole networks that were not in the fit


class Calibration(_Described):
    """What `pipeline calibrate` fitted on one device, each with what it may be off (2 sigma)."""

    device: str  # 'hardware', or 'virtual' for a twin that stood in
    when: str
    option: str = ""  # as the device told it when it started: nDBANK=0
    core: Mapping[str, Cycles]  # fields of hil.virtual.instruction.CoreParameters
    cache: LineCosts
    uncertainty: Mapping[str, float]
    residual: float  # share: typical error of the fit
    networks: Mapping[str, float]  # network that was not in the fit -> share by which it was predicted wrong
    kernels: Mapping[str, Predicted]  # of these networks, kernel by kernel
    areas: Mapping[str, Predicted]  # and area by area (hil.virtual.model_error), `network` for whole ones
    power: CalibratedPower | None = None  # where an instrument was tied


class ClockSetting(_Described):
    """A core clock that the firmware can start with, and what goes with it."""

    hz: Hertz
    voltage_scale: str  # as the manual names it
    core_v: float  # about
    flash_fill_cycles: float  # there are fewer wait states at a lower clock


class ChipRegister(_Described):
    """What a register must hold, in the bits of `mask`, once start-up is done."""

    mask: int
    value: int
    means: str


class Chip(_Described):
    """How to tell that it is this chip, set up as it should be; names are those that `chip%` gives."""

    device_id: int  # DBGMCU_IDCODE, bits 11 to 0
    revisions: Mapping[str, int]  # that reach clock_hz: letter -> DBGMCU_IDCODE, bits 31 to 16
    flash_kib: int
    registers: Mapping[str, ChipRegister]


class Board(_Described):
    """Everything the other rooms may know about a board."""

    name: str
    mcu: str
    support: str  # folder of boards/firmware with the code its family shares
    clock_hz: Hertz
    fpu: Literal["fpv5-d16", "fpv5-sp-d16"] = "fpv5-d16"  # as gcc calls it; sp: single precision only
    memories: Mapping[str, Memory]
    arena_regions: tuple[str, str]  # preferred first: the linker scripts call them FAST and BULK
    console: Console
    timestamp_pin: Pin  # falls where an image built for energy would print the time
    light_pin: Pin
    probe: Probe
    flashing: Flashing
    cache: Cache
    chip: Chip
    power_active_w: Annotated[Watts, Field(gt=0)]  # modelled energy is this times the time
    power_fixed_w: Watts  # the part of it that no clock changes: probe, regulator, leakage
    clocks: tuple[ClockSetting, ...]  # the fastest first
    power_point: PowerPoint  # where it was measured: figures differ by several times between them
    calibration: Calibration | None = None  # calibration.yaml beside board.yaml

    @model_validator(mode="after")
    def _clocks_are_in_order(self) -> Board:
        speeds = [setting.hz for setting in self.clocks]
        if speeds[:1] != [self.clock_hz] or speeds != sorted(speeds, reverse=True):
            raise ValueError(f"found clocks {speeds}, needed clock_hz {self.clock_hz} first and slower ones behind it")
        return self

    @model_validator(mode="after")
    def _regions_are_described(self) -> Board:
        for region in (*self.arena_regions, "flash"):
            if region not in self.memories:
                raise ValueError(f"found region {region!r}, needed one of memories: {', '.join(self.memories)}")
        return self

    @property
    def folder(self) -> Path:
        return BOARDS_FOLDER / self.name

    @property
    def power_idle_w(self) -> float:
        """Asleep between inferences at this clock: the fixed part, and a share of what the clock drives."""
        return self.power_fixed_w + IDLE_DYNAMIC_SHARE * (self.power_active_w - self.power_fixed_w)

    def at_clock(self, hz: int | None) -> Board:
        """The same board with another core clock: supply scaling, flash and power follow.

        An LDO lowers the core's voltage: the supply delivers the core's current, which is proportional to clock and
        voltage. Refuses a clock that is not described.
        """
        if hz is None or hz == self.clock_hz:
            return self
        full = self.clocks[0]
        found = next((setting for setting in self.clocks if setting.hz == hz), None)
        if found is None:
            known = ", ".join(f"{setting.hz / 1e6:g}MHz" for setting in self.clocks)
            raise ConfigError(f"{self.name}: found a clock of {hz / 1e6:g} MHz, needed one of {known}")
        share = found.hz * found.core_v / (full.hz * full.core_v)
        fewer = full.flash_fill_cycles - found.flash_fill_cycles  # off what a calibration may have found
        cache = self.cache.model_copy(update={"flash_fill_cycles": self.cache.flash_fill_cycles - fewer})
        active_w = self.power_fixed_w + share * (self.power_active_w - self.power_fixed_w)
        changed = {"clock_hz": hz, "power_active_w": active_w, "cache": cache}
        return self.model_copy(update={**changed, "calibration": self._slower_calibration(share)})

    def _slower_calibration(self, share: float) -> Calibration | None:
        """What was calibrated at full clock, its power scaled like the model's."""
        if self.calibration is None or self.calibration.power is None:
            return self.calibration
        power = self.calibration.power
        core_w = self.power_fixed_w + share * (power.core_w - self.power_fixed_w)
        scaled = {"core_w": core_w, "multiply_w": share * power.multiply_w, "line_w": share * power.line_w}
        return self.calibration.model_copy(update={"power": power.model_copy(update=scaled)})

    def told(self, boot_lines: Iterable[str]) -> Board:
        """This board as the device itself says: flash in two banks has shorter lines; a calibration knows it."""
        slower = self.cache.flash_fill_cycles_dual_bank
        if SPLIT_FLASH not in boot_lines or slower is None or self.calibration is not None:
            return self
        cycles = self.cache.flash_fill_cycles * slower / self.clocks[0].flash_fill_cycles
        return self.model_copy(update={"cache": self.cache.model_copy(update={"flash_fill_cycles": cycles})})

    def baud(self, measures_energy: bool = False) -> int:
        """At which an image of this kind starts."""
        return ENERGY_BAUD if measures_energy else self.console.baud


def board_names() -> tuple[str, ...]:
    """Every board that has a description, sorted."""
    return tuple(sorted(path.parent.name for path in BOARDS_FOLDER.glob("*/board.yaml")))


def load_board(name: str) -> Board:
    """Read the description of a board."""
    known = board_names()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
        raise ConfigError(f"boards: unknown board {name!r}, known are {', '.join(known)}; did you mean {near[0]!r}?")
    return calibrated(read_board(BOARDS_FOLDER / name / "board.yaml"), BOARDS_FOLDER / name / CALIBRATION)


def calibrated(board: Board, path: Path) -> Board:
    """The board with the costs that were fitted, where there is such a file."""
    if not path.exists():
        return board
    try:
        found = Calibration.model_validate(yaml.safe_load(path.read_text()))
    except (OSError, ValueError, yaml.YAMLError) as error:
        wrong = error.errors()[0] if isinstance(error, ValidationError) else None
        reason = f"{'.'.join(map(str, wrong['loc']))}: {wrong['msg']}" if wrong else str(error).splitlines()[0]
        raise ConfigError(
            f"{path}: no calibration ({reason}); write it anew: pipeline calibrate {board.name}"
        ) from error
    cache = board.cache.model_copy(update=found.cache.model_dump())
    return board.model_copy(update={"calibration": found, "cache": cache})


def read_board(path: Path) -> Board:
    """Read one description file; its folder must have the board's name."""
    try:
        board = Board.model_validate(yaml.safe_load(path.read_text()))
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"{path.name} of {path.parent.name}: not readable ({error})") from error
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"]) or "the whole file"
        what = "missing; add it, boards/README.md says what it is for" if first["type"] == "missing" else first["msg"]
        raise ConfigError(f"boards/{path.parent.name}/{path.name}: {key}: {what}") from error
    if board.name != path.parent.name:
        found = f"boards/{path.parent.name}/{path.name}: name is {board.name!r}"
        raise ConfigError(f"{found}, needed {path.parent.name!r} like its folder")
    return board
