"""What the kernels' C code loads and stores, in turn: compiled with the hooks of a thread sanitizer that is our own.

gcc calls a hook at every load and store; ours keep how far the output has been written and compare every load from the
input with it. One program holds many layers, each alone with its input and output; of a chain of layers that run in
turns, every buffer between them is an array of its own, between bytes that nobody may change.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stages.firmware.build.image import INCLUDES, kernel_sources
from stages.firmware.fast.dot import Weights
from stages.firmware.kernels.calls import KernelCall
from stages.firmware.model_source import compile_model
from stages.graph.graph import Graph
from stages.graph.memory.fusion import Links
from tests.stages.firmware.fast.plain_inner_loops import plain_inner_loops

_FLAGS = ("gcc", "-std=c11", "-O1", "-fwrapv", *(f"-I{folder}" for folder in INCLUDES))
_TRACED = ("-fsanitize=thread", "-fno-builtin")
_WRAPPED = ("memcpy", "memmove", "memset")

_HOOKS = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *input, *output;
static int64_t input_bytes, output_bytes, written, distance;
static int conflicts;

static void loaded(const void *at, size_t size)
{
    const int64_t first = (const char *)at - input;
    if (first + (int64_t)size > 0 && first < input_bytes && written > 0) {
        const int64_t needed = written - (first < 0 ? 0 : first);
        distance = !conflicts || needed > distance ? needed : distance;
        conflicts = 1;
    }
}

static void stored(const void *at, size_t size)
{
    const int64_t end = (const char *)at - output + (int64_t)size;
    if (end > 0 && end <= output_bytes && end > written) {
        written = end;
    }
}

#define HOOKS(n) \\
    void __tsan_read##n(void *at); void __tsan_read##n(void *at) { loaded(at, n); } \\
    void __tsan_write##n(void *at); void __tsan_write##n(void *at) { stored(at, n); } \\
    void __tsan_unaligned_read##n(void *at); void __tsan_unaligned_read##n(void *at) { loaded(at, n); } \\
    void __tsan_unaligned_write##n(void *at); void __tsan_unaligned_write##n(void *at) { stored(at, n); }
HOOKS(1) HOOKS(2) HOOKS(4) HOOKS(8) HOOKS(16)
void __tsan_read_range(void *at, size_t size); void __tsan_read_range(void *at, size_t size) { loaded(at, size); }
void __tsan_write_range(void *at, size_t size); void __tsan_write_range(void *at, size_t size) { stored(at, size); }
void __tsan_init(void); void __tsan_init(void) {}
void __tsan_func_entry(void *pc); void __tsan_func_entry(void *pc) { (void)pc; }
void __tsan_func_exit(void); void __tsan_func_exit(void) {}

void *__real_memmove(void *to, const void *from, size_t size);
void *__wrap_memcpy(void *to, const void *from, size_t size);
void *__wrap_memcpy(void *to, const void *from, size_t size)
{
    loaded(from, size ? 1 : 0);
    stored(to, size);
    return __real_memmove(to, from, size);
}
void *__wrap_memmove(void *to, const void *from, size_t size);
void *__wrap_memmove(void *to, const void *from, size_t size) { return __wrap_memcpy(to, from, size); }
void *__wrap_memset(void *to, int value, size_t size);
void *__wrap_memset(void *to, int value, size_t size)
{
    stored(to, size);
    for (size_t i = 0; i < size; i++) ((volatile char *)to)[i] = (char)value;
    return to;
}

struct layer { void (*run)(int8_t *input, int8_t *output); int64_t input_bytes, output_bytes; int (*guards)(void); };
extern const struct layer layers[];
extern const int layer_count;

static int8_t at[1 << 20];

static void fill(int8_t *bytes, int64_t count)
{
    for (int64_t i = 0; i < count; i++) bytes[i] = (int8_t)(rand() >> 8);
}

/* The layer with its input `behind` bytes behind its output; whether the output is `expected`. */
static int works(const struct layer *layer, const int8_t *values, const int8_t *expected, int64_t behind)
{
    int8_t *const start = &at[1 << 19];
    memmove(start + behind, values, (size_t)layer->input_bytes);
    layer->run(start + behind, start);
    return memcmp(start, expected, (size_t)layer->output_bytes) == 0;
}

int main(void)
{
    static int8_t values[1 << 16], expected[1 << 16];
    for (const struct layer *layer = layers; layer != layers + layer_count; layer++) {
        input = (char *)values, input_bytes = layer->input_bytes;
        output = (char *)expected, output_bytes = layer->output_bytes;
        fill(values, input_bytes);
        written = conflicts = 0;
        layer->run(values, expected);
        input_bytes = output_bytes = 0;
        const int at_distance = works(layer, values, expected, conflicts ? distance : 0) && layer->guards();
        int closer = 1; /* a byte that is lost need not change every result */
        for (int trial = 0; conflicts && closer && trial < 5; trial++) {
            fill(values, layer->input_bytes);
            layer->run(values, expected);
            closer = works(layer, values, expected, distance - 1);
        }
        printf("%d %lld %d %d\\n", conflicts, (long long)distance, at_distance, closer);
    }
    return 0;
}
"""


