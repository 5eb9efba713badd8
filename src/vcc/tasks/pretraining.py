"""The paper's pretrainings, by name. Batch, steps, length, masking and layers are the paper's; learning rate, warm-up,
precision, k and h, which it does not give, are its released code's."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from vcc.tasks.paper import Compression, Precision


@dataclass(frozen=True)
class Pretraining:
    """One way to pretrain an encoder, or an encoder-decoder if `writes`."""

    about: str
    batch_size: int
    steps: int
    learning_rate: float
    warmup_steps: int = 5000
    length: int = 4096
    mask_ratio: float = 0.15
    vcc: bool = True
    fresh: bool = False  # from random weights
    writes: bool = False  # an encoder-decoder
    precision: Precision = "fp16"
    weight_decay: float = 0.01
    epoch_count: int = 1
    compression: Mapping[int, Compression] = field(default_factory=dict)  # by layers

    def compression_for(self, layers: int) -> Compression:
        """k and h for a model with this many layers; those of the smallest if the code has no such model."""
        return self.compression.get(layers) or self.compression[min(self.compression)]


_MLM = {12: Compression(16, 44, "code"), 24: Compression(16, 50, "code")}
_SPANS = {12: Compression(16, 90, "code"), 24: Compression(16, 90, "code")}

PRETRAININGS: dict[str, Pretraining] = {
    "roberta-512": Pretraining(
        "RoBERTa from nothing, 512 tokens", 8192, 750_000, 1e-3, 1_000, 512, vcc=False, fresh=True
    ),
    "vcc": Pretraining(
        "VCC: from RoBERTa, half the masks, twice the batch", 128, 300_000, 1e-4, mask_ratio=0.075, compression=_MLM
    ),
    "vcc-150k": Pretraining("as many tokens as the baselines", 128, 150_000, 1e-4, mask_ratio=0.075, compression=_MLM),
    "vcc-star": Pretraining("VCC*: four times the batch", 512, 250_000, 1e-4, mask_ratio=0.075, compression=_MLM),
    "baseline": Pretraining("RoBERTa at 4K, Longformer, Big Bird, MRA", 64, 300_000, 1e-4, vcc=False),
    "t5": Pretraining(
        "VCC-T5: spans hidden by sentinels", 256, 250_000, 1e-3, writes=True, precision="bf16", compression=_SPANS
    ),
}
