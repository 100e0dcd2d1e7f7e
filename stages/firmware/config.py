"""Configuration of firmware: what is built beside the network."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pipeline.stage import Config
from pipeline.units import Hertz, Seconds

FrontEndKind = Literal["none", "mfcc", "kws_stream", "log_mel"]
InputForm = Literal["int8", "uint8", "float32"]
Answer = Literal["outputs", "reconstruction_error"]
Mode = Literal["performance", "energy"]


class StreamConfig(Config):
    """How `kws_stream` turns the network's outputs into detections.

    With these defaults, and 800 ms to wait, a DS-CNN of 96 % accuracy found 43 of 48 words of unknown voices in three
    minutes, without a false alarm; a threshold of 0.6 gave 7 of them, 0.8 lost 6 more words.
    """

    run_every_hops: int = Field(default=5, ge=1, le=1000)  # every 100 ms: ten looks at each second
    smooth_runs: int = Field(default=3, ge=1, le=64)  # fewer: false alarms; more: later by 50 ms each
    threshold: float = Field(default=0.7, gt=0, le=1)  # of the smoothed output
    # A word is in the window for a second, and in the sums for as long as they reach back: it shall count once. With
    # 800 ms an hour of noisy words had 339 false alarms at a threshold of 0.6, nearly all repeats; with this, 39.
    refractory_s: Seconds = 1.2
    quiet_classes: tuple[str, ...] = ("silence", "unknown")  # never detected


class FirmwareConfig(Config):
    """Section `firmware` of the configuration."""

    # What the device answers to `profile`; the MLPerf Tiny runner chooses its inputs by it. Without: the task whose
    # data set it is (kws01, ic01, vww01; sww01 of a stream), or `custom`.
    model_name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,32}$")] | None = None
    optimise: Literal["O2", "O3", "Os"] = "O3"  # of what runs in an inference; the rest is built for size
    # fast: weights as int16, ready for the multiplier; small: as int8, loops instead of straight code, packed scaling,
    # built for size: weights, biases and less than 20 KB in flash, half of what fast takes, and 20 to 40 % slower.
    weights: Literal["fast", "small"] = "fast"
    # overlap: a layer's output is written over its input as far as its kernel has read that; classic: it never is.
    # Overlap costs no cycle, only offsets differ.
    runtime: Literal["classic", "overlap"] = "overlap"
    # rows: with overlap, row-wise (depth-first) fusion of layers where the arena is smaller for it; none: never, so
    # that every layer's output can be seen (`pipeline diff`).
    fusion: Literal["rows", "none"] = "rows"
    # weights: what is left of the tightly coupled memory holds copies of weights, which then cost no line fills.
    spare_ram: Literal["weights", "free"] = "weights"
    # none: the host sends features. mfcc, log_mel (as in prepare): the device takes audio, too. kws_stream: and finds
    # words in a stream of it, with the features of either.
    front_end: FrontEndKind = "none"
    stream: StreamConfig = StreamConfig()
    # performance: the device prints the time. energy: it pulses a pin instead, at 9600 baud, as MLPerf Tiny asks.
    mode: Mode = "performance"
    # int8: the host sends the tensor's own bytes. uint8: pictures as MLPerf Tiny's runner sends them, 128 higher.
    # float32: what it sends to the anomaly detector; the device quantises.
    input: InputForm = "int8"
    # reconstruction_error: not the outputs but their mean squared distance from the (float32) input, one number.
    answer: Answer = "outputs"
    # Core clock, instead of the board's fastest: one of `clocks` in its board.yaml.
    clock: Hertz | None = None
    # Serial rate from the start, instead of the board's; in energy mode it is always 9600.
    baud: int | None = Field(default=None, ge=9600, le=2_000_000)
