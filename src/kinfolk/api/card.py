"""The model card: README.md of a trained model's folder, with the header that the Hugging Face hub reads.

It goes where the model goes, so it tells nothing of the machine's folders and quotes none of the user's texts; those
are in the report of the run.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kinfolk.api.find import DEMO
from kinfolk.api.markdown import escaped, plain
from kinfolk.api.summary import RunSummary, confusion_told, labels_told, metrics_told, training_told
from kinfolk.checkpoints.hub import NAME
from kinfolk.files import is_folder
from kinfolk.nn.heads import ProbeHead

DEMO_NAME = "sentence-transformers/all-MiniLM-L6-v2"
METRIC_TYPES = {  # ours: the hub's, where it has another name for it
    "macro_f1": "f1",
    "micro_f1": "f1",
    "mcc": "matthews_correlation",
    "subset_accuracy": "accuracy",
    "exact": "exact_match",
    "pearson": "pearsonr",
    "spearman": "spearmanr",
    "mean_absolute_error": "mae",
    "root_mean_squared_error": "rmse",
}


@dataclass(frozen=True)
class Kind:
    """How a task is told: what the model does, the hub's name for it, the class in transformers, and how to ask."""

    does: str
    tag: str
    architecture: str
    ask: str


TEXTS = ("text-classification", "AutoModelForSequenceClassification", 'model.classify("a text of yours")')
KINDS = {
    "classify": Kind("gives a text, or a pair of texts, one of {labels} labels", *TEXTS),
    "multilabel": Kind("gives a text, or a pair of texts, any of {labels} labels", *TEXTS),
    "regress": Kind("gives a text, or a pair of texts, a number", *TEXTS),
    "tag": Kind(
        "gives each word of a text one of {labels} tags",
        "token-classification",
        "AutoModelForTokenClassification",
        'model.tag("a text of yours")',
    ),
    "answer": Kind(
        "finds the answer to a question in a text",
        "question-answering",
        "AutoModelForQuestionAnswering",
        'model.answer("a question?", "the text that answers it")',
    ),
    "choose": Kind(
        "chooses which of several options follows a text",
        "multiple-choice",
        "AutoModelForMultipleChoice",
        'model.choose("a text of yours", ["one option", "another"])',
    ),
}


def model_card(account: RunSummary) -> str:
    """README.md."""
    kind = KINDS[account.task.kind]
    does = kind.does.format(labels=len(account.task.labels))
    model = account.model
    weights = sum(weight.numel() for weight in model.parameters())
    known = account.task.head != "tag_crf" and not any(isinstance(head, ProbeHead) for head in model.heads.values())
    began = f"It was fine-tuned with kinfolk from {_base_told(account.base)}."
    if account.reading is not None:
        began = f"Its head was trained with kinfolk; the encoder is {_base_told(account.base)}, as it was."
    lines = [
        f"---\n{_header(account, kind)}---",
        f"# {escaped(account.name)}",
        f"This {model.family.title} of {weights:,} weights {does}. {began}",
        f"## Use\n\n{_use(kind, known)}",
        f"## How good it is\n\n{metrics_told(account)}",
        *([f"### Who is taken for whom\n\n{told}"] if (told := confusion_told(account)) else []),
        f"## Training\n\n{training_told(account)}",
        f"## Labels\n\n{labels_told(account.survey)}",
        f"## Limits\n\n{_limits(account)}",
    ]
    return "\n\n".join(lines) + "\n"


def base_model(name: str) -> str | None:
    """The hub name of the model that training began with; None for a folder."""
    if name == DEMO and not is_folder(name):
        return DEMO_NAME
    return name if NAME.fullmatch(name) and not is_folder(name) else None


def _base_told(name: str) -> str:
    found, folder = base_model(name), Path(name).name
    return f"`{found}`" if found else f"the model of a folder {escaped(folder)}" if folder else "a model in memory"


def _header(account: RunSummary, kind: Kind) -> str:
    from huggingface_hub import EvalResult, ModelCardData

    types = {name: METRIC_TYPES.get(name, name) for name in account.judged.metrics}
    results = [
        EvalResult(
            task_type=kind.tag,
            dataset_type="other",  # a data set of the hub is never meant
            dataset_name=plain(account.dev),
            metric_type=types[name],
            metric_name=name.replace("_", " "),
            metric_value=round(value, 6),
        )
        for name, value in account.judged.metrics.items()
    ]
    data = ModelCardData(
        base_model=base_model(account.base),
        library_name="transformers",
        pipeline_tag=kind.tag,
        tags=["kinfolk"],
        metrics=list(dict.fromkeys(types.values())) or None,
        model_name=plain(account.name) if results else None,
        eval_results=results or None,
    )
    return f"{data.to_yaml()}\n"


def _use(kind: Kind, known: bool) -> str:
    """How to ask the model; `known`: other libraries can build its head."""
    ours = f"""```python
import kinfolk

model = kinfolk.load("this-folder")
print({kind.ask})
```

Or for a whole file: `kinfolk predict --model this-folder --input new.csv --output judged.csv`."""
    theirs = f"""The same model in transformers:

```python
from transformers import AutoTokenizer, {kind.architecture}

tokenizer = AutoTokenizer.from_pretrained("this-folder")
model = {kind.architecture}.from_pretrained("this-folder")
```"""
    return f"{ours}\n\n{theirs}" if known else f"{ours}\n\nIn transformers the encoder can be used, its head cannot."


def _limits(account: RunSummary) -> str:
    survey, tokens = account.survey, account.survey.tokens
    window = account.task.to_hf().get("window", survey.limit)
    warning = "The model may not know their language, spelling or case. " if tokens.foreign else ""
    limits = [
        f"It reads {window:,} tokens at once. kinfolk reads longer texts in overlapping windows; transformers cuts or "
        f"refuses them. {tokens.over_limit:.1%} of the training texts were longer than {survey.limit:,} tokens.",
        f"{warning}Words of the training texts have {tokens.subwords_per_word:.2f} subwords, and "
        f"{tokens.unknown_rate:.1%} of the tokens are unknown to the vocabulary; in a model's own language 1.0 to 1.3 "
        "and less than 0.5% are usual.",
        "The numbers above hold for texts like those of the dev set. Measure it on texts of your own: "
        "`kinfolk evaluate --model this-folder --input test.csv`.",
        "The licence is not stated here: it depends on the model that training began with and on the data.",
    ]
    return "\n".join(f"- {limit}" for limit in limits)
