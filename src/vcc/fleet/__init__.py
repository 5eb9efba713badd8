"""Many documents: one function per document, in one process, in many, or on a cluster; and search over all of them."""
