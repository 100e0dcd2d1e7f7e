"""Somebody's .tflite -> what the export step would leave: a planned model and golden outputs."""
