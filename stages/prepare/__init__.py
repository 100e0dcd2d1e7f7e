"""prepare: a data set, made here, local or downloaded -> standardised features: MFCC, log-mel, or pictures."""
