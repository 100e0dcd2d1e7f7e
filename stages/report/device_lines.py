"""What else a device showed, one sentence each: accuracy on it, its front end, a stream of words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_FEATURES = {"mfcc": "MFCC", "log_mel": "log-mel"}


def device_lines(device: Mapping[str, Any], tested: Mapping[str, Any]) -> Iterator[str]:
    """From device.json and accuracy_device.json; nothing for what was not asked for."""
    who = f"{device['board']} ({device['source']})"
    if tested["n"]:
        yield (
            f"{who}: accuracy {100 * tested['accuracy_device']:.2f} % of {tested['n']} test inputs, on the host "
            f"{100 * tested['accuracy_host']:.2f} %; {tested['outputs_equal']} outputs bit-identical to the host's"
        )
    if (front_end := device["front_end"]) is not None:
        yield f"{who}: {_FEATURES[front_end['kind']]} of a clip takes {_cost(front_end)}; {_closeness(front_end)}"
    if (stream := device["stream"]) is not None:
        score, busy = stream["score"], stream["busy_share_modelled"]
        load = "" if busy is None else f"; core busy {100 * busy:.0f} % of the time, modelled"
        yield (
            f"{who}: in {stream['seconds']:.0f} s of synthetic speech {score['hits']} of {score['words']} words heard, "
            f"{score['misses']} missed, {score['false_alarms']} false alarms{load}"
        )


def _cost(front_end: Mapping[str, Any]) -> str:
    if front_end["cycles"] is not None:
        return f"{front_end['cycles']:,} cycles, measured"
    modelled = front_end["latency_ms_modelled"]
    counted = f"{front_end['instructions']:,} instructions"
    return counted if modelled is None else f"{counted}, {modelled:.3f} ms modelled"


def _closeness(front_end: Mapping[str, Any]) -> str:
    values = front_end["features"]
    return (
        f"of {values:,} int8 features {100 * front_end['features_equal'] / values:.2f} % equal the host's, "
        f"{100 * front_end['features_within_one'] / values:.2f} % within 1"
    )
