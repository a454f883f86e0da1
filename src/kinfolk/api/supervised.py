"""The experiment behind `finetune`: one task on one encoder; and what its report and its card say."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kinfolk.api.experiment import Experiment, SeedResult, Sides, content_hash
from kinfolk.api.report import USE, data_rows, escaped, over_seeds, plain, table
from kinfolk.checkpoints.find import DEMO, NAME
from kinfolk.checkpoints.folder import TextModel
from kinfolk.data.summary import DataSummary, summarize
from kinfolk.data.tagging import has_spans
from kinfolk.errors import shorten_list
from kinfolk.models.family import Model, weights_hash, with_new_head
from kinfolk.objectives.objective import Objective
from kinfolk.tasks.task import EvalResult, Mistake, Task
from kinfolk.text.windows import TokenCounts
from kinfolk.training.settings import TrainSettings

COLLAPSED = 0.02  # within this of the majority-class baseline, a run has learned nothing
# What an earlier task left in config.json is not handed on.
TASK_SETTINGS = ("middle", "null_threshold", "pairs", "problem_type", "stride", "thresholds", "window")
MAX_LABELS = 50  # in the list of labels
MAX_COLUMNS = 20  # of a confusion matrix; beyond, its largest counts are listed
MAX_CONFUSIONS = 20
MAX_TEXT = 200
PREDICT = "Or for a whole file: `kinfolk predict --model this-folder --input new.csv --output predicted.csv`."
OURS_ALONE = "In transformers the encoder can be used, its head cannot."
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


class TaskCard(NamedTuple):
    """What a card says of a task: what the model does, the hub's name for it, the class in transformers, a call."""

    does: str
    tag: str
    architecture: str
    ask: str


TEXTS = ("text-classification", "AutoModelForSequenceClassification", 'model.classify("a text of yours")')
ANSWER = 'model.answer("a question?", "the text that answers it")'
CHOOSE = 'model.choose("a text of yours", ["one option", "another"])'
TAG = 'model.tag("a text of yours")'
KINDS = {
    "classify": TaskCard("gives a text, or a pair of texts, one of {} labels", *TEXTS),
    "multilabel": TaskCard("gives a text, or a pair of texts, any of {} labels", *TEXTS),
    "regress": TaskCard("gives a text, or a pair of texts, a number", *TEXTS),
    "tag": TaskCard(
        "gives each word of a text one of {} tags", "token-classification", "AutoModelForTokenClassification", TAG
    ),
    "answer": TaskCard(
        "finds the answer to a question in a text", "question-answering", "AutoModelForQuestionAnswering", ANSWER
    ),
    "choose": TaskCard(
        "chooses which of several options follows a text", "multiple-choice", "AutoModelForMultipleChoice", CHOOSE
    ),
}
THEIRS = """The same model in transformers:

```python
from transformers import AutoTokenizer, {0}

tokenizer = AutoTokenizer.from_pretrained("this-folder")
model = {0}.from_pretrained("this-folder")
```"""


ADDED = "\n\nIts head has no bias: the number is what `model` gives plus `model.config.middle`."


