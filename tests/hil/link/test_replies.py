"""Replies are read in exactly the protocol's form, or not at all."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hil.link import replies
from hil.link.replies import GarbledReply, Inference, LayerTicks, MemoryUse

INFER_REPLY = (
    "m-warmup-start-2",
    "m-warmup-done",
    "m-infer-start-5",
    "m-lap-us-1000",
    "m-lap-us-6000",
    "m-infer-done",
    "m-results-[0.000,0.996,-0.125]",
)


def test_infer_reply_gives_time_and_results() -> None:
    assert replies.inference(INFER_REPLY, 5, 2) == Inference(1000, 6000, (0.0, 0.996, -0.125))
    assert replies.inference(INFER_REPLY, 5, 2).elapsed_us == 5000


@pytest.mark.parametrize("missing", range(len(INFER_REPLY)))
def test_infer_reply_without_one_of_its_lines_is_garbled(missing: int) -> None:
    with pytest.raises(GarbledReply):
        replies.inference(INFER_REPLY[:missing] + INFER_REPLY[missing + 1 :], 5, 2)


@pytest.mark.parametrize("doubled", range(len(INFER_REPLY)))
def test_infer_reply_with_one_line_doubled_is_garbled(doubled: int) -> None:
    with pytest.raises(GarbledReply):
        replies.inference(INFER_REPLY[: doubled + 1] + INFER_REPLY[doubled:], 5, 2)


def test_clock_that_runs_backwards_is_garbled() -> None:
    with pytest.raises(GarbledReply, match="runs backwards: 7000 us, then 6000 us"):
        replies.inference([line.replace("1000", "7000") for line in INFER_REPLY], 5, 2)


def test_single_values_are_read() -> None:
    assert replies.build_id(["m-build-[00ff00ff00ff00ff]"]) == "00ff00ff00ff00ff"
    assert replies.crc(["m-crc-[0000beef]"]) == 0xBEEF
    assert replies.clock_hz(["m-clock-[480000000]"]) == 480_000_000
    assert replies.memory(["m-memory-[376,4096,16000]"]) == MemoryUse(376, 4096, 16000)


@pytest.mark.parametrize(
    ("parse", "line"),
    [
        (replies.build_id, "m-build-[00ff00ff00ff00f]"),
        (replies.build_id, "m-build-[00ff00ff00ff00fg]"),
        (replies.crc, "m-crc-[beef]"),
        (replies.clock_hz, "m-clock-[480000000"),
        (replies.memory, "m-memory-[376,4096]"),
        (replies.output, "m-output-[012]"),
        (replies.output, "m-output-[]"),
        (replies.layer_profile, "m-layer-[1,5]"),
        (replies.results, "m-results-[0.1,]"),
        (replies.nothing, "m-load-done"),
    ],
)
def test_torn_or_garbled_value_is_refused(parse, line: str) -> None:
    with pytest.raises(GarbledReply):
        parse([line])


def test_a_long_reply_is_shown_by_its_beginning() -> None:
    for count, shown in (
        (4, r"4 lines \('0', '1', '2', '3'\), needed"),
        (5, r"5 lines \('0', .*, '3', \.\.\.\), needed"),
    ):
        with pytest.raises(GarbledReply, match=shown):
            replies.crc([str(number) for number in range(count)])
    with pytest.raises(GarbledReply, match="found no line, needed one line of the form"):
        replies.crc([])


def test_layers_must_come_once_each_and_in_order() -> None:
    lines = ["m-layer-[0,120]", "m-layer-[1,7]", "m-layer-[2,0]"]
    assert replies.layer_profile(lines).ops == (LayerTicks(0, 120), LayerTicks(1, 7), LayerTicks(2, 0))
    for wrong in (lines[:1] + lines[2:], lines[:2] + lines[1:], lines[::-1], []):
        with pytest.raises(GarbledReply):
            replies.layer_profile(wrong)


@settings(deadline=None, derandomize=True)
@given(st.binary(min_size=1, max_size=200), st.integers(1, 64))
def test_output_is_the_same_however_it_is_split_into_lines(data: bytes, per_line: int) -> None:
    lines = [f"m-output-[{data[at : at + per_line].hex()}]" for at in range(0, len(data), per_line)]
    assert replies.output(lines) == data


@settings(deadline=None, derandomize=True)
@given(st.builds(str.__add__, st.sampled_from(["m-", "e-[", "m", ""]), st.text("]-[ab \r\x7fé~", max_size=8)))
def test_only_printable_messages_and_errors_are_well_formed(line: str) -> None:
    printable = all(" " <= character <= "~" for character in line)
    is_error = line.startswith("e-[") and line.endswith("]")
    assert replies.is_well_formed(line) == (printable and (line.startswith("m-") or is_error))
