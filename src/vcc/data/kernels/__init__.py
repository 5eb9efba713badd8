"""The choice of spans, as a Triton kernel."""
