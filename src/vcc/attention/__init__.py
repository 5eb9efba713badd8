"""One attention between rows, many kernels."""
