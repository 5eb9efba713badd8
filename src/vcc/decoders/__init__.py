"""The tree under a decoder's keys and values: query tokens are the VIPs, closed nodes count through their means."""
