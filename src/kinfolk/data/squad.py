"""Questions about paragraphs in the JSON of SQuAD 1.1 and 2.0.

The file is one object, so a bad row is named file:article/paragraph/question, not by a line. An answer must
be in its context at the character that it names; a question without answers has none (2.0 says is_impossible).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kinfolk.data.examples import Question, ReadResult, read_result
from kinfolk.errors import DataError, RowErrors, json_type
from kinfolk.files import read_object


def read_squad(path: str | Path, max_bad_rows: int | None = 0) -> ReadResult[Question]:
    """The questions of a file."""
    path = Path(path)
    articles = read_object(path).get("data")
    if not isinstance(articles, list):
        raise DataError(f'{path}: not a SQuAD file: its "data" is {json_type(articles)}, expected a list of articles')
    errors = RowErrors(str(path), max_bad_rows)
    questions: list[Question] = []
    seen: set[str] = set()
    for location, context, entry in _entries(articles, errors):
        reason = _error(entry, context)
        if reason is None and entry["id"] in seen:
            reason = "another question has this id"
        if reason is not None:
            errors.add(location, reason)
            continue
        seen.add(entry["id"])
        answers = tuple((answer["text"], answer["answer_start"]) for answer in entry.get("answers", ()))
        questions.append(Question(entry["id"], entry["question"], context, answers, f"{path}:{location}"))
    return read_result(questions, errors)


def _entries(articles: list[Any], errors: RowErrors) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(location, context, raw question) of everything that has the shape of a question in a paragraph."""
    for number, article in enumerate(articles, start=1):
        title = str(article.get("title") or number) if isinstance(article, dict) else str(number)
        for paragraph_number, paragraph in enumerate(_list(article, "paragraphs", title, errors), start=1):
            location = f"{title}/{paragraph_number}"
            entries = _list(paragraph, "qas", location, errors)
            context = paragraph.get("context") if entries else None
            if entries and not isinstance(context, str):
                errors.add(location, f'"context" is {json_type(context)}, expected a string')
                continue
            for entry_number, entry in enumerate(entries, start=1):
                if isinstance(entry, dict) and isinstance(context, str):
                    yield f"{location}/{entry.get('id', entry_number)}", context, entry
                else:
                    errors.add(f"{location}/{entry_number}", f"expected an object, found {json_type(entry)}")


def _list(owner: Any, name: str, location: str, errors: RowErrors) -> list[Any]:
    if not isinstance(owner, dict):
        errors.add(location, f"expected an object, found {json_type(owner)}")
        return []
    value = owner.get(name)
    if not isinstance(value, list):
        errors.add(location, f'"{name}" is {json_type(value)}, expected a list')
        return []
    return value


def _error(entry: dict[str, Any], context: str) -> str | None:
    for name in ("id", "question"):
        if not isinstance(entry.get(name), str):
            return f'"{name}" is {json_type(entry.get(name))}, expected a string'
    answers = entry.get("answers", [])
    if not isinstance(answers, list):
        return f'"answers" is {json_type(answers)}, expected a list'
    if answers and entry.get("is_impossible"):
        return "is_impossible, and yet there are answers"
    return next((reason for answer in answers if (reason := _answer_error(answer, context))), None)


def _answer_error(answer: Any, context: str) -> str | None:
    if not isinstance(answer, dict) or not isinstance(answer.get("text"), str):
        return 'an answer must be an object with "text" and "answer_start"'
    text, start = answer["text"], answer.get("answer_start")
    if type(start) is not int:
        return f'"answer_start" is {json_type(start)}, expected a whole number'
    if not text:
        return "an answer is empty"
    if start < 0 or not context.startswith(text, start):
        return f"the answer {text[:40]!r} is not at character {start} of its context"
    return None
