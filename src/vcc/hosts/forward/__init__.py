"""The forward pass of a wrapped model: which inputs are compressed, which tokens are VIPs, and what the heads do."""
