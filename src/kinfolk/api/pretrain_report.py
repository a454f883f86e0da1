"""The report of a language model's run, and the card of its model.

report.md   perplexity, picture, what it writes, training, data, notes
loss.png    loss, perplexity and learning rate over the steps
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kinfolk.api.info import config_sizes
from kinfolk.api.loaded import LanguageModel
from kinfolk.api.markdown import escaped, indented, page, table
from kinfolk.api.summary import LONGEST_SETTING, draw_loss, run_told, settings_told
from kinfolk.files import write_bytes
from kinfolk.objectives.language_model import ContiguousStreams
from kinfolk.training.settings import TrainSettings
from kinfolk.training.trainer import Trained

SAMPLES = 5
SAMPLE_TOKENS = 40


@dataclass(frozen=True)
class PretrainSummary:
    """What there is to tell of a trained language model."""

    name: str
    encoder: LanguageModel
    corpus: str
    metrics: Mapping[str, float]
    settings: TrainSettings
    batches: ContiguousStreams
    trained: Trained


def write_pretrain_report(folder: Path, account: PretrainSummary, notes: Sequence[str]) -> list[str]:
    """Write the files above; what could not be drawn is said in a note and in the report, and is no fault."""
    missing = draw_loss(folder, account.settings.seed, account.trained.log)
    written = account.encoder.generate([""] * SAMPLES, tokens=SAMPLE_TOKENS)
    sections = {
        "How good it is": _metrics_told(account),
        "Notes": "\n".join(f"- {escaped(note, 1000)}" for note in [*notes, *missing]),
        "Picture": "" if missing else "![loss](loss.png)",
        "What it writes": "\n".join(f"- {escaped(text, 1000)}" for text in written),
        "Training": _training_told(account),
        "Data": indented(account.corpus),
    }
    write_bytes(folder / "report.md", page(f"Report on {escaped(account.name)}", sections).encode("utf-8", "replace"))
    return missing


def _metrics_told(account: PretrainSummary) -> str:
    explained = (
        "Perplexity of the dev text: exp of the mean -log p of a token, the ends of lines included; each token is "
        "scored once, given all before it. The model is that of the best evaluation on the way (in several streams, so "
        "those figures are a little higher): the number is slightly optimistic."
    )
    return f"{table(('on the dev text', 'value'), list(account.metrics.items()))}\n\n{explained}"


def _training_told(account: PretrainSummary) -> str:
    shape = config_sizes(account.encoder.model.config)
    batch = {"batch": f"{account.batches.batch_size:,} streams, {account.batches.bptt_length:,} tokens of each"}
    settings = {name: told for name, told in settings_told(account.settings).items() if not name.startswith("batch")}
    rows: list[tuple[str, object]] = [
        ("model", f"{shape.layers} layers, width {shape.width:,}, {shape.vocabulary:,} tokens"),
        *run_told(account.trained, account.settings.seed, batch | settings, account.encoder.device),
    ]
    return table(("", ""), rows, LONGEST_SETTING)


def pretrain_card(account: PretrainSummary) -> str:
    """README.md of the model's folder."""
    header = "---\nlibrary_name: kinfolk\npipeline_tag: text-generation\ntags:\n- kinfolk\n---"
    use = """```python
import kinfolk

model = kinfolk.load("this-folder")
print(model.generate("a text of yours"))
print(model.perplexity(["texts", "of yours"]))
```

`kinfolk finetune --model this-folder …` starts a classifier or a tagger from it."""
    lines = [
        header,
        f"# {escaped(account.name)}",
        f"This {account.encoder.model.family.title} guesses the next token of a text. It was trained with kinfolk.",
        f"## Use\n\n{use}",
        f"## How good it is\n\n{_metrics_told(account)}",
        f"## Training\n\n{_training_told(account)}",
        "## Limits\n\nIt knows only what its corpus told it. The licence is not stated here: it depends on the data.",
    ]
    return "\n\n".join(lines) + "\n"
