"""What the report and the card of a fine-tuned model say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev

from kinfolk.api.find import DEMO
from kinfolk.api.frozen import FrozenHeadConfig
from kinfolk.api.markdown import escaped, plain, table
from kinfolk.api.report import Report, Rows, format_settings, run_rows, training_table
from kinfolk.checkpoints.hub import NAME
from kinfolk.data.summary import DataSummary
from kinfolk.data.tagging import has_spans
from kinfolk.errors import shorten_list
from kinfolk.files import is_folder
from kinfolk.models.family import Model
from kinfolk.nn.heads import ProbeHead
from kinfolk.tasks.task import EvalResult, Mistake, Task
from kinfolk.training.runs import Entries
from kinfolk.training.settings import TrainSettings

MAX_LABELS = 50  # in the list of labels
MAX_COLUMNS = 20  # of a confusion matrix; beyond, its largest counts are listed
MAX_CONFUSIONS = 20
MAX_TEXT = 200
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
class TaskCard:
    """What a card says of a task: what the model does, the hub's name for it, the class in transformers, a call."""

    does: str
    tag: str
    architecture: str
    ask: str


TEXTS = ("text-classification", "AutoModelForSequenceClassification", 'model.classify("a text of yours")')
KINDS = {
    "classify": TaskCard("gives a text, or a pair of texts, one of {labels} labels", *TEXTS),
    "multilabel": TaskCard("gives a text, or a pair of texts, any of {labels} labels", *TEXTS),
    "regress": TaskCard("gives a text, or a pair of texts, a number", *TEXTS),
    "tag": TaskCard(
        "gives each word of a text one of {labels} tags",
        "token-classification",
        "AutoModelForTokenClassification",
        'model.tag("a text of yours")',
    ),
    "answer": TaskCard(
        "finds the answer to a question in a text",
        "question-answering",
        "AutoModelForQuestionAnswering",
        'model.answer("a question?", "the text that answers it")',
    ),
    "choose": TaskCard(
        "chooses which of several options follows a text",
        "multiple-choice",
        "AutoModelForMultipleChoice",
        'model.choose("a text of yours", ["one option", "another"])',
    ),
}


@dataclass(frozen=True)
class FinetuneSummary:
    """A fine-tuned model, and how it came about."""

    name: str
    base: str  # what the user called the model that it began with
    model: Model
    task: Task
    data: DataSummary
    train: str  # names of files, without folders
    dev: str
    settings: TrainSettings
    result: EvalResult  # on the dev set
    by_seed: Mapping[int, Mapping[str, float]]
    best: int  # seed
    logs: Mapping[int, Entries]
    seconds: float | None  # None where a part of the run was done by an earlier process
    frozen: FrozenHeadConfig | None = None

    def report(self) -> Report:
        """All that its report and its card say."""
        kind, model = KINDS[self.task.kind], self.model
        does = kind.does.format(labels=len(self.task.labels))
        parameters = sum(weight.numel() for weight in model.parameters())
        origin = f"It was fine-tuned with kinfolk from {_format_base(self.base)}."
        if self.frozen is not None:
            origin = f"Its head was trained with kinfolk; the encoder is {_format_base(self.base)}, frozen."
        portable = self.task.head != "tag_crf" and not any(isinstance(head, ProbeHead) for head in model.heads.values())
        matrix = self.result.confusion
        return Report(
            name=self.name,
            header=_header(self, kind),
            description=f"This {model.family.title} of {parameters:,} parameters {does}. {origin}",
            use=_use(kind, portable),
            metrics=format_metrics(self),
            training=training_table(self._training_rows()),
            data=str(self.data),
            limits=_limits(self),
            logs=self.logs,
            details={"By seed": _by_seed(self), "Most confident errors": _mistakes(self.result.mistakes)},
            confusion=format_confusion(self),
            labels=format_labels(self.data),
            matrix=None if matrix is None else (self.task.labels, matrix),
            mistakes=self.result.mistakes,
        )

    def _training_rows(self) -> Rows:
        data, frozen = self.data, self.frozen
        settings = {} if frozen is not None and frozen.closed_form else format_settings(self.settings)
        weights = getattr(self.task, "weights", None)  # of classes and tags only
        if weights:
            named = zip(self.task.labels, weights, strict=True)
            settings["class weights"] = shorten_list((f"{label} {weight:.3g}" for label, weight in named), 12)
        if frozen is not None:
            layers = frozen.layers if isinstance(frozen.layers, str) else ", ".join(map(str, frozen.layers))
            head = f"{frozen.head}, in closed form" if frozen.closed_form else frozen.head
            settings = {"encoder": "frozen", "head": head, "layers": layers} | settings
        return [
            ("training data", f"{data.examples:,} examples ({self.train})"),
            ("dev data", f"{data.dev_examples:,} examples ({self.dev})" if data.dev_examples else "none"),
            *run_rows(self.logs, self.best, self.seconds, settings, self.model.device),
        ]


def over_seeds(by_seed: Mapping[int, Mapping[str, float]]) -> dict[str, tuple[float, float]]:
    """Mean and standard deviation over the seeds, by metric."""
    names = next(iter(by_seed.values()), {})
    columns = {name: [metrics[name] for metrics in by_seed.values()] for name in names}
    return {name: (mean(values), stdev(values) if len(values) > 1 else 0.0) for name, values in columns.items()}


def base_model(name: str) -> str | None:
    """The hub name of the model that training began with; None for a folder."""
    if name == DEMO and not is_folder(name):
        return DEMO_NAME
    return name if NAME.fullmatch(name) and not is_folder(name) else None


