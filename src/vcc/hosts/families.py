"""The table of families: a line each."""

from dataclasses import dataclass

from vcc.hosts.bart import BartHost, PegasusHost
from vcc.hosts.bert import BertHost, RobertaHost, RobertaPreNormHost
from vcc.hosts.host import FamilyHost
from vcc.hosts.modernbert import ModernBertHost
from vcc.hosts.t5 import T5Host


@dataclass(frozen=True)
class Family:
    """A Hugging Face model type, the class of the module that owns its encoder layers, and the host around it."""

    model_type: str
    reader: str
    host: type[FamilyHost]


FAMILIES: tuple[Family, ...] = (
    Family("bert", "BertModel", BertHost),
    Family("electra", "ElectraModel", BertHost),
    Family("roberta", "RobertaModel", RobertaHost),
    Family("xlm-roberta", "XLMRobertaModel", RobertaHost),
    Family("camembert", "CamembertModel", RobertaHost),
    Family("roberta-prelayernorm", "RobertaPreLayerNormModel", RobertaPreNormHost),
    Family("modernbert", "ModernBertModel", ModernBertHost),
    Family("t5", "T5Stack", T5Host),
    Family("mt5", "MT5Stack", T5Host),
    Family("bart", "BartEncoder", BartHost),
    Family("pegasus", "PegasusEncoder", PegasusHost),
)
