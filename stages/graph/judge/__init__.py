"""A .tflite and inputs -> what TensorFlow Lite Micro makes of them: the judge of every int8 result."""