def _format_base(name: str) -> str:
    hub_name, folder = base_model(name), Path(name).name
    return (
        f"`{hub_name}`" if hub_name else f"the model of a folder {escaped(folder)}" if folder else "a model in memory"
    )


def _header(summary: FinetuneSummary, kind: TaskCard) -> str:
    from huggingface_hub import EvalResult, ModelCardData

    types = {name: METRIC_TYPES.get(name, name) for name in summary.result.metrics}
    results = [
        EvalResult(
            task_type=kind.tag,
            dataset_type="other",  # a data set of the hub is never meant
            dataset_name=plain(summary.dev),
            metric_type=types[name],
            metric_name=name.replace("_", " "),
            metric_value=round(value, 6),
        )
        for name, value in summary.result.metrics.items()
    ]
    data = ModelCardData(
        base_model=base_model(summary.base),
        library_name="transformers",
        pipeline_tag=kind.tag,
        tags=["kinfolk"],
        metrics=list(dict.fromkeys(types.values())) or None,
        model_name=plain(summary.name) if results else None,
        eval_results=results or None,
    )
    return f"{data.to_yaml()}\n"


def _use(kind: TaskCard, known: bool) -> str:
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


def _limits(summary: FinetuneSummary) -> list[str]:
    data, tokens = summary.data, summary.data.tokens
    window = summary.task.to_hf().get("window", data.limit)
    warning = "The model may not know their language, spelling or case. " if tokens.foreign else ""
    return [
        f"It reads {window:,} tokens at once. kinfolk reads longer texts in overlapping windows; transformers cuts or "
        f"refuses them. {tokens.over_limit:.1%} of the training texts were longer than {data.limit:,} tokens.",
        f"{warning}Words of the training texts have {tokens.subwords_per_word:.2f} subwords, and "
        f"{tokens.unknown_rate:.1%} of the tokens are unknown to the vocabulary; in a model's own language 1.0 to 1.3 "
        "and less than 0.5% are usual.",
        "The numbers above hold for texts like those of the dev set. Measure it on texts of your own: "
        "`kinfolk evaluate --model this-folder --input test.csv`.",
        "The licence is not stated here: it depends on the model that training began with and on the data.",
    ]


def format_labels(data: DataSummary) -> str:
    """Labels with their counts in the training data."""
    if data.numbers is not None:
        smallest, median, largest = data.numbers
        return f"Numbers from {smallest:g} to {largest:g}, median {median:g}."
    tables = []
    for title, counts in (("label", data.labels), ("tag", data.tags)):
        more = f"\n\nand {len(counts) - MAX_LABELS:,} more" if len(counts) > MAX_LABELS else ""
        if counts:
            tables.append(table((title, "in the training data"), counts[:MAX_LABELS]) + more)
    return "\n\n".join(tables) or "None."


def format_metrics(summary: FinetuneSummary) -> str:
    """Metrics on the dev set, and over the seeds where there are several."""
    if not summary.result.metrics:
        return "Not measured: there was no dev set."
    header, rows = ["on the dev set", "value"], {name: [value] for name, value in summary.result.metrics.items()}
    if len(summary.by_seed) > 1:
        header += [f"mean of {len(summary.by_seed)} seeds", "deviation"]
        over = over_seeds(summary.by_seed)
        rows = {name: [*values, *over[name]] for name, values in rows.items()}
    chosen = "The best checkpoint was selected by the first of them, so they are slightly optimistic."
    limits = [name for name in ("thresholds", "null_threshold") if getattr(summary.task, name, None) is not None]
    if limits:
        chosen = "The checkpoint and its thresholds were selected on the same data, so they are optimistic."
    if summary.task.kind == "classify" and "f1" in rows:
        chosen += f" f1 is that of “{summary.task.labels[1]}”, macro f1 the mean of both."
    if summary.task.kind == "tag" and has_spans(summary.task.labels):
        chosen += " f1, precision and recall are those of whole entities, accuracy that of words."
    return table(header, [(name.replace("_", " "), *values) for name, values in rows.items()]) + f"\n\n{chosen}"


def format_confusion(summary: FinetuneSummary) -> str:
    """The confusion matrix, or with many labels its largest numbers; nothing where there are no classes."""
    matrix, labels = summary.result.confusion, summary.task.labels
    if matrix is None:
        return ""
    if len(labels) <= MAX_COLUMNS:
        rows = [(name, *row) for name, row in zip(labels, matrix, strict=True)]
        return "Confusion matrix: rows are true labels, columns predicted labels.\n\n" + table(("", *labels), rows)
    pairs = [
        (labels[truth], labels[guess], count)
        for truth, row in enumerate(matrix)
        for guess, count in enumerate(row)
        if truth != guess and count
    ]
    listed = sorted(pairs, key=lambda pair: -pair[2])[:MAX_CONFUSIONS]
    return "The most frequent confusions.\n\n" + table(("true label", "predicted label", "count"), listed)


def _by_seed(summary: FinetuneSummary) -> str:
    if len(summary.by_seed) < 2:
        return ""
    names = list(summary.result.metrics)
    rows = [(str(seed), *(metrics[name] for name in names)) for seed, metrics in summary.by_seed.items()]
    return table(("seed", *(name.replace("_", " ") for name in names)), rows)


def _mistakes(mistakes: Sequence[Mistake]) -> str:
    if not mistakes:
        return ""
    if mistakes[0].probability is None:
        numbers = [(item.truth, item.guess, item.where, item.text) for item in mistakes]
        return table(("true value", "predicted", "where", "text"), numbers, MAX_TEXT)
    rows = [(item.probability, item.truth, item.guess, item.where, item.text) for item in mistakes]
    return table(("probability", "true label", "predicted", "where", "text"), rows, MAX_TEXT)
