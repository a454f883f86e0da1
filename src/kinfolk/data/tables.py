"""Labelled texts from tables (classes, multiple labels, or numbers), choices, questions, and pairs.

.csv, .tsv (quotes are text), .jsonl and .parquet files have columns. Which is which: the user's choice first, then the
names that public data sets use, else an error that lists the columns. A second text is taken only as the partner of the
first (`sentence1` and `sentence2`). Labels stay text ("0" is the class "0"), without the spaces around them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, takewhile, zip_longest
from pathlib import Path
from typing import Any

from kinfolk.data.examples import Choice, Example, Label, Question, ReadResult, read_result, to_number
from kinfolk.data.formats import (
    TABLE_SUFFIXES,
    BadValueError,
    Row,
    is_table,
    is_utf8,
    note_bad,
    numbered_rows,
    raw_lines,
    text_cell,
)
from kinfolk.errors import DataError, InputError, RowErrors, check_choice, json_type, missing_column, shorten_list
from kinfolk.files import parse_json, read_object

PARTNERS = {  # names of the second text by that of the first
    "sentence1": ("sentence2",),
    "premise": ("hypothesis",),
    "question1": ("question2",),
    "#1 string": ("#2 string",),
    "text1": ("text2",),
    "text_a": ("text_b",),
    "question": ("sentence", "passage", "answer"),
    "query": ("passage",),
}
PAIR_COLUMNS = ("source", "target")
JSON_TYPES = {str: "a string", list: "a list", int: "a whole number"}
TEXT_COLUMNS = ("text", "sentence", "review", "content", "document", "comment", "tweet", "utterance")
LABEL_COLUMNS = (
    *("label", "labels", "gold_label", "class", "category", "stars", "rating", "score"),
    *("is_duplicate", "quality", "target", "sentiment", "intent"),
)


@dataclass(frozen=True, slots=True)
class TableColumns:
    text: str
    pair: str | None
    label: str | None
    others: tuple[str, ...] = field(default=(), compare=False)  # not read

    @property
    def description(self) -> str:
        """`text "review", label "stars"; not read: id`."""
        roles = (("text", self.text), ("pair", self.pair), ("label", self.label))
        read = ", ".join(f'{role} "{name}"' for role, name in roles if name is not None)
        return read + (f"; not read: {shorten_list(self.others, 12)}" if self.others else "")

    def content(self, row: Row) -> tuple[str, str | None]:
        """The text of a row, and the second one of a pair."""
        return text_cell(row, self.text), None if self.pair is None else text_cell(row, self.pair)


def find_columns(
    location: str, present: Sequence[str], text: str | None, pair: str | None, label: str | None, needs_label: bool
) -> TableColumns:
    """The columns of a table: those named, and guesses for those not. `pair=""` says that there is no second text. A
    label that is not needed is read only where its column is named."""
    for name in filter(None, (text, pair, label)):
        if name not in present:
            raise DataError(f"{location}: {missing_column(name, present)}")
    named = [name for name in (text, pair, label) if name]
    if len(set(named)) < len(named):
        raise InputError(f'{location}: text, pair and label must be different columns, not "{shorten_list(named)}"')
    if label is None and needs_label:
        candidates = [name for name in _known(present, LABEL_COLUMNS) if name not in named]
        label = _only(location, present, candidates, "label")
    if not text:  # the one column with the name of a text that is not another's partner
        free = [name for name in present if name not in (pair, label)]
        texts = _known(free, (*TEXT_COLUMNS, *PARTNERS))
        seconds = [partner for name in texts for partner in _partners(name, free)]
        text = _only(location, present, [name for name in texts if name not in seconds], "text")
    if pair is None:
        partners = _partners(text, [name for name in present if name != label])
        pair = _only(location, present, partners, "pair") if partners else None
    others = tuple(name for name in present if name not in (text, pair, label))
    return TableColumns(text, pair or None, label, others)


def _known(present: Sequence[str], names: Sequence[str]) -> list[str]:
    return [name for name in present if name.lower() in names]


def _partners(text: str, free: Sequence[str]) -> list[str]:
    return _known(free, PARTNERS.get(text.lower(), ()))


def _only(location: str, present: Sequence[str], candidates: list[str], role: str) -> str:
    if len(candidates) == 1:
        return candidates[0]
    why = f"{' and '.join(candidates)} could be" if candidates else "no column has a name that says it is"
    listed = shorten_list(present, limit=12) or "none"
    no_header = "" if candidates else "; a file without a header line needs --header"
    raise DataError(f"{location}: {why} the {role}; the columns are: {listed}; name one with --{role}{no_header}")


def read_examples(
    path: str | Path,
    kind: str = "classify",
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
    header: Sequence[str] | None = None,
    max_bad_rows: int | None = 0,
) -> ReadResult[Example]:
    """The examples of a file; `kind` is classify, multilabel or regress. `text`, `pair` and `label` are guessed when
    not given; `pair=""` says that there is no second text. `header` names the columns of a .csv or .tsv file that has
    no header line."""
    parse = PARSERS[check_choice("kind", kind, PARSERS)]
    if not is_table(path):
        raise DataError(f"{path}: plain lines have no labels; only {', '.join(TABLE_SUFFIXES)} files have columns")
    errors = RowErrors(str(path), max_bad_rows)
    examples: list[Example] = []
    columns: TableColumns | None = None
    for line, row in numbered_rows(Path(path), errors, header=header):
        columns = columns or find_columns(str(path), list(row), text, pair, label, needs_label=True)
        with note_bad(errors, line):
            content, name = columns.content(row), columns.label or ""
            if name not in row:
                raise BadValueError(missing_column(name, list(row)))
            examples.append(Example(*content, parse(row[name]), f"{path}:{line}"))
    return read_result(examples, errors, description="" if columns is None else columns.description)


def _class_label(value: Any) -> str:
    """Text as it stands; a number or a truth value of a JSON file as JSON writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        raise BadValueError(f"the label is {json_type(value)}, expected a string or a number")
    label = str(value).strip()
    if not label or value != value:  # parquet files may say NaN for a missing value
        raise BadValueError("the label is empty")
    return label


