"""Another reader on long texts: the passages that `vcc.pipeline` chooses, beside all windows.

    python -m benchmarks.pipeline --data DATA --lengths 16384 --texts 30
    python -m benchmarks.pipeline --data DATA --lengths 16384 --texts 10 --questions 10 --tokens

SQuAD's paragraphs are hidden among others. The reader is --model NAME, or unless given the bundled model without its
wrapping (`vcc.unwrap`), which reads windows. Printed for each length: F1 and processor seconds a question of both, and
their ratios. With --questions above 1, a text is asked several times, about the paragraphs that it holds. --tokens
prints the tokens that answers hand over to another program, beside those of the text.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from transformers import AutoModelForQuestionAnswering, AutoTokenizer

import vcc
from vcc.data.example import Example
from vcc.documents.shipped import SHIPPED, load_asker
from vcc.pipeline import QuestionAnswering
from vcc.tasks.metrics import best_of, word_f1
from vcc.tasks.squad_haystack import SquadHaystack


def make(model: str | None) -> QuestionAnswering:
    if model is None:
        asker = load_asker(str(SHIPPED))
        return vcc.pipeline(vcc.unwrap(asker.model), asker.tokenizer)
    reader = AutoModelForQuestionAnswering.from_pretrained(model).eval()
    return vcc.pipeline(reader, AutoTokenizer.from_pretrained(model))


def answerable(data: Path, length: int, texts: int) -> list[Example]:
    examples = SquadHaystack(lengths=(length,)).load("validation", str(data))
    step = max(len(examples) // (4 * texts), 1)
    found = (examples[i] for i in range(0, len(examples), step))
    return [example for example in found if example.answers][:texts]


def questions_of(example: Example, data: Path, number: int) -> list[tuple[str, tuple[str, ...]]]:
    """The question of a text, and others on paragraphs that it holds."""
    asked = [(example.question, example.answers)]
    if number > 1:
        from vcc.tasks.squad import Squad

        for other in Squad().load("validation", str(data)):
            if len(asked) == number:
                break
            if other.answers and other.document in example.document and other.question != example.question:
                asked.append((other.question, other.answers))
    return asked


def measure(answering: Any, example: Example, asked: list[tuple[str, tuple[str, ...]]], **options: Any) -> Any:
    answering.indexes.clear()
    start = time.process_time()  # processor seconds: others may use the machine too
    scores = [
        best_of(word_f1, answering(question=question, context=example.document, **options)["answer"], answers)
        for question, answers in asked
    ]
    return scores, (time.process_time() - start) / len(asked)


def handed_over(data: Path, length: int, texts: int, questions: int) -> str:
    """Tokens of the answers (one each: text, sentence and place) and of the texts, for each right answer."""
    from vcc.documents.document import Document
    from vcc.pipeline import as_text

    tokenizer, right, number, given, whole = load_asker().tokenizer, 0, 0, 0, 0
    for example in answerable(data, length, texts):
        asked = questions_of(example, data, questions)
        size = len(tokenizer(example.document, verbose=False)["input_ids"])
        replies = Document(as_text(example.document)).ask_all([question for question, _ in asked], 1)
        for reply, (_, answers) in zip(replies, asked, strict=True):
            found = reply.all_answers
            given += sum(len(tokenizer(str(one.as_dict()))["input_ids"]) for one in found)
            right += any(best_of(word_f1, one.text, answers) >= 0.5 for one in found)
        number, whole = number + len(asked), whole + size * len(asked)
    each, beside = given / max(right, 1), whole / max(right, 1)
    return (
        f"{length:>8,} | {right} of {number} right | {each:,.0f} tokens for each right answer | the text: {beside:,.0f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--model", help="a question-answering checkpoint; unless given, the bundled one, unwrapped")
    parser.add_argument("--lengths", default="4096,16384")
    parser.add_argument("--texts", type=int, default=10)
    parser.add_argument("--questions", type=int, default=1, help="to each text")
    parser.add_argument("--finder", default="auto", help="words, model or auto: what chooses the passages")
    parser.add_argument("--tokens", action="store_true", help="only the tokens that are handed over")
    given = parser.parse_args()
    lengths = [int(length) for length in given.lengths.split(",")]
    if given.tokens:
        print("\n".join(handed_over(given.data, length, given.texts, given.questions) for length in lengths))
        return
    answering = make(given.model)
    print("  tokens | all windows: F1, s | chosen passages: F1, s | F1 kept | times as fast")
    for length in lengths:
        rows: dict[str, tuple[list[float], list[float]]] = {"all": ([], []), "chosen": ([], [])}
        for example in answerable(given.data, length, given.texts):
            asked = questions_of(example, given.data, given.questions)
            for name, options in (("all", {"passages": 0}), ("chosen", {"finder": given.finder})):
                scores, seconds = measure(answering, example, asked, **options)
                rows[name][0].extend(scores)
                rows[name][1].append(seconds)
            print(f"\r{len(rows['all'][1])} texts", end="", file=sys.stderr, flush=True)
        f1 = {name: 100 * sum(scores) / max(len(scores), 1) for name, (scores, _) in rows.items()}
        cost = {name: sum(times) / max(len(times), 1) for name, (_, times) in rows.items()}
        print(
            f"{length:>8,} | {f1['all']:.1f}, {cost['all']:.2f} | {f1['chosen']:.1f}, {cost['chosen']:.2f} | "
            f"{100 * f1['chosen'] / max(f1['all'], 1e-9):.1f}% | {cost['all'] / cost['chosen']:.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
