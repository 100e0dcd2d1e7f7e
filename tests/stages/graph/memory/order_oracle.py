"""Slow and obvious: what an order needs, the least that any order needs, and every small way to wire ops together."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Iterator

from stages.graph.graph import Graph, Op, Tensor

IN_PLACE = ("ADD", "MUL", "RELU", "RELU6", "LOGISTIC", "HARD_SWISH")
CONNECTED = {1: 1, 2: 1, 3: 4, 4: 24, 5: 267, 6: 5647, 7: 237_317}  # connected DAGs without labels, OEIS A101228

Wiring = tuple[tuple[int, ...], ...]  # for each op: the ops whose results it reads, all before it


def graph_of(sizes, ops, outputs=None) -> Graph:
    """Tensor 0 is the input, op i makes tensor i + 1; `ops` are (kind, input tensors)."""
    tensors = tuple(Tensor(f"t{i}", (1, size), "int8") for i, size in enumerate(sizes))
    made = tuple(Op(kind, f"op{i}", tuple(inputs), (i + 1,)) for i, (kind, inputs) in enumerate(ops))
    read = {index for op in made for index in op.inputs}
    ends = tuple(i for i in range(1, len(sizes)) if i not in read) if outputs is None else outputs
    return Graph(tensors, made, (0,), ends)


def random_sizes(wiring, draw: random.Random) -> Graph:
    """Kinds and sizes for ops whose input tensors are given; sometimes an inner tensor is an output as well."""
    sizes = [draw.randint(1, 4)]
    ops = []
    for inputs in wiring:
        same = len({sizes[i] for i in inputs}) == 1
        chance = draw.random()
        if len(inputs) == 1 and chance < 0.4:
            ops.append((draw.choice(("RESHAPE", "RELU", "LOGISTIC", "HARD_SWISH")), inputs))
            sizes.append(sizes[inputs[0]])
        elif len(inputs) == 2 and (same or chance < 0.5):
            ops.append((draw.choice(("ADD", "MUL")), inputs))
            sizes.append(max(sizes[i] for i in inputs))
        else:
            ops.append(("CONV_2D", inputs))
            sizes.append(draw.choice((1, 2, 3, 4, 4, 6, 9)))
    read = {index for inputs in wiring for index in inputs}
    ends = [i for i in range(1, len(sizes)) if i not in read]
    extra = [draw.randrange(len(sizes))] if draw.random() < 0.2 else []
    return graph_of(sizes, ops, tuple(sorted({*ends, *extra})))


def every_order(graph: Graph) -> Iterator[tuple[int, ...]]:
    for order in itertools.permutations(range(len(graph.ops))):
        place = {op: position for position, op in enumerate(order)}
        if all(index == 0 or place[index - 1] < place[n] for n, op in enumerate(graph.ops) for index in op.inputs):
            yield order


def slow_peak(graph: Graph, order) -> int:
    """Walk through the order with a dictionary of buffers, as an allocator would."""
    readers_left = {i: sum(i in op.inputs for op in graph.ops) for i in range(len(graph.tensors))}
    buffer = {0: 0}  # tensor -> buffer
    held = {0: graph.tensors[0].nbytes}  # buffer -> bytes
    peak = 0
    for n in order:
        op = graph.ops[n]
        (output,) = op.outputs
        taken = None
        if op.kind == "RESHAPE":
            taken = buffer[op.inputs[0]]
        elif op.kind in IN_PLACE:
            for index in op.inputs:
                sharers = [t for t, b in buffer.items() if b == buffer[index]]
                needed_later = any(readers_left[t] > (t in op.inputs) or t in graph.outputs for t in sharers)
                if not needed_later and held[buffer[index]] == graph.tensors[output].nbytes:
                    taken = buffer[index]
        buffer[output] = output if taken is None else taken
        held[buffer[output]] = graph.tensors[output].nbytes
        peak = max(peak, sum(held.values()))
        for index in set(op.inputs):
            readers_left[index] -= 1
        alive = {buffer[t] for t in buffer if readers_left[t] > 0 or t in graph.outputs}
        held = {b: size for b, size in held.items() if b in alive}
    return peak


def smallest_peak(graph: Graph) -> int:
    """The least over all orders, by going through every set of finished ops; no bound, no shortcut."""
    group = list(range(len(graph.tensors)))  # a RESHAPE's result belongs to the group of its operand
    for op in graph.ops:
        if op.kind == "RESHAPE":
            group[op.outputs[0]] = group[op.inputs[0]]
    names = {g: [t for t in range(len(group)) if group[t] == g] for g in group}

    def is_needed(g: int, done: frozenset[int]) -> bool:
        is_there = g == 0 or g - 1 in done
        wanted = any(i in names[g] for n, op in enumerate(graph.ops) if n not in done for i in op.inputs)
        return is_there and (wanted or any(t in graph.outputs for t in names[g]))

    @functools.cache
    def live(done: frozenset[int]) -> dict[int, int]:
        return {g: graph.tensors[g].nbytes for g in names if is_needed(g, done)}

    @functools.cache
    def best(done: frozenset[int]) -> int:
        if len(done) == len(graph.ops):
            return 0
        return min(
            max(running(done, n), best(done | {n}))
            for n, op in enumerate(graph.ops)
            if n not in done and all(i == 0 or i - 1 in done for i in op.inputs)
        )

    def running(done: frozenset[int], n: int) -> int:
        op, now = graph.ops[n], live(done)
        size = graph.tensors[n + 1].nbytes
        dying = [group[i] for i in op.inputs if group[i] not in live(done | {n})]
        in_place = op.kind in IN_PLACE and any(now[g] == size for g in dying)
        return sum(now.values()) + (0 if in_place or op.kind == "RESHAPE" else size)

    return best(frozenset())


def connected_dags(ops: int) -> list[Wiring]:
    """Every way to connect that many ops without a cycle, each once however they are numbered."""
    return [wiring for wiring in _dags(ops) if _is_connected(wiring)]


def graph_of_wiring(wiring: Wiring, draw: random.Random) -> Graph:
    """Ops that read none of the others read the network's input."""
    return random_sizes([tuple(op + 1 for op in sources) or (0,) for sources in wiring], draw)


