"""prepare: a data set, made here, local or downloaded -> standardised features: MFCC or log-mel of clips, or pictures."""
