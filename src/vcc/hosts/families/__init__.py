"""The families of encoders: the table, a row each, and a file for each adapter (`Host`) around their models.

The table names Hugging Face's classes and our hosts, and imports neither.
"""

from dataclasses import dataclass
from typing import Literal

from vcc.hosts import PREFIX

# "table": learned, from the first row on (BART's table says which that is); "after padding": learned, from the row
# behind the padding token's on, as in RoBERTa; "relative": only distances matter, and no length is too long.
Positions = Literal["table", "after padding", "sinusoids", "rotary", "relative"]


@dataclass(frozen=True)
class Family:
    """The classes of one family of Hugging Face models, and what its configurations do not say."""

    model_type: str
    encoder: str  # the class whose forward embeds the tokens and runs the encoder layers
    layer: str  # the class of these layers
    host: str  # "module:Class" of the host around the encoder, imported when the family is first used
    positions: Positions = "table"
    pre_norm: bool = False  # layers normalise what they read, and the encoder its last output
    ends_with_separator: bool = True  # the token that ends a text also stands between two
    heads_pass_on: bool = True  # heads hand arguments that they do not know to the encoder


BERT, T5, BART = "vcc.hosts.families.bert:BertHost", "vcc.hosts.families.t5:T5Host", "vcc.hosts.families.bart:BartHost"
ROTARY = "vcc.hosts.families.rotary:RotaryHost"

FAMILIES: tuple[Family, ...] = (
    Family("bert", "BertModel", "BertLayer", BERT, ends_with_separator=False),
    Family("electra", "ElectraModel", "ElectraLayer", BERT, ends_with_separator=False),
    Family(
        "distilbert",
        "DistilBertModel",
        "TransformerBlock",
        "vcc.hosts.families.distilbert:DistilBertHost",
        ends_with_separator=False,
    ),
    Family("albert", "AlbertModel", "AlbertLayer", "vcc.hosts.families.albert:AlbertHost"),
    Family("roberta", "RobertaModel", "RobertaLayer", BERT, "after padding"),
    Family("xlm-roberta", "XLMRobertaModel", "XLMRobertaLayer", BERT, "after padding"),
    Family("camembert", "CamembertModel", "CamembertLayer", BERT, "after padding"),
    Family(
        "roberta-prelayernorm",
        "RobertaPreLayerNormModel",
        "RobertaPreLayerNormLayer",
        BERT,
        "after padding",
        pre_norm=True,
    ),
    Family(
        "mpnet",
        "MPNetModel",
        "MPNetLayer",
        "vcc.hosts.families.mpnet:MPNetHost",
        "after padding",
        heads_pass_on=False,
    ),
    Family(
        "deberta-v2",
        "DebertaV2Model",
        "DebertaV2Layer",
        "vcc.hosts.families.deberta:DebertaHost",
        "relative",
        ends_with_separator=False,
        heads_pass_on=False,
    ),
    Family(
        "modernbert",
        "ModernBertModel",
        "ModernBertEncoderLayer",
        "vcc.hosts.families.modernbert:ModernBertHost",
        "rotary",
        pre_norm=True,
    ),
    Family("nomic_bert", "NomicBertModel", "NomicBertLayer", ROTARY, "rotary", ends_with_separator=False),
    Family("jina_embeddings_v3", "JinaEmbeddingsV3Model", "JinaEmbeddingsV3Layer", ROTARY, "rotary"),
    Family("gte", "GteModel", "GteLayer", ROTARY, "rotary"),
    Family(
        "eurobert",
        "EuroBertModel",
        "EuroBertDecoderLayer",
        "vcc.hosts.families.rotary:EuroBertHost",
        "rotary",
        pre_norm=True,
        ends_with_separator=False,
    ),
    Family("t5", "T5Stack", "T5Block", T5, "relative", pre_norm=True),
    Family("mt5", "MT5Stack", "MT5Block", T5, "relative", pre_norm=True),
    Family("bart", "BartEncoder", "BartEncoderLayer", BART),
    Family("pegasus", "PegasusEncoder", "PegasusEncoderLayer", BART, "sinusoids", pre_norm=True),
)


def find_family(model_type: str | None) -> Family | None:
    """The row of a model type, wrapped ("vcc-bert") or not; None if there is none."""
    plain = (model_type or "").removeprefix(PREFIX)
    return next((family for family in FAMILIES if family.model_type == plain), None)
