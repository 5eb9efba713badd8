"""Which extra brings a package that is not installed."""

EXTRAS = {  # module: extra; packages that the base installation needs are not here
    "pypdfium2": "documents",
    "matplotlib": "documents",
    "openpyxl": "documents",
    "pyarrow": "documents",
    "pandas": "train",
    "fastapi": "serve",
    "uvicorn": "serve",
    "multipart": "serve",
    "prometheus_client": "serve",
    "mcp": "mcp",
    "accelerate": "train",
    "datasets": "train",
    "rouge_score": "train",
    "tensorboard": "train",
    "ray": "ray",
    "dateparser": "forms",
    "price_parser": "forms",
    "text_to_num": "forms",
    "jsonschema": "forms",
    "gguf": "llm",
}


def how_to_install(error: ImportError) -> str | None:
    """Return what to install for a missing package of ours, else None: then the error is a bug.

    transformers names a missing package only in its message.
    """
    named = (error.name or "").partition(".")[0]
    if not named and not isinstance(error, ModuleNotFoundError):
        named = next((module for module in EXTRAS if f"`{module}" in str(error)), "")
    if named not in EXTRAS:
        return None
    return f"this needs {named}: pip install 'vcc-transformers[{EXTRAS[named]}]'"
