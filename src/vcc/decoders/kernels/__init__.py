"""One step of a decoder over a tree of keys, as Triton kernels."""
