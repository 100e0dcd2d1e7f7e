"""`check` and `tensor` of the firmware, byte for byte, on the host build under sanitizers."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from stages.graph.arithmetic.int8_reference import run_graph
from stages.graph.graph import Graph
from tests.boards.link.test_protocol import INPUT_BYTES, READY, Session, load_commands, session  # noqa: F401

INPUT = np.random.default_rng(5).integers(-128, 128, INPUT_BYTES).astype(np.int8).tobytes()


@pytest.mark.parametrize("command", ["name", "infer 1 0", "layers", "frobnicate", "x" * 81, "db print", "memory"])
def test_check_tells_the_crc_of_the_whole_reply_before_it(session: Session, command: str) -> None:  # noqa: F811
    *_, reply, check, again = session.replies(*load_commands(INPUT), command, "check", "check")
    assert check == f"m-check-[{zlib.crc32(reply + READY):08x}]\r\n".encode()
    assert again == check, "check leaves the value alone"


def test_a_word_that_only_begins_like_check_is_a_command_of_its_own(session: Session) -> None:  # noqa: F811
    _, refused, check = session.replies("name", "check it", "check")
    assert refused == b"e-[Unexpected argument: it]\r\n"
    assert check == f"m-check-[{zlib.crc32(refused + READY):08x}]\r\n".encode()


def test_every_ops_output_is_that_of_the_reference(session: Session, network: Graph) -> None:  # noqa: F811
    source = network.tensors[network.inputs[0]]
    wanted = run_graph(network, np.frombuffer(INPUT, np.int8).reshape(1, *source.shape[1:]))
    numbers = range(len(network.ops))
    asked = [f"tensor {number}{form}" for number in numbers for form in ("", " hex")]
    answers = session.replies(*load_commands(INPUT), *asked)[-len(asked) :]
    for number in numbers:
        data = wanted[network.ops[number].outputs[0]].tobytes()
        told, shown = answers[2 * number], answers[2 * number + 1]
        assert told == f"m-tensor-[{number},{len(data)},{zlib.crc32(data):08x}]\r\n".encode()
        lines = [data[start : start + 32].hex() for start in range(0, len(data), 32)]
        assert shown == "".join(f"m-tensor-[{line}]\r\n" for line in lines).encode()


def test_tensor_leaves_the_inference_as_it_was(session: Session) -> None:  # noqa: F811
    before = session.reply(*load_commands(INPUT), "infer 1 0", "output")
    assert session.reply(*load_commands(INPUT), "tensor 0", "output") == before
    ticks = session.reply(*load_commands(INPUT), "tensor 1", "layers")
    assert ticks.count(b"m-layer-[") == ticks.count(b"\r\n")


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("tensor", "tensor needs the number of an operator"),
        ("tensor 99", "tensor needs the number of an operator"),
        ("tensor -1", "tensor needs the number of an operator"),
        ("tensor 0 all", "Unexpected argument: all"),
        ("tensor 0 hex 1", "Unexpected argument: 1"),
    ],
)
def test_what_cannot_be_shown_is_refused(session: Session, command: str, error: str) -> None:  # noqa: F811
    assert session.reply(command) == f"e-[{error}]\r\n".encode()
