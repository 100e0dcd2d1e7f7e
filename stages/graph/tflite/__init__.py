"""A .tflite file <-> a Graph; hostile files are refused in one sentence."""
