"""From the `data` section to a corpus: the built-in one is spoken, a real one is read from `data.root`."""

from __future__ import annotations

from data import Corpus, CorpusSize, keyword_corpus, speech_commands_corpus
from pipeline.errors import StageError
from pipeline.stage import Progress
from stages.prepare.config import DataConfig


def open_corpus(data: DataConfig, progress: Progress) -> Corpus:
    """The corpus that was asked for, or a sentence on how to get it."""
    if data.source == "builtin_keywords":
        size = CorpusSize(voices=data.voices, prosodies=data.prosodies, copies=data.copies, seed=data.seed)
        return keyword_corpus(size, start=lambda total: progress.start(total, "clip"), advance=progress.advance)
    if data.root is None:
        raise StageError(
            f"prepare: {data.source} is not available (data.root is not set and there is no download yet); run with"
            " --quick for the built-in corpus or give a local copy with --set data.root=FOLDER"
        )
    return speech_commands_corpus(data.source, data.root, copies=data.copies, seed=data.seed)
