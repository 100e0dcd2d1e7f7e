"""A fake-quant network -> model.tflite: int8, best operator order, arena planned, verified against TFLM."""
