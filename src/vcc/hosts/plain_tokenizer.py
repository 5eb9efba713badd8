"""The bundled model's tokenizer without transformers: the same file, read by the same library underneath."""

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from vcc.errors import ModelError

SPECIAL = ("unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
FIELDS = {  # names in Hugging Face's result, and in that of the library underneath
    "input_ids": "ids",
    "token_type_ids": "type_ids",
    "attention_mask": "attention_mask",
    "special_tokens_mask": "special_tokens_mask",
    "offset_mapping": "offsets",
}
UNLESS_ASKED = {"special_tokens_mask": False, "offset_mapping": False}


class PlainTokenizer:
    """What documents and questions need of a Hugging Face tokenizer, by the same names.

    Special tokens that occur in a text are plain characters (`split_special_tokens`).
    """

    is_fast = True

    def __init__(self, folder: Path) -> None:
        try:
            self.backend_tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
            settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
            ids = {name: self.backend_tokenizer.token_to_id(settings[name]) for name in SPECIAL}
            self.model_max_length = int(settings["model_max_length"])
        except Exception as error:  # a damaged file can fail anywhere
            raise ModelError(f"the tokenizer in {folder} cannot be loaded: {error}") from error
        self.unk_token_id, self.pad_token_id, self.cls_token_id = (
            ids[f"{name}_token"] for name in ("unk", "pad", "cls")
        )
        self.all_special_ids = list(ids.values())
        self.backend_tokenizer.encode_special_tokens = True
        self.backend_tokenizer.no_padding()
        self.backend_tokenizer.no_truncation()

    def __len__(self) -> int:
        return self.backend_tokenizer.get_vocab_size()

    def __call__(
        self, text: str | list[str], pair: str | None = None, *, add_special_tokens: bool = True, **wanted: Any
    ) -> dict[str, Any]:
        """Lists of numbers by Hugging Face's names, one for a text, or a list of them for a list of texts.

        `return_...` of a field says whether it is needed.
        """
        several = not isinstance(text, str)
        given: Any = text if several else [text if pair is None else (text, pair)]
        found = self.backend_tokenizer.encode_batch(given, add_special_tokens=add_special_tokens)
        asked = {"offset_mapping": "return_offsets_mapping"}
        made = {
            name: [getattr(one, field) for one in found]
            for name, field in FIELDS.items()
            if wanted.get(asked.get(name, f"return_{name}"), UNLESS_ASKED.get(name, True))
        }
        return made if several else {name: values[0] for name, values in made.items()}
