"""espeak-ng as a source of clips: one word, voice and prosody in, one second of int16 out.

Each clip has a process of its own, so that nothing said before can change it: the same bytes on any number of workers.
At 8 ms a clip that is cheap enough.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass

import numpy as np

from data.fetching.manifest import Prosody
from data.sounds.audio import FULL_SCALE, Int16, centred, decode_wav, resample, to_int16, trimmed
from pipeline.errors import StageError, ToolError

PROGRAM = "espeak-ng"
_LIMIT_S = 60.0  # a clip takes 10 ms; this is for a machine that hangs
_PEAK = 0.5  # of full scale, so that noise can be added without clipping


@dataclass(frozen=True, kw_only=True)
class Utterance:
    """A word said once by a voice."""

    word: str
    voice: str
    prosody: Prosody


def find_espeak(program: str = PROGRAM) -> str:
    """Path of espeak-ng, or a sentence on how to get it."""
    path = shutil.which(program)
    if path is None:
        raise ToolError.missing(
            program,
            "to speak the built-in keyword corpus",
            "install it with: apt-get install --no-install-recommends espeak-ng",
        )
    return path


def espeak_version(program: str) -> str:
    """Version number of espeak-ng, such as 1.51."""
    found = re.search(rb"\d+(?:\.\d+)+", _output([program, "--version"]))
    if found is None:
        raise StageError(f"{program}: --version names no version, needed espeak-ng 1.5 or later; install espeak-ng")
    return found[0].decode()


def speak(utterance: Utterance, program: str) -> Int16:
    """The utterance as one second at 16 kHz: trimmed, centred, at half of full scale."""
    prosody = utterance.prosody
    argv = [program, "-v", utterance.voice, "-s", str(prosody.speed_wpm), "-p", str(prosody.pitch), "--stdout", "-z"]
    where = f"espeak-ng: {utterance.voice}: {utterance.word!r}"
    pcm, rate_hz = decode_wav(_output([*argv, utterance.word + prosody.ending]), where, streamed=True)
    speech = trimmed(resample(pcm.astype(np.float64) / FULL_SCALE, rate_hz))
    if not len(speech):
        raise StageError(f"{where}: only silence, needed speech; is the voice complete in this espeak-ng?")
    return to_int16(centred(speech / np.max(np.abs(speech)) * _PEAK))


def _output(argv: list[str]) -> bytes:
    try:
        done = subprocess.run(argv, capture_output=True, timeout=_LIMIT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise ToolError.timed_out(argv, _LIMIT_S) from error
    except OSError as error:
        raise ToolError(f"{argv[0]}: cannot be started ({error.strerror}); install espeak-ng again") from error
    if done.returncode != 0:
        raise ToolError.failed(argv, done.returncode, done.stderr.decode(errors="replace"))
    return done.stdout