def _label_set(value: Any) -> tuple[str, ...]:
    """A list, or text that is a JSON list or has | or commas between its labels; an empty one has no labels."""
    text = value.strip() if isinstance(value, str) else None
    if text is not None and text.startswith("["):
        value = parse_json(text, "the labels")
    elif text is not None:
        value = text.split("|" if "|" in text else ",") if text else []
    if not isinstance(value, list):
        raise BadValueError(f"the labels are {json_type(value)}, expected a list")
    return tuple(dict.fromkeys(map(_class_label, value)))


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadValueError(f"the label is {json_type(value)}, expected a number")
    number = None if "_" in str(value) else to_number(value, texts=True)  # "1_0" is no number here
    if number is None:
        raise BadValueError(f"the label {str(value)[:40]!r} is not a finite number")
    return number


PARSERS: dict[str, Callable[[Any], Label]] = {"classify": _class_label, "multilabel": _label_set, "regress": _number}


def read_choices(path: str | Path, max_bad_rows: int | None = 0) -> ReadResult[Choice]:
    errors = RowErrors(str(path), max_bad_rows)
    return read_result([choice for _, _, choice in choice_rows(Path(path), errors, needs_label=True)], errors)


def choice_rows(path: Path, errors: RowErrors, needs_label: bool) -> Iterator[tuple[int, Row, Choice]]:
    """Each good row of a file, raw and as a choice, with its line; without `needs_label` answers are ignored. Rows are
    {context, options, answer} or like SWAG's (sent1, sent2, ending0 …, label), where the context is sent1 and each
    option sent2 with one ending."""
    if path.suffix.lower() != ".jsonl":
        raise DataError(f"{path}: choices are read from .jsonl files, one object per line")
    for line, row in numbered_rows(path, errors):
        with note_bad(errors, line):
            yield line, row, _choice(row, needs_label, f"{path}:{line}")


def _choice(row: Row, needs_label: bool, location: str) -> Choice:
    answer: Any
    if "options" in row:
        context, options, answer = text_cell(row, "context"), row["options"], row.get("answer")
    else:
        context, start, answer = text_cell(row, "sent1"), text_cell(row, "sent2"), row.get("label")
        names = takewhile(row.__contains__, (f"ending{index}" for index in count()))
        options = [f"{start} {text_cell(row, name)}" for name in names]
    if not isinstance(options, list) or len(options) < 2 or not all(isinstance(option, str) for option in options):
        raise BadValueError("the options must be a list of two or more strings")
    if needs_label and str(answer) not in map(str, range(len(options))):
        last = len(options) - 1
        raise BadValueError(f"the answer {str(answer)[:40]!r} is not the index of an option (0 to {last})")
    return Choice(context, tuple(options), int(answer) if needs_label else None, location)


