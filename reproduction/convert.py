"""A baseline started from a published checkpoint: `python -m reproduction.convert START KIND LENGTH FOLDER`."""

import sys

from transformers import AutoModelForMaskedLM

from reproduction.baselines.start import start_from
from vcc.hosts import load
from vcc.hosts.quiet import quiet


def main(start: str, kind: str, length: str, folder: str) -> None:
    quiet()
    model, _ = load.load_model(start, AutoModelForMaskedLM, new_head=True)
    load.load_tokenizer(start).save_pretrained(folder)
    start_from(model, kind, int(length)).save_pretrained(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
