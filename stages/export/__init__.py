"""The fine-tuned float network -> an int8 .tflite in its best order, its accuracy and the error of every layer."""
