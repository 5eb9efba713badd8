"""Which version of the package is installed; run from a checkout, it may be none."""

from importlib import metadata

try:
    __version__ = metadata.version("vcc-transformers")
except metadata.PackageNotFoundError:
    __version__ = "not installed"
