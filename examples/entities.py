"""Names in texts: train a tagger on 60 sentences with people (PER), places (LOC) and organisations (ORG), then use it.

python examples/entities.py                                                  the demo model, a few minutes
python examples/entities.py --model bert-base-cased --output my-entities     any model of the family
"""

import argparse
from pathlib import Path

import kinfolk

SENTENCES = Path(__file__).parent / "data" / "entities.conll"  # a word and its tag per line, a blank line in between

options = argparse.ArgumentParser(description="Train a tagger on sentences with names.")
options.add_argument("--model", default="demo", help="a folder, a hub name, or demo")
options.add_argument("--output", type=Path, default=Path("entities-model"), help="where the trained model goes")
options.add_argument("--epochs", type=float, default=20, help="passes over the data")
given = options.parse_args()

if not (given.output / "model").exists():  # trained once, used many times
    how = {"epochs": given.epochs, "batch_size": 8, "learning_rate": 2e-4}
    # crf=True scores the tags of a whole sentence together: no I-PER without a B-PER before it, for example.
    trained = kinfolk.finetune(given.model, SENTENCES, given.output, task="tag", crf=True, **how)
    print(f"F1 of whole names on the held-out sentences: {trained.metrics['f1']:.2f}")

model = kinfolk.load(given.output)
text = "Martha Quinn left Oslo to work for Meadow Bank."
for entity in model.tag(text).entities:
    assert text[entity.start : entity.end] == entity.text  # places are those of your own text
    print(f"{entity.type} ({entity.probability:.0%}): {entity.text}")
