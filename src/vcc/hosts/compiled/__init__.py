"""`vcc.compile`: the compressed path as compiled graphs and recorded CUDA graphs."""
