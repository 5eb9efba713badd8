"""What 1.0 promises: these names keep their parameters, in this order. New ones come last and have a default."""

import inspect

import pytest

import vcc
from vcc import cli
from vcc.documents.answer import Answer
from vcc.documents.document import Document
from vcc.integrations.folder import Folder

FROZEN = """
Cut(opened, kept, opened_nodes, gates, scores)
DecoderConfig(scales, budget, mass, first, local, fresh, piece, order, spread, prefill, block)
Rows(hidden, counts, positions, pattern)
SegmentTree(scales, length, means, differences, counts, positions, regular)
VccConfig(scales, budget, window, window_layers, vip_window, score, explore, dense_below, max_vips)
build_tree(rows, scales)
choose_cut(tree, score, budget, explore)
compile(model, whole)
compile_seconds(model)
encode(host, rows, vip_mask, config, watch)
flatten_tree(tree)
folder(path, model)
join_vips(vips, context, layout)
pipeline(model, tokenizer, options)
read(path, limits, seconds)
read_cut(tree, cut)
review(paths, questions, top, threshold, model)
split_vips(rows, vip_mask, capacity)
unwrap(model)
wrap(model, config, max_length, tokenizer)
write_cut(tree, cut, rows)
Answer(text, start, end, score, place, page, sentence, sure, boxes)
Document.ask(self, question, top, threshold, model)
Document.ask_all(self, questions, top, threshold, model)
Document.extract(self, schema, threshold, model)
Document.see(self, question, top, model)
Document.verify(self, text, model)
Folder.ask(self, question, top, documents)
Folder.find(self, question, top)
"""
CLASSES = {"Answer": Answer, "Document": Document, "Folder": Folder}
COMMANDS = "ask chat review extract verify index find see serve mcp pretrain finetune evaluate tasks bench reproduce"
PARAMETERS = {
    name: parameters.removesuffix(")").split(", ")
    for name, _, parameters in (line.partition("(") for line in FROZEN.strip().splitlines())
}


def parameters(name: str) -> list[inspect.Parameter]:
    value = CLASSES.get(name.partition(".")[0], vcc)
    for attribute in [part for part in name.split(".") if part not in CLASSES]:
        value = getattr(value, attribute)
    return list(inspect.signature(value).parameters.values())  # type: ignore[arg-type]


def test_every_public_name_is_frozen() -> None:
    assert set(vcc.__all__) <= {*PARAMETERS, "Host"}


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_name_keeps_its_parameters_and_new_ones_are_optional(name: str) -> None:
    now = parameters(name)
    kept, new = now[: len(PARAMETERS[name])], now[len(PARAMETERS[name]) :]
    assert [each.name for each in kept] == PARAMETERS[name]
    empty, several = inspect.Parameter.empty, (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    assert all(each.default is not empty or each.kind in several for each in new)


def test_a_host_needs_no_more_than_these() -> None:
    assert vcc.Host.__abstractmethods__ == {"num_layers", "training", "layer", "score"}


def test_every_command_is_still_there() -> None:
    assert set(COMMANDS.split()) <= set(cli.COMMANDS)
