"""Data sets: what they are (manifests) and how they become audio and labels. The data themselves are never here."""

from data.audio import CLIP_SAMPLES, SAMPLE_RATE_HZ
from data.compat import import_torchaudio, import_torchvision
from data.corpus import Corpus, Mixing, SplitAudio
from data.keywords import CorpusSize, keyword_corpus
from data.manifest import SPLITS, Manifest, Split, load_manifest, manifest_names
from data.speech_commands import speech_commands_corpus

__all__ = [
    "CLIP_SAMPLES",
    "SAMPLE_RATE_HZ",
    "SPLITS",
    "Corpus",
    "CorpusSize",
    "Manifest",
    "Mixing",
    "Split",
    "SplitAudio",
    "import_torchaudio",
    "import_torchvision",
    "keyword_corpus",
    "load_manifest",
    "manifest_names",
    "speech_commands_corpus",
]
