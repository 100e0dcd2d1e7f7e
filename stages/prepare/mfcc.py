"""The front end of keyword spotting; `data.sounds.mfcc` holds it, because training computes features too."""

from data.sounds.mfcc import LOG_FLOOR, Mfcc, one_thread

__all__ = ["LOG_FLOOR", "Mfcc", "one_thread"]