@functools.cache
def _dags(ops: int) -> tuple[Wiring, ...]:
    """Every DAG has an op without followers: take one less, and add it in every way."""
    if ops == 0:
        return ((),)
    found: dict[object, Wiring] = {}
    for wiring in _dags(ops - 1):
        for chosen in range(1 << (ops - 1)):
            longer = (*wiring, tuple(i for i in range(ops - 1) if chosen >> i & 1))
            found.setdefault(_canonical(longer), longer)
    return tuple(found.values())


def _canonical(wiring: Wiring) -> object:
    """The same for two wirings just when one is the other with other numbers."""
    count = len(wiring)
    readers = [[n for n in range(count) if i in wiring[n]] for i in range(count)]
    colour = [0] * count
    for _ in range(count):
        seen = [
            (colour[i], tuple(sorted(colour[s] for s in wiring[i])), tuple(sorted(colour[r] for r in readers[i])))
            for i in range(count)
        ]
        ranks = {key: rank for rank, key in enumerate(sorted(set(seen)))}
        finer = [ranks[key] for key in seen]
        if finer == colour:
            break
        colour = finer
    classes = [[i for i in range(count) if colour[i] == c] for c in sorted(set(colour))]
    best = None
    for parts in itertools.product(*(itertools.permutations(members) for members in classes)):
        place = {op: position for position, op in enumerate(itertools.chain(*parts))}
        edges = tuple(sorted((place[s], place[n]) for n in range(count) for s in wiring[n]))
        best = edges if best is None or edges < best else best
    return count, best


def _is_connected(wiring: Wiring) -> bool:
    reached, edges = {0}, [(s, n) for n, sources in enumerate(wiring) for s in sources]
    for _ in wiring:
        reached |= {b for a, b in edges if a in reached} | {a for a, b in edges if b in reached}
    return len(reached) == len(wiring)
