"""Thumb-2 instructions as the Cortex-M7's issue stage sees them: which pipe, which registers, when and how late.

Decoding is capstone's; what is added here is the class of each instruction and the stage in which it reads its
operands.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any

import capstone  # type: ignore[import-untyped]
from capstone import arm

from hil.virtual.program import Program
from pipeline.errors import ToolError

FLAGS = arm.ARM_REG_CPSR
FP_FLAGS = arm.ARM_REG_FPSCR
_PC = arm.ARM_REG_PC

_MULTIPLY = (
    "mul",
    "mla",
    "mls",
    "smul",
    "smla",
    "smls",
    "smmul",
    "smmla",
    "smmls",
    "smuad",
    "smusd",
    "umul",
    "umla",
    "umaal",
)
_FIELD = ("bfi", "bfc", "sbfx", "ubfx", "rev", "rbit", "clz", "ssat", "usat", "pkh", "sel")
_EXTEND = ("sxt", "uxt")
_PARALLEL = tuple(
    prefix + operation
    for prefix in ("s", "u", "q", "uq", "sh", "uh")
    for operation in ("add8", "add16", "sub8", "sub16", "asx", "sax")
) + ("qadd", "qsub", "qdadd", "qdsub", "usad8", "usada8")
_MANY = ("ldm", "stm", "push", "pop", "vldm", "vstm", "vpush", "vpop")
_SHIFT = ("lsl", "lsr", "asr", "ror", "rrx")
_SLOW_FLOAT = ("vdiv", "vsqrt")
_CONDITIONS = ("eq", "ne", "hs", "lo", "mi", "pl", "vs", "vc", "hi", "ls", "ge", "lt", "gt", "le", "cs", "cc")


@dataclass(frozen=True)
class CoreParameters:
    """What the model takes a Cortex-M7 to need, in cycles; `pipeline calibrate` fits it to a board.

    Public sources (technical reference manual, optimisation notes, llvm's scheduling model) give the latencies;
    what says guess is one.
    """

    multiply_latency: float = 2.0  # until an ALU can use a product
    narrow_load_latency: float = 2.0  # LDRB, LDRH: the extension takes a stage
    saturate_latency: float = 2.0
    float_latency: float = 3.0
    load_to_multiply: float = 2.0  # a loaded value at the multiplier
    divide_cycles: float = 7.0  # 3 to 12 by the operands; the middle: a guess
    slow_float_cycles: float = 14.0  # VDIV, VSQRT
    mispredicted_cycles: float = 8.0  # refill of the six-stage pipeline; 6 to 8 by where the branch resolves
    return_cycles: float = 3.0  # indirect jumps; a return stack predicts most of them: a guess


class Pipe(Enum):
    """The execution resource an instruction needs, of which most exist once."""

    ALU = auto()  # two of them
    SHIFT = auto()  # ALU with a shifted operand: one shifter
    FIELD = auto()  # SIMD, bit field, saturation, extension: one, older slot only
    MULTIPLY = auto()
    LOAD = auto()
    STORE = auto()
    BRANCH = auto()
    FLOAT = auto()
    ALONE = auto()  # issues with nothing beside it


@dataclass(frozen=True)
class Instruction:
    """One decoded instruction; registers are capstone's numbers."""

    address: int
    size_bytes: int
    mnemonic: str
    pipe: Pipe
    reads: frozenset[int]
    writes: frozenset[int]
    address_registers: frozenset[int]  # read first of all, by the address unit
    early_registers: frozenset[int]  # read before the ALU: by shifter or bit-field unit
    accumulators: frozenset[int]  # read last, by the adder behind the multiplier
    updated_base: frozenset[int]  # written by the address unit: ready at once
    offset: tuple[int, int] | None  # base register and displacement of a load with constant offset
    cycles: float  # issue slots it keeps for itself
    latency: float  # cycles until a late ALU can use its result
    is_simple: bool  # done by the early ALU: its result reaches an address one cycle later
    is_load: bool
    is_store: bool
    is_return: bool  # changes the PC to a value from a register or from memory
    is_conditional_branch: bool
    target: int | None = None  # of a branch to a fixed address
    priced_by: tuple[str, str] = ("", "")  # the parameters behind `cycles` and `latency`, where one is

    def at(self, core: CoreParameters) -> Instruction:
        """The same with other parameters."""
        cycles, latency = (getattr(core, name) if name else None for name in self.priced_by)
        if cycles is None and latency is None:
            return self
        return replace(
            self,
            cycles=self.cycles if cycles is None else cycles,
            latency=self.latency if latency is None else latency,
        )


class Decoder:
    """Instructions of a program by address, each decoded once."""

    def __init__(self, program: Program, core: CoreParameters = CoreParameters()) -> None:
        self._program, self.core = program, core
        self._capstone = capstone.Cs(capstone.CS_ARCH_ARM, capstone.CS_MODE_THUMB | capstone.CS_MODE_MCLASS)
        self._capstone.detail = True
        self._known: dict[int, Instruction] = {}

    def block(self, address: int, count: int) -> tuple[Instruction, ...]:
        """`count` instructions from `address` on."""
        found = []
        for _ in range(count):
            instruction = self._at(address)
            found.append(instruction)
            address += instruction.size_bytes
        return tuple(found)

    def adjusted(self, core: CoreParameters) -> Decoder:
        """The same program with other parameters; what was decoded need not be decoded again."""
        other = Decoder(self._program, core)
        other._known = {address: instruction.at(core) for address, instruction in self._known.items()}
        return other

    def _at(self, address: int) -> Instruction:
        if address not in self._known:
            code = self._program.code_at(address, 4)
            raw = next(self._capstone.disasm(code, address, 1), None)
            if raw is None:
                raise ToolError(
                    f"cycle model: no known instruction at {address:#x} ({code.hex() or 'outside the image'})"
                )
            self._known[address] = classified(raw).at(self.core)
        return self._known[address]


def classified(raw: Any) -> Instruction:
    """What the issue model needs to know of a capstone instruction; `at` prices it."""
    name = raw.mnemonic.split(".")[0]
    operands = raw.operands
    reads, writes = (frozenset(registers) - {_PC} for registers in raw.regs_access())
    is_return = _changes_pc_indirectly(name, operands)
    memory = next((operand.mem for operand in operands if operand.type == arm.ARM_OP_MEM), None)
    many = name.startswith(_MANY)
    is_load = name.startswith(("ldr", "ldm", "pop", "vldr", "vldm", "vpop"))
    is_store = name.startswith(("str", "stm", "push", "vstr", "vstm", "vpush"))
    base = (
        frozenset() if memory is None else frozenset(register for register in (memory.base, memory.index) if register)
    )
    pipe = _pipe(name, operands, is_load, is_store, is_return)
    return Instruction(
        address=raw.address,
        size_bytes=raw.size,
        mnemonic=name,
        pipe=pipe,
        reads=reads,
        writes=writes,
        address_registers=frozenset({operands[0].reg})
        if many and memory is None and "p" not in name[:2]
        else base - {_PC},
        early_registers=_early_registers(name, pipe, operands, reads),
        accumulators=_accumulators(name, pipe, operands),
        updated_base=base & writes if is_store or (is_load and not many) else frozenset(),
        offset=(memory.base, memory.disp) if pipe is Pipe.LOAD and memory is not None and not memory.index else None,
        cycles=_issue_cycles(name, many, operands),
        latency=1,
        is_simple=pipe is Pipe.ALU,
        is_load=is_load,
        is_store=is_store,
        is_return=is_return,
        target=operands[-1].imm if pipe is Pipe.BRANCH and operands[-1].type == arm.ARM_OP_IMM else None,
        priced_by=(_slow_kind(name), _latency_kind(name, pipe, is_load)),
        is_conditional_branch=name in ("cbz", "cbnz") or (name[:1] == "b" and name[1:] in _CONDITIONS),
    )


def _changes_pc_indirectly(name: str, operands: Any) -> bool:
    if name in ("bx", "tbb", "tbh") or (name == "blx" and operands[0].type == arm.ARM_OP_REG):
        return True
    registers = [operand.reg for operand in operands if operand.type == arm.ARM_OP_REG]
    return (
        name.startswith(("pop", "ldm", "ldr", "mov"))
        and _PC in registers
        and (name.startswith(("pop", "ldm")) or registers[0] == _PC)
    )


def _pipe(name: str, operands: Any, is_load: bool, is_store: bool, is_return: bool) -> Pipe:
    if name.startswith(_MANY) or name in ("ldrd", "strd") or name.startswith(("sdiv", "udiv")):
        return Pipe.ALONE
    if name.startswith(_MULTIPLY):
        return Pipe.MULTIPLY
    if is_load:
        return Pipe.LOAD
    if is_store:
        return Pipe.STORE
    if is_return or name in ("b", "bl", "cbz", "cbnz") or (name[:1] == "b" and name[1:] in _CONDITIONS):
        return Pipe.BRANCH
    if name.startswith("v"):
        return Pipe.FLOAT
    if name.startswith(_FIELD + _EXTEND) or name.startswith(_PARALLEL):
        return Pipe.FIELD
    if any(operand.type == arm.ARM_OP_REG and operand.shift.type != arm.ARM_SFT_INVALID for operand in operands):
        return Pipe.ALU if name.startswith(_SHIFT) else Pipe.SHIFT
    return Pipe.ALU


def _early_registers(name: str, pipe: Pipe, operands: Any, reads: frozenset[int]) -> frozenset[int]:
    """Operands that pass a shifter first: all of a bit-field operation's, the shifted one of the others."""
    if pipe is Pipe.SHIFT or (pipe is Pipe.FIELD and name.startswith(("pkh", "sxta", "uxta"))):
        return frozenset({operands[-1].reg})
    if pipe is Pipe.FIELD and name.startswith(("bfi", "sbfx", "ubfx", "rev", "rbit", "ssat", "usat")):
        return reads
    return frozenset()


def _accumulators(name: str, pipe: Pipe, operands: Any) -> frozenset[int]:
    if pipe is not Pipe.MULTIPLY:
        return frozenset()
    if name.startswith(("smlal", "smlsl", "smlald", "smlsld", "umlal", "umaal")):
        return frozenset({operands[0].reg, operands[1].reg})
    is_long = name.startswith(("smull", "umull"))
    return frozenset({operands[3].reg}) if len(operands) == 4 and not is_long else frozenset()


def _issue_cycles(name: str, many: bool, operands: Any) -> int:
    if many:
        has_base = name.startswith(("ldm", "stm", "vldm", "vstm"))
        registers = sum(operand.type == arm.ARM_OP_REG for operand in operands) - has_base
        return max(1, (int(registers) + 1) // 2)  # a 64-bit path: two registers a cycle
    return 1


def _slow_kind(name: str) -> str:
    if name.startswith(("sdiv", "udiv")):
        return "divide_cycles"
    return "slow_float_cycles" if name.startswith(_SLOW_FLOAT) else ""


def _latency_kind(name: str, pipe: Pipe, is_load: bool) -> str:
    if pipe is Pipe.FLOAT:
        return "float_latency"
    if pipe is Pipe.MULTIPLY:
        return "multiply_latency"
    if is_load and name.startswith(("ldrb", "ldrh", "ldrs")):
        return "narrow_load_latency"
    return "saturate_latency" if name.startswith(("ssat", "usat")) else ""
