"""Pairs of short structured texts, which rules make: dates and numbers in words, and words written backwards."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable

SMALL = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
ORDINALS = {"one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth", "nine": "ninth"}
ORDINALS |= {"twelve": "twelfth"}
MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
WEEKDAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
Pair = tuple[str, str]


def words_of(number: int) -> str:
    """A number below a million in words.

    >>> words_of(340_217)
    'three hundred and forty thousand two hundred and seventeen'
    """
    if number < 20:
        return SMALL[number]
    if number < 100:
        return TENS[number // 10 - 2] + (f"-{SMALL[number % 10]}" if number % 10 else "")
    if number < 1000:
        rest = f" and {words_of(number % 100)}" if number % 100 else ""
        return f"{SMALL[number // 100]} hundred{rest}"
    thousands, rest = divmod(number, 1000)
    joint = "" if rest == 0 else f" and {words_of(rest)}" if rest < 100 else f" {words_of(rest)}"
    return f"{words_of(thousands)} thousand{joint}"


def ordinal(number: int) -> str:
    """The number of a day in words.

    >>> ordinal(22), ordinal(30), ordinal(7)
    ('twenty-second', 'thirtieth', 'seventh')
    """
    head, hyphen, last = words_of(number).rpartition("-")
    return head + hyphen + ORDINALS.get(last, last[:-1] + "ieth" if last.endswith("y") else f"{last}th")


def year_in_words(year: int) -> str:
    """A year as it is said.

    >>> year_in_words(1995), year_in_words(1906), year_in_words(2003), year_in_words(1900)
    ('nineteen ninety-five', 'nineteen oh six', 'two thousand and three', 'nineteen hundred')
    """
    century, rest = divmod(year, 100)
    if 2000 <= year < 2010:
        return words_of(year)
    return f"{words_of(century)} " + ("hundred" if rest == 0 else f"oh {SMALL[rest]}" if rest < 10 else words_of(rest))


def date_pair(draw: random.Random) -> Pair:
    day = datetime.date.fromordinal(draw.randint(datetime.date(1800, 1, 1).toordinal(), 767_000))  # until 2100
    month, weekday, year = MONTHS[day.month - 1], WEEKDAYS[day.weekday()], day.year
    forms = (
        f"the {ordinal(day.day)} of {month}, {year_in_words(year)}",
        f"{month} the {ordinal(day.day)}, {year}",
        f"{weekday}, {day.day} {month} {year}",
        f"{month[:3]}. {day.day}, {year_in_words(year)}",
        f"{day.day}.{day.month}.{year}",
        f"{weekday[:3]} {day.day} {month[:3].lower()} {year}",
    )
    return draw.choice(forms), day.isoformat()


def number_pair(draw: random.Random) -> Pair:
    number = int(10 ** draw.uniform(0, 6))
    return words_of(min(number, 999_999)), str(min(number, 999_999))


def reversed_pair(draw: random.Random) -> Pair:
    text = "".join(draw.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(draw.randint(3, 16)))
    return text, text[::-1]


MAKERS: dict[str, Callable[[random.Random], Pair]] = {
    "dates": date_pair,
    "numbers": number_pair,
    "reversed": reversed_pair,
}


def pairs(name: str, count: int = 12_000, seed: int = 0) -> list[Pair]:
    """So many different pairs."""
    draw, targets = random.Random(f"{name} {seed}"), dict[str, str]()
    while len(targets) < count:
        source, target = MAKERS[name](draw)
        targets[source] = target
    return list(targets.items())
