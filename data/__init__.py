"""Data sets: what they are (manifests) and how they become clips, pictures and labels. The data are never here."""

from data.audio import CLIP_SAMPLES, SAMPLE_RATE_HZ
from data.builtin_images import builtin_images
from data.cifar10 import cifar10_images
from data.class_folders import folder_data
from data.compat import import_torchaudio, import_torchvision
from data.corpus import Corpus, Mixing, SplitAudio
from data.download import Listener
from data.imagenet import imagenet_images
from data.images import ImageSet, ImageSplit
from data.keywords import CorpusSize, keyword_corpus
from data.manifest import SPLITS, Manifest, Split, load_manifest, manifest_names
from data.speech_commands import speech_commands_corpus
from data.store import Located, located
from data.visual_wake_words import visual_wake_words_images

__all__ = [
    "CLIP_SAMPLES",
    "SAMPLE_RATE_HZ",
    "SPLITS",
    "Corpus",
    "CorpusSize",
    "ImageSet",
    "ImageSplit",
    "Listener",
    "Located",
    "Manifest",
    "Mixing",
    "Split",
    "SplitAudio",
    "builtin_images",
    "cifar10_images",
    "folder_data",
    "imagenet_images",
    "import_torchaudio",
    "import_torchvision",
    "keyword_corpus",
    "load_manifest",
    "located",
    "manifest_names",
    "speech_commands_corpus",
    "visual_wake_words_images",
]
