"""The report of a translator's run, and the card of its model.

    report.md   metrics, picture, translations of dev pairs, training, data, notes
    loss.png    loss, BLEU and learning rate over the steps

The report quotes the user's texts and places, so it stays in the run's folder; the card (the model's README.md) does
not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kinfolk.api.decoder_start import DecoderStart
from kinfolk.api.markdown import escaped, indented, page, plain, table
from kinfolk.api.pairs import PairSurvey
from kinfolk.api.summary import LONGEST_SETTING, draw_loss, run_told, settings_told
from kinfolk.api.translation_run import TranslationResult
from kinfolk.files import write_bytes
from kinfolk.objectives.scheduled_sampling import SamplingSchedule
from kinfolk.training.settings import TrainSettings

SHOWN_SAMPLES = 20
LONGEST_TEXT = 200


@dataclass(frozen=True)
class TranslatorSummary:
    """What there is to tell of a trained translator."""

    name: str
    result: TranslationResult
    survey: PairSurvey
    settings: TrainSettings
    smoothing: float
    sampling: SamplingSchedule
    start: DecoderStart | None
    train: str  # names of files, without folders
    dev: str


def write_translator_report(folder: Path, account: TranslatorSummary, notes: Sequence[str] = ()) -> list[str]:
    """Write the files above; what could not be drawn is said in a note and in the report, and is no fault."""
    missing = draw_loss(folder, account.settings.seed, account.result.trained.log)
    sections = {
        "How good it is": _metrics_told(account),
        "Notes": "\n".join(f"- {escaped(note, 1000)}" for note in [*notes, *missing]),
        "Picture": "" if missing else "![loss](loss.png)",
        "What it writes": _samples_told(account),
        "Training": _training_told(account),
        "Data": indented(str(account.survey)),
    }
    write_bytes(folder / "report.md", page(f"Report on {escaped(account.name)}", sections).encode("utf-8", "replace"))
    return missing


def _metrics_told(account: TranslatorSummary) -> str:
    result = account.result
    if not result.metrics:
        return "Not measured: there was no dev set."
    search = result.translator.manner
    explained = (
        f"BLEU of {len(result.samples):,} dev pairs by sacreBLEU, {result.signature}: with a beam of {search.beams}, "
        "and greedy as while training. Exact is the share of translations that are the reference. The loss is the "
        "cross-entropy of a target token, over all dev pairs. The checkpoint was selected by its greedy BLEU here, so "
        "the numbers are slightly optimistic."
    )
    title, rows = metrics_table(result.metrics, len(result.samples), account.survey.dev_pairs)
    return f"{table((title, 'value'), rows)}\n\n{explained}"


def metrics_table(metrics: Mapping[str, float], measured: int, held: int) -> tuple[str, list[tuple[str, float]]]:
    """The title and the rows of metrics: where only some of the dev pairs were translated, the title says so."""
    if measured == held:
        return "on the dev set", [(name.replace("_", " "), value) for name, value in metrics.items()]
    names = {name: name.replace("_", " ") for name in metrics} | {"loss": "loss on all of them"}
    return f"on {measured:,} of {held:,} dev pairs", [(names[name], value) for name, value in metrics.items()]


def _samples_told(account: TranslatorSummary) -> str:
    rows = [(pair.source, pair.target, text) for pair, text in account.result.samples[:SHOWN_SAMPLES]]
    return table(("source", "reference", "the model writes"), rows, LONGEST_TEXT) if rows else ""


def _training_told(account: TranslatorSummary) -> str:
    result, survey = account.result, account.survey
    settings = {"label smoothing": f"{account.smoothing:g}", **_manner_told(account), **settings_told(account.settings)}
    rows: list[tuple[str, object]] = [
        ("training data", f"{survey.pairs:,} pairs ({account.train})"),
        ("dev data", f"{survey.dev_pairs:,} pairs ({account.dev})" if survey.dev_pairs else "none"),
        ("vocabulary", survey.vocabulary),
        ("model", f"{survey.model}, {survey.parameters:,} weights"),
        *run_told(result.trained, account.settings.seed, settings, result.translator.device),
    ]
    return table(("", ""), rows, LONGEST_SETTING)


def _manner_told(account: TranslatorSummary) -> dict[str, str]:
    """What the decoder read while it learned, and where it began, if either was not as usual."""
    plan = account.sampling
    sampled = f"at most {plan.maximum:g}, {plan.schedule}, {plan.mode}"
    told = {"scheduled sampling": sampled} if plan.maximum else {}
    return told if account.start is None else told | {"decoder begun as": account.start.name}


def translator_card(account: TranslatorSummary) -> str:
    """README.md of the model's folder."""
    survey, known = account.survey, account.result.translator.trained_length
    header = "---\nlibrary_name: kinfolk\npipeline_tag: translation\ntags:\n- kinfolk\n---"
    use = """```python
import kinfolk

model = kinfolk.load("this-folder")
print(model.translate("a text of yours"))
```

Or for a whole file: `kinfolk translate --model this-folder --input texts.txt --output translations.txt`."""
    limits = [
        f"Training saw sources of at most {known:,} tokens. Longer ones are translated with a warning.",
        "The numbers above hold for texts like those of the dev set. Measure it on pairs of your own: "
        "`kinfolk evaluate --model this-folder --input test.tsv`.",
        "The licence is not stated here: it depends on the data.",
    ]
    lines = [
        header,
        f"# {escaped(account.name)}",
        f"This {survey.model} of {survey.parameters:,} weights turns a text into a text, as the pairs of "
        f"{escaped(plain(account.train))} taught it. It was trained with kinfolk.",
        f"## Use\n\n{use}",
        f"## How good it is\n\n{_metrics_told(account)}",
        f"## Training\n\n{_training_told(account)}",
        "## Limits\n\n" + "\n".join(f"- {limit}" for limit in limits),
    ]
    return "\n\n".join(lines) + "\n"
