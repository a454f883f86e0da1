"""Reviews, good or bad: train a classifier on 120 of them, then ask it about new ones.

python examples/reviews.py                                                 the demo model, a minute or two
python examples/reviews.py --model bert-base-uncased --output my-reviews   any model of the family
"""

import argparse
from pathlib import Path

import kinfolk

REVIEWS = Path(__file__).parent / "data" / "reviews.csv"  # columns: text, label

options = argparse.ArgumentParser(description="Train a classifier on reviews.")
options.add_argument("--model", default="demo", help="a folder, a hub name, or demo")
options.add_argument("--output", type=Path, default=Path("reviews-model"), help="where the trained model goes")
options.add_argument("--epochs", type=float, default=10, help="passes over the data")
given = options.parse_args()

if not (given.output / "model").exists():  # trained once, used many times
    # A tenth of the reviews is held out to choose the best state of the model. Few texts want many small steps.
    how = {"epochs": given.epochs, "batch_size": 16, "learning_rate": 1e-4}
    trained = kinfolk.finetune(given.model, REVIEWS, given.output, **how)
    print(f"right on the held-out reviews: {trained.metrics['accuracy']:.0%}")

model = kinfolk.load(given.output)
for text in ["The chair wobbles and the paint came off.", "Warm bread, kind people: we will be back."]:
    guess = model.classify(text)
    print(f"{guess.label} ({guess.probability:.0%}): {text}")
