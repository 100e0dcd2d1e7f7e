"""A FrontEnd as C: front_end.h with its sizes, front_end.c with its tables, stream_settings.h for a stream."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from stages.firmware.front_end import LOG_FLOOR, FrontEnd, Stream
from stages.firmware.kernels.c_text import c_comment

_MADE_BY = "Made by stages/firmware/front_end_source.py from dataset.json and a .tflite file; changes here are lost."
_FLOATS_A_LINE = 6
_PAIRS_A_LINE = 3


def front_end_header(front_end: FrontEnd) -> str:
    """front_end.h"""
    weights = sum(len(weights) for _, weights in front_end.filters)
    rate = c_comment(f"at {front_end.sample_rate_hz} Hz")
    return "\n".join(
        [
            f"/* {_MADE_BY} */",
            "#ifndef FRONT_END_H",
            "#define FRONT_END_H",
            "",
            "#include <stdint.h>",
            "",
            f"#define FRONT_END_WINDOW_SAMPLES {front_end.window_samples}u {rate}",
            f"#define FRONT_END_HOP_SAMPLES {front_end.hop_samples}u",
            f"#define FRONT_END_CLIP_SAMPLES {front_end.clip_samples}u",
            f"#define FRONT_END_FRAMES {front_end.frames}u",
            f"#define FRONT_END_COEFFICIENTS {front_end.coefficients}u",
            f"#define FRONT_END_FFT_POINTS {front_end.fft_points}u",
            f"#define FRONT_END_FFT_LOG2 {front_end.fft_points.bit_length() - 1}",
            f"#define FRONT_END_FIRST_BIN {front_end.first_bin}u",
            f"#define FRONT_END_BINS {front_end.bins}u",
            f"#define FRONT_END_MEL_BINS {len(front_end.filters)}u",
            f"#define FRONT_END_TERMS {front_end.dct.shape[1]}u /* of a feature: mel bins that it is the sum of */",
            f"#define FRONT_END_LOG_FLOOR {_float(LOG_FLOOR)}",
            "",
            "struct front_end_complex {",
            "    float re;",
            "    float im;",
            "};",
            "",
            "/* `count` weights from bin `first`, counted from FRONT_END_FIRST_BIN. */",
            "struct front_end_filter {",
            "    uint16_t first;",
            "    uint16_t count;",
            "};",
            "",
            f"extern const float front_end_window[{front_end.window.size}];",
            "/* exp(-2 pi i k / FRONT_END_FFT_POINTS) */",
            f"extern const struct front_end_complex front_end_roots[{front_end.roots.size}];",
            f"extern const uint16_t front_end_reversed[{front_end.reversed_indices.size}];",
            f"extern const struct front_end_filter front_end_filters[{len(front_end.filters)}];",
            f"extern const float front_end_weights[{weights}];",
            f"extern const float front_end_dct[{front_end.coefficients}][{front_end.dct.shape[1]}];",
            f"extern const float front_end_offset[{front_end.coefficients}];",
            "",
            "#endif",
            "",
        ]
    )


def stream_settings(stream: Stream) -> str:
    """stream_settings.h"""
    is_word = ", ".join(str(int(word)) for word in stream.is_word)
    return f"""/* {_MADE_BY} */
#ifndef STREAM_SETTINGS_H
#define STREAM_SETTINGS_H

#define STREAM_RUN_HOPS {stream.run_hops}u
#define STREAM_SMOOTH_RUNS {stream.smooth_runs}u
#define STREAM_THRESHOLD_SUM {stream.threshold_sum}u /* of {255 * stream.smooth_runs} */
#define STREAM_REFRACTORY_HOPS {stream.refractory_hops}u
#define STREAM_IS_WORD {{{is_word}}} /* by class: may it be detected? */

#endif
"""


def front_end_source(front_end: FrontEnd) -> str:
    """front_end.c"""
    weights = np.concatenate([weights for _, weights in front_end.filters])
    roots = [f"{{{_float(root.real)}, {_float(root.imag)}}}" for root in front_end.roots]
    filters = [f"{{{first}, {len(each)}}}" for first, each in front_end.filters]
    rows = [f"{{\n{_lines(map(_float, row), _FLOATS_A_LINE)}\n    }}" for row in front_end.dct]
    parts = [
        f'/* {_MADE_BY} */\n#include "front_end.h"\n',
        _array("float", "front_end_window", front_end.window.size, map(_float, front_end.window), _FLOATS_A_LINE),
        _array("struct front_end_complex", "front_end_roots", len(roots), roots, _PAIRS_A_LINE),
        _array("uint16_t", "front_end_reversed", front_end.reversed_indices.size, front_end.reversed_indices, 16),
        _array("struct front_end_filter", "front_end_filters", len(filters), filters, 10),
        _array("float", "front_end_weights", weights.size, map(_float, weights), _FLOATS_A_LINE),
        _array("float", "front_end_dct", f"{len(rows)}][{front_end.dct.shape[1]}", rows, 1),
        _array("float", "front_end_offset", front_end.offset.size, map(_float, front_end.offset), _FLOATS_A_LINE),
    ]
    return "\n".join(parts)


def _array(c_type: str, name: str, size: object, values: Iterable[object], a_line: int) -> str:
    return f"const {c_type} {name}[{size}] = {{\n{_lines(values, a_line)}\n}};\n"


def _lines(values: Iterable[object], a_line: int) -> str:
    texts = [str(value) for value in values]
    starts = range(0, len(texts), a_line)
    return "\n".join(f"    {', '.join(texts[start : start + a_line])}," for start in starts)


def _float(value: float) -> str:
    """Nine digits give back the same single-precision number."""
    return f"{float(np.float32(value)):.8e}f"
