"""The tree under a decoder's keys and values: the query tokens are the VIPs, and closed nodes count through their means."""
