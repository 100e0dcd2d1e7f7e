"""Recordings and spoken words -> clips of one second with labels and noise, and clips -> MFCC or log-mel features."""