class SupervisedExperiment(Experiment):
    origin = "It was fine-tuned with kinfolk from {}."

    def __init__(
        self,
        encoder: TextModel,
        task: Task,
        sides: Sides,
        settings: TrainSettings,
        folder: Path,
        dropout: float | None = None,
    ):
        self.encoder, self.task, self.sides, self.settings, self.folder = encoder, task, sides, settings, folder
        self.dropout = dropout
        counts = TokenCounts(encoder.tokenizer)
        self.dataset = task.dataset(encoder.tokenizer, sides.train, encoder.context, counts)
        self.dev = task.dataset(encoder.tokenizer, sides.dev, encoder.context)
        read = f"task {task.kind}" + (f": {sides.description}" if sides.description else "")
        self.summary: DataSummary = summarize(sides.train, sides.dev, counts, encoder.context, read)
        self.samples = self.dataset.samples
        self.location = lambda example: sides.train[example].location
        self.rows = data_rows("examples", len(sides.train), len(sides.dev), sides.names)
        weights = getattr(task, "weights", None)  # of classes and tags only
        if weights:
            named = (f"{label} {weight:.3g}" for label, weight in zip(task.labels, weights, strict=True))
            self.rows.append(("class weights", shorten_list(named, 12)))
        own: dict[str, Any] = {"kind": task.kind} | dataclasses.asdict(task)  # type: ignore[call-overload]
        own.pop("pairs", None)  # follows from the data
        self.identity = {
            "task": own,
            "family": encoder.model.family.name,
            "start": weights_hash(encoder.model.body),
            "tokenizer": content_hash(encoder.tokenizer.to_json()),
            "data": content_hash([[_content(example) for example in side] for side in (sides.train, sides.dev)]),
        }
        self.initialized = self.init_model(settings.seed)[1]

    def init_model(self, seed: int) -> tuple[Model, list[str]]:
        return with_new_head(self.encoder.model, self.task.head, len(self.task.labels), seed, self.dropout)

    def objective(self, model: Model) -> Objective:
        return self.task.objective(model)

    def evaluate(self, model: Model) -> tuple[float, dict[str, float]]:
        result = self.evaluate_task(self.task, model)
        return result.selection_score, result.metrics

    def evaluated_tokens(self) -> tuple[float, float]:
        tokens = float(sum(map(len, self.dev.samples)))
        return tokens, tokens

    def evaluate_task(self, task: Task, model: Model) -> EvalResult:
        return task.evaluate(model, self.dev) if self.dev.samples else EvalResult({})

    def finish(self, model: Model, log: Sequence[dict[str, Any]]) -> tuple[EvalResult, Task]:
        task = self.task.calibrate(model, self.dev)
        return self.evaluate_task(task, model), task

    def text_model(self, model: Model, task: Any = None) -> TextModel:
        earlier = {name: value for name, value in self.encoder.hf_config.items() if name not in TASK_SETTINGS}
        return dataclasses.replace(self.encoder, model=model, recipe=None, hf_config=earlier | task.to_hf())

    def collapsed(self, by_seed: Mapping[int, Mapping[str, float]]) -> list[str]:
        """Notes on seeds that learned nothing, as happens on small data."""
        if not self.dev.samples:
            return []
        if self.task.kind != "classify":
            first = {seed: next(iter(metrics.items())) for seed, metrics in by_seed.items()}
            message = "seed {} learned nothing that the dev set shows: {} {:.4f}"
            return [message.format(seed, *item) for seed, item in first.items() if item[1] <= COLLAPSED]
        counts: Counter[int] = Counter(self.dev.targets)
        majority = max(counts.values()) / counts.total()
        stuck = [seed for seed, metrics in by_seed.items() if metrics["accuracy"] <= majority + COLLAPSED]
        return [f"seed {seed} is not better than the majority-class baseline" for seed in stuck]

    def content(self, results: dict[int, SeedResult], best: int) -> dict[str, Any]:
        model, task, result = results[best].model, results[best].task, results[best].result
        card, by_seed = KINDS[task.kind], {seed: result.result.metrics for seed, result in results.items()}
        heads: Any = model.heads.values()
        portable = not any(head.reads == "layers" or hasattr(head, "crf") for head in heads)
        theirs = THEIRS.format(card.architecture) if portable else OURS_ALONE
        theirs += ADDED if getattr(task, "middle", 0.0) else ""
        base, folder = base_model(self.encoder.name), Path(self.encoder.name).name
        local = f"the model of a folder {escaped(folder)}" if folder else "a model in memory"
        origin = self.origin.format(local if base is None else f"`{base}`")
        does, parameters = card.does.format(len(task.labels)), sum(each.numel() for each in model.parameters())
        rows = [(str(seed), *metrics.values()) for seed, metrics in by_seed.items()]
        header = ("seed", *(name.replace("_", " ") for name in result.metrics))
        by_seed_table = table(header, rows) if len(rows) > 1 else ""
        return {
            "header": self._header(card, result.metrics),
            "description": f"This {model.family.title} of {parameters:,} parameters {does}. {origin}",
            "use": f"{USE.format(f'print({card.ask})', PREDICT)}\n\n{theirs}",
            "metrics": _metrics(task, result.metrics, by_seed),
            "limits": _limits(task, self.summary),
            "details": {"By seed": by_seed_table, "Most confident errors": _mistakes(result.mistakes)},
            "confusion": _confusion(task.labels, result.confusion),
            "labels": _label_table(self.summary),
            "matrix": None if result.confusion is None else (task.labels, result.confusion),
            "mistakes": result.mistakes,
        }

    def _header(self, card: TaskCard, metrics: Mapping[str, float]) -> str:
        from huggingface_hub import EvalResult as HubResult  # heavy, and needed at the end only
        from huggingface_hub import ModelCardData

        results = [
            HubResult(
                task_type=card.tag,
                dataset_type="other",  # a data set of the hub is never meant
                dataset_name=plain(self.sides.names[1]),
                metric_type=METRIC_TYPES.get(metric, metric),
                metric_name=metric.replace("_", " "),
                metric_value=round(value, 6),
            )
            for metric, value in metrics.items()
        ]
        data = ModelCardData(
            base_model=base_model(self.encoder.name),
            library_name="transformers",
            pipeline_tag=card.tag,
            tags=["kinfolk"],
            metrics=list(dict.fromkeys(result.metric_type for result in results)) or None,
            model_name=plain(self.folder.resolve().name) if results else None,
            eval_results=results or None,
        )
        return f"{data.to_yaml()}\n"


