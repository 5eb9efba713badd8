"""Many documents: the same work on each, in one process, in many or on a cluster; and search over all of them."""