@dataclass(frozen=True)
class Layer:
    """A network of one op, and how it is computed."""

    graph: Graph
    call: KernelCall

    def __str__(self) -> str:
        op = self.graph.ops[0]
        shapes = [self.graph.tensors[i].shape for i in (*op.inputs[:2], *op.outputs)]
        return f"{self.call.kernel} {shapes} {op.options}"


@dataclass(frozen=True)
class Trace:
    """What was seen of a layer."""

    distance: int | None  # None: everything is read before anything is written
    is_right_there: bool  # computed with its input at this distance
    is_right_closer: bool  # and one byte closer


def layer_of(graph: Graph, weights: Weights | None) -> Layer:
    """The only op of a network on a fast kernel, if it has one and `weights` are given."""
    return Layer(graph, compile_model(graph, weights=weights).calls[0])


def layer_of_chain(graph: Graph, weights: Weights | None, band: int) -> Layer:
    """All ops of a network as one chain."""
    order = range(len(graph.ops))
    chain = next(each for each in Links(graph).starting_at(order, 0) if len(each.ops) == len(order))
    model = compile_model(graph, weights=weights, runtime="overlap", chains=[replace(chain, band=band)])
    return Layer(model.graph, model.calls[0])


def traces(layers: Sequence[Layer], folder: Path) -> list[Trace]:
    """Run every layer and watch it."""
    hooks, source, loops, program = (folder / name for name in ("hooks.c", "traced_layers.c", "inner_loops.c", "trace"))
    hooks.write_text(_HOOKS)
    source.write_text(_source(layers))
    loops.write_text(plain_inner_loops(name for layer in layers for name, _ in layer.call.assembly))
    kernels = kernel_sources()
    objects = []
    for file in (source, loops, *kernels):
        objects.append(folder / f"{len(objects)}_{file.stem}.o")  # kernels may have the name of a file of ours
        _check([*_FLAGS, *_TRACED, "-c", str(file), "-o", str(objects[-1])])
    wraps = [f"-Wl,--wrap={name}" for name in _WRAPPED]
    _check([*_FLAGS, "-c", str(hooks), "-o", str(folder / "hooks.o")])
    _check(["gcc", *map(str, objects), str(folder / "hooks.o"), *wraps, "-o", str(program)])
    done = subprocess.run([program], capture_output=True, text=True, timeout=300, check=True)
    rows = [list(map(int, line.split())) for line in done.stdout.splitlines()]
    return [Trace(row[1] if row[0] else None, bool(row[2]), bool(row[3])) for row in rows]


def _source(layers: Sequence[Layer]) -> str:
    headers = sorted({header for layer in layers for header in layer.call.headers})
    parts = ["#include <stdint.h>", *(f'#include "{header}"' for header in headers)]
    parts.append("struct layer { void (*run)(int8_t *, int8_t *); int64_t from, to; int (*guards)(void); };")
    rows = []
    for number, layer in enumerate(layers):
        op, call = layer.graph.ops[0], layer.call
        size = [layer.graph.tensors[index].nbytes for index in (op.inputs[0], op.outputs[0])]
        assert len({layer.graph.tensors[i].nbytes for i in layer.graph.activations_of(op)}) == 1
        between = {tensor: f"between_{number}_{tensor}" for tensor in op.outputs[1:]}
        parts += [_guarded(name, layer.graph.tensors[tensor].nbytes) for tensor, name in between.items()]
        places = {tensor: f"{name}.bytes" for tensor, name in between.items()} | {op.outputs[0]: "output"}
        pointers = [places.get(tensor, "input") for tensor in call.activations]
        scratch = f"static union {{ {call.scratch} }} scratch;" if call.scratch else ""
        run = f"static void run_{number}(int8_t *input, int8_t *output)\n{{\n{call.call.format(*pointers)}\n}}"
        held = " && ".join(f"{name}_holds()" for name in between.values()) or "1"
        guards = f"static int guards_{number}(void) {{ return {held}; }}"
        parts.append(_renamed("\n".join([call.constants, scratch, call.function, run, guards]), number))
        rows.append(f"{{run_{number}, {size[0]}, {size[1]}, guards_{number}}}")
    parts.append(f"const struct layer layers[] = {{ {', '.join(rows)} }};")
    parts.append(f"const int layer_count = {len(layers)};")
    return "\n".join(parts)


def _guarded(name: str, size: int) -> str:
    """An array of exactly so many bytes, between others that are checked."""
    whole = " && ".join(f"{name}.{side}[i] == 0" for side in ("before", "behind"))
    loop = f"for (int i = 0; i < 256; i++) {{ if (!({whole})) return 0; }}"
    return (
        f"static struct {{ int8_t before[256], bytes[{size}], behind[256]; }} {name};\n"
        f"static int {name}_holds(void) {{ {loop} return 1; }}"
    )


def _renamed(text: str, number: int) -> str:
    """The names of a layer, so that many can stand in one file."""
    text = re.sub(r"\bop_(\d+)", rf"op_{number}_\1", text)
    return re.sub(r"\b(fused_\d+|scratch)\b", rf"\1_{number}", text)


def _check(argv: Sequence[str]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
