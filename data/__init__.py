"""Data sets: what they are (manifests) and how they become clips, pictures and labels. The data are never here."""

from data.examples.class_folders import folder_data
from data.fetching.download import Listener
from data.fetching.manifest import load_manifest
from data.fetching.splits import SPLITS, Split
from data.fetching.store import Located, located
from data.pictures.builtin_images import builtin_images
from data.pictures.cifar10 import cifar10_images
from data.pictures.imagenet import imagenet_images
from data.pictures.images import ImageSet
from data.pictures.visual_wake_words import visual_wake_words_images
from data.sounds.audio import CLIP_SAMPLES, SAMPLE_RATE_HZ
from data.sounds.corpus import Corpus
from data.sounds.keywords import CorpusSize, keyword_corpus
from data.sounds.speech_commands import speech_commands_corpus

__all__ = [
    "CLIP_SAMPLES",
    "SAMPLE_RATE_HZ",
    "SPLITS",
    "Corpus",
    "CorpusSize",
    "ImageSet",
    "Listener",
    "Located",
    "Split",
    "builtin_images",
    "cifar10_images",
    "folder_data",
    "imagenet_images",
    "keyword_corpus",
    "load_manifest",
    "located",
    "speech_commands_corpus",
    "visual_wake_words_images",
]
