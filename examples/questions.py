"""Answers from a text: train on 39 questions in SQuAD's format, some of which have no answer, then ask a new one.

39 questions show how it is done; to answer well a model wants thousands, such as SQuAD's own files.

python examples/questions.py                                                 the demo model, a few minutes
python examples/questions.py --train train-v2.0.json --output my-questions   a file of your own
"""

import argparse
from pathlib import Path

import kinfolk

options = argparse.ArgumentParser(description="Train a model that answers questions from a text.")
options.add_argument("--model", default="demo", help="a folder, a hub name, or demo")
options.add_argument("--train", type=Path, default=Path(__file__).parent / "data" / "questions.json", help="SQuAD json")
options.add_argument("--output", type=Path, default=Path("questions-model"), help="where the trained model goes")
options.add_argument("--epochs", type=float, default=20, help="passes over the data")
given = options.parse_args()

if not (given.output / "model").exists():  # trained once, used many times
    how = {"epochs": given.epochs, "batch_size": 8, "learning_rate": 1e-4}
    # Without dev= a tenth is held out; no text has questions on both sides.
    trained = kinfolk.finetune(given.model, given.train, given.output, task="answer", **how)
    print(f"F1 on the held-out questions: {trained.metrics['f1']:.2f}")

model = kinfolk.load(given.output)
context = "Lighthouses were once lit by oil lamps. Today nearly all of them are electric, and no keeper lives there."
for answer in model.answer("What were lighthouses once lit by?", context, top=3):
    # An answer is context[answer.start : answer.end], or an empty text where the model finds none.
    print(f"{answer.probability:.0%}: {answer.text or '(no answer)'}")