def read_squad(path: str | Path, max_bad_rows: int | None = 0) -> ReadResult[Question]:
    """The questions of a SQuAD file, 1.1 or 2.0; a bad row is named file:article/paragraph/question. An answer must be
    in its context at the character that it names; a question may have none."""
    path = Path(path)
    articles = read_object(path).get("data")
    if not isinstance(articles, list):
        raise DataError(f'{path}: not a SQuAD file: its "data" is {json_type(articles)}, expected a list of articles')
    errors = RowErrors(str(path), max_bad_rows)
    questions: dict[str, Question] = {}
    for number, article in enumerate(articles, 1):
        title = str((isinstance(article, dict) and article.get("title")) or number)
        with note_bad(errors, title):
            for index, paragraph in enumerate(_field(article, "paragraphs", list), 1):
                with note_bad(errors, f"{title}/{index}"):
                    entries = _field(paragraph, "qas", list)
                    context = _field(paragraph, "context", str) if entries else ""
                    for position, entry in enumerate(entries, 1):
                        name = entry.get("id", position) if isinstance(entry, dict) else position
                        location = f"{title}/{index}/{name}"
                        with note_bad(errors, location):
                            question = _question(entry, context, f"{path}:{location}")
                            if question.id in questions:
                                raise BadValueError("another question has this id")
                            questions[question.id] = question
    return read_result(list(questions.values()), errors)


def _question(entry: Any, context: str, location: str) -> Question:
    id, question = _field(entry, "id", str), _field(entry, "question", str)
    answers = _field(entry, "answers", list) if "answers" in entry else []
    if answers and entry.get("is_impossible"):
        raise BadValueError("is_impossible, and yet there are answers")
    return Question(id, question, context, tuple(_answer(answer, context) for answer in answers), location)


def _answer(answer: Any, context: str) -> tuple[str, int]:
    text, start = _field(answer, "text", str), _field(answer, "answer_start", int)
    if not text:
        raise BadValueError("an answer is empty")
    if start < 0 or not context.startswith(text, start):
        raise BadValueError(f"the answer {text[:40]!r} is not at character {start} of its context")
    return text, start


def _field(owner: Any, name: str, kind: type) -> Any:
    if not isinstance(owner, dict):
        raise BadValueError(f"expected an object, found {json_type(owner)}")
    if type(owner.get(name)) is not kind:
        raise BadValueError(f'"{name}" is {json_type(owner.get(name))}, expected {JSON_TYPES[kind]}')
    return owner[name]


@dataclass(frozen=True, slots=True)
class Pair:
    source: str
    target: str
    location: str

    @property
    def origin(self) -> tuple[str, ...]:
        return (self.source,)


def read_pairs(path: str | Path, columns: Sequence[str] | None = None, max_bad_rows: int = 0) -> ReadResult[Pair]:
    """The pairs of one table; `columns` names the source's and the target's. Without them a .tsv file has no header,
    and others have the columns `source` and `target`."""
    path, names = Path(path), PAIR_COLUMNS if columns is None else tuple(columns)
    if len(names) != 2 or names[0] == names[1]:
        raise InputError(f"columns={columns!r} must be the names of two columns, the source's and the target's")
    if not is_table(path):
        raise DataError(f"{path}: pairs are in a table ({', '.join(TABLE_SUFFIXES)}), or in two files of lines")
    header = PAIR_COLUMNS if columns is None and path.suffix.lower() == ".tsv" else None
    errors = RowErrors(str(path), max_bad_rows)
    pairs: list[Pair] = []
    for line, row in numbered_rows(path, errors, header=header):
        with note_bad(errors, line):
            pairs.append(_pair([text_cell(row, name) for name in names], f"{path}:{line}"))
    return read_result(pairs, errors)


def read_parallel(source: str | Path, target: str | Path, max_bad_rows: int = 0) -> ReadResult[Pair]:
    """The pairs of two files of lines: line n belongs to line n."""
    files = Path(source), Path(target)
    errors = RowErrors(str(source), max_bad_rows)
    pairs: list[Pair] = []
    for line, both in enumerate(zip_longest(*map(raw_lines, files)), 1):
        if None in both:
            each = " and ".join(f"{path} has {sum(1 for _ in raw_lines(path)):,} lines" for path in files)
            raise DataError(f"{each}: each line needs its counterpart")
        bad = [path for path, (_, text) in zip(files, both, strict=True) if not is_utf8(text)]
        if bad:  # in one file, which must not shift the other
            errors.add(line, f"{bad[0]} is not UTF-8 text there")
            continue
        with note_bad(errors, line):
            pairs.append(_pair([text for _, text in both], f"{source}:{line}"))
    return read_result(pairs, errors)


def _pair(texts: list[str], location: str) -> Pair:
    for name, text in zip(PAIR_COLUMNS, texts, strict=True):
        if not text.strip():
            raise BadValueError(f"the {name} is empty")
    return Pair(texts[0], texts[1], location)


def to_pairs(items: Iterable[Any]) -> list[Pair]:
    pairs = []
    for number, item in enumerate(items, 1):
        match item:
            case Pair():
                pairs.append(item)
            case (str(source), str(target)) if source.strip() and target.strip():
                pairs.append(Pair(source, target, f"pair {number}"))
            case _:
                raise InputError(f"pair {number} is {str(item)[:40]!r}; expected two texts, the source and the target")
    return pairs
