"""Optional fused CUDA paths. Nothing here is imported unless Triton is there; the plain function is the oracle."""
