"""The network as ops and tensors: resource use, operator order, arena layout, .tflite in and out."""
