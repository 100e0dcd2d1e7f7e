"""Audio over the link: against a fake that loses, flips and forgets, and straight into the memory of a real twin."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from hil.fakes.fake_device import FakeDevice, FakeNetwork, Mishap
from hil.link import replies
from hil.link.audio import AudioLink, Detection, Heard, StreamReply, heard, stream_reply
from hil.link.device_link import DeviceLink
from hil.link.replies import GarbledReply, LayerProfile, LayerTicks
from hil.virtual.memory_probe import MemoryProbe
from hil.virtual.twin import Twin
from pipeline.errors import DeviceFault, LinkTimeout
from tests.hil.link.test_device_link import IMPATIENT

SAMPLES = bytes((7 * n + n // 256) % 256 for n in range(2000))


def every_tenth(audio: bytes) -> bytes:
    return audio[::10]


def hops_heard(samples: int) -> tuple[str, ...]:
    """A word at every 400th sample, told once."""
    hops = samples // 100
    words = samples // 400
    return (*([f"m-detection-[{hops},1,700]"] if samples % 400 == 0 else []), f"m-heard-[{hops},{words}]")


NETWORK = FakeNetwork(infer=lambda data: data[:5], features=every_tenth, hear=hops_heard)


def connected(device: FakeDevice) -> DeviceLink:
    link = DeviceLink.open(device.url, limits=IMPATIENT)
    link.sync()
    return link


def test_audio_goes_out_in_long_lines_of_base64() -> None:
    with FakeDevice(NETWORK) as device, connected(device) as link:
        AudioLink(link).load(SAMPLES)
        lines = [line.removeprefix("audio ") for line in device.commands if line.startswith("audio ")]
    assert lines[0] == "load 2000"
    assert lines[-1] == "crc"
    assert b"".join(base64.b64decode(line) for line in lines[1:-1]) == SAMPLES
    assert len(lines) == 2 + -(-2000 // 180)
    assert max(len(f"audio {line}") for line in lines) < 250


def test_features_and_word_are_what_the_device_holds() -> None:
    with FakeDevice(NETWORK) as device, connected(device) as link:
        audio = AudioLink(link)
        assert audio.features(SAMPLES) == every_tenth(SAMPLES)
        best = max(range(5), key=lambda index: SAMPLES[10 * index])
        assert audio.listen(SAMPLES).word == best
        assert link.retries == 0


@pytest.mark.parametrize(
    "mishap",
    [
        Mishap("deaf", "audio B", position=30),
        Mishap("silence", "audio B"),
        Mishap("not_ready", "audio load"),
        Mishap("torn", "features"),
        Mishap("flipped", "features", position=20),
        Mishap("doubled", "features"),
    ],
    ids=lambda mishap: f"{mishap.kind} {mishap.command}",
)
def test_one_mishap_costs_a_repetition_but_not_a_byte(mishap: Mishap) -> None:
    samples = b"\x04" + SAMPLES[1:]  # its base64 begins with B
    with FakeDevice(NETWORK, [mishap]) as device, connected(device) as link:
        assert AudioLink(link).features(samples) == every_tenth(samples)
        assert link.retries > 0


def stream(mishaps: list[Mishap]) -> tuple[tuple[StreamReply, ...], int]:
    with FakeDevice(NETWORK, mishaps) as device, connected(device) as link:
        fed = AudioLink(link).stream(SAMPLES, 400)
        return fed, sum(command == "stream start" for command in device.commands)


def test_a_stream_tells_its_detections_chunk_by_chunk() -> None:
    fed, starts = stream([])
    assert [reply.hops for reply in fed] == [2, 4, 6, 8, 10]
    assert [reply.detections for reply in fed] == [(), (Detection(4, 1, 700),), (), (Detection(8, 1, 700),), ()]
    assert starts == 1


@pytest.mark.parametrize("kind", ["silence", "torn", "not_ready", "reset", "doubled"])
def test_a_stream_that_is_disturbed_begins_anew_and_ends_the_same(kind: str) -> None:
    fed, starts = stream([Mishap(kind, "stream feed", skip=3)])
    assert starts == 2
    assert fed == stream([])[0]


def test_a_stream_that_never_gets_through_is_reported() -> None:
    with pytest.raises(DeviceFault, match="the stream was begun 4 times"):
        stream([Mishap("reset", "stream feed", times=99)])


def test_a_lost_detection_shows_in_the_count() -> None:
    forgetful = FakeNetwork(infer=bytes, features=every_tenth, hear=lambda samples: hops_heard(samples)[-1:])
    with (
        FakeDevice(forgetful) as device,
        connected(device) as link,
        pytest.raises(DeviceFault, match="found 0 detections and 0 frames, needed 1 and 0"),
    ):
        AudioLink(link).stream(SAMPLES, 800)


def test_a_device_without_a_front_end_refuses_audio() -> None:
    with FakeDevice(FakeNetwork(infer=bytes)) as device, connected(device) as link:
        with pytest.raises(DeviceFault, match="Unknown command: audio"):
            AudioLink(link).load(SAMPLES)
        with pytest.raises(DeviceFault, match="refused 'listen': Unknown command: listen"):
            link.command("listen")


def test_replies_are_read_in_exactly_their_form() -> None:
    assert heard(("m-word-[3]", "m-results-[0.100,0.900]")) == Heard(3, (0.1, 0.9))
    lines = ("m-frame-[5,00ff]", "m-sums-[5,12,0]", "m-detection-[5,0,12]", "m-heard-[5,1]")
    expected = StreamReply(5, 1, (Detection(5, 0, 12),), (b"\x00\xff",), ((5, 12, 0),))
    assert stream_reply(lines) == expected
    for bad in ((), ("m-heard-[5]",), ("m-frame-[5,0]", "m-heard-[5,0]"), ("m-sums-[5]", "m-heard-[5,0]")):
        with pytest.raises(GarbledReply):
            stream_reply(bad)
    with pytest.raises(GarbledReply):
        heard(("m-word-[x]", "m-results-[0.100]"))


def test_front_end_comes_before_the_ops_or_not_at_all() -> None:
    ops = (LayerTicks(0, 7), LayerTicks(1, 9))
    lines = ("m-layer-[0,7]", "m-layer-[1,9]")
    assert replies.layer_profile(lines) == LayerProfile(None, ops)
    assert replies.layer_profile(("m-layer-[front_end,5]", *lines)) == LayerProfile(5, ops)
    for bad in ((*lines, "m-layer-[front_end,5]"), ("m-layer-[front_end,5]",), ("m-layer-[front_end,5]",) * 2 + lines):
        with pytest.raises(GarbledReply):
            replies.layer_profile(bad)


def test_a_write_past_the_serial_line_leaves_the_count_of_instructions_alone(tiny_twin: Path) -> None:
    with Twin(tiny_twin) as undisturbed:
        before = undisturbed.link.layers()
    with Twin(tiny_twin) as twin:
        seen = set()
        for _ in range(5):
            assert twin.place("buffer", bytes(range(256)) * 4)
            seen.add(twin.link.layers())
        assert not twin.place("no_such_object", b"1")
        assert not twin.place("buffer", bytes(1 << 20)), "larger than the object"
    assert seen == {before}


def test_a_probe_without_a_machine_says_so() -> None:
    with pytest.raises(LinkTimeout, match="gone: its GDB server does not answer"), MemoryProbe(1, "gone"):
        pass
