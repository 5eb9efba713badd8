"""Trees of a decoder's keys and values: query tokens are the VIPs, closed nodes count through their means."""