def _content(example: Any) -> list[Any]:
    return [value for name, value in dataclasses.asdict(example).items() if name != "location"]


def base_model(name: str) -> str | None:
    """The hub name of the model that training began with; None for a folder."""
    if os.path.isdir(name):
        return None
    return DEMO_NAME if name == DEMO else name if NAME.fullmatch(name) else None


def _limits(task: Task, data: DataSummary) -> list[str]:
    tokens, window = data.tokens, task.to_hf().get("window", data.limit)
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


def _label_table(data: DataSummary) -> str:
    if data.numbers is not None:
        return "Numbers from {0:g} to {2:g}, median {1:g}.".format(*data.numbers)
    tables = []
    for title, counts in (("label", data.labels), ("tag", data.tags)):
        more = f"\n\nand {len(counts) - MAX_LABELS:,} more" if len(counts) > MAX_LABELS else ""
        if counts:
            tables.append(table((title, "in the training data"), counts[:MAX_LABELS]) + more)
    return "\n\n".join(tables) or "None."


def _metrics(task: Task, metrics: Mapping[str, float], by_seed: Mapping[int, Mapping[str, float]]) -> str:
    if not metrics:
        return "Not measured: there was no dev set."
    header, rows = ["on the dev set", "value"], {name: [value] for name, value in metrics.items()}
    if len(by_seed) > 1:
        header += [f"mean of {len(by_seed)} seeds", "deviation"]
        over = over_seeds(by_seed)
        rows = {name: [*values, *over[name]] for name, values in rows.items()}
    chosen = "The best checkpoint was selected by the first of them, so they are slightly optimistic."
    if any(getattr(task, name, None) is not None for name in ("thresholds", "null_threshold")):
        chosen = "The checkpoint and its thresholds were selected on the same data, so they are optimistic."
    if task.kind == "classify" and "f1" in rows:
        chosen += f" f1 is that of “{task.labels[1]}”, macro f1 the mean of both."
    if task.kind == "tag" and has_spans(task.labels):
        chosen += " f1, precision and recall are those of whole entities, accuracy that of words."
    return table(header, [(name.replace("_", " "), *values) for name, values in rows.items()]) + f"\n\n{chosen}"


def _confusion(labels: Sequence[str], matrix: list[list[int]] | None) -> str:
    """The confusion matrix, or with many labels its largest numbers; nothing where there are no classes."""
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


def _mistakes(mistakes: Sequence[Mistake]) -> str:
    header = "probability", "true label", "predicted", "location", "text"
    rows = [(item.probability, item.truth, item.guess, item.location, item.text) for item in mistakes]
    if rows and rows[0][0] is None:
        return table(("true value", *header[2:]), [row[1:] for row in rows], MAX_TEXT)
    return table(header, rows, MAX_TEXT) if rows else ""
