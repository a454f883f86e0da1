"""`kinfolk fill-mask` and `kinfolk generate`: what a model puts into a gap, or after a prompt."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from typer import Argument, Option

from kinfolk.cli.options import AllowPickle, Device, Json, Model, Top, TopK, TopP, parse_names
from kinfolk.cli.output import print_json, print_table
from kinfolk.errors import InputError


def fill_mask(
    text: Annotated[str, Argument(help="A text with one mask token or more.")],
    model: Model,
    top: Top = 5,
    pieces: Annotated[int, Option(help="Also whole words of up to this number of subwords.")] = 1,
    words: Annotated[str | None, Option(help="Rank these words only: Rome,Paris.")] = None,
    json: Json = False,
    device: Device = "auto",
    allow_pickle: AllowPickle = False,
) -> None:
    """Predict masked words. Several masks are predicted one by one.

    Words are ranked by score, the geometric mean of their subwords' probabilities.

    Example:
      kinfolk fill-mask --model bert-base-uncased "Paris is the capital of [MASK]."
    """
    candidates = [word for word in parse_names(words) or [] if word] or None
    if words is not None and candidates is None:
        raise InputError("--words has no word; give some with commas between them: --words Rome,Paris")
    from kinfolk.api.fill import fill_masks
    from kinfolk.api.loaded import load_encoder

    encoder = load_encoder(model, device, allow_pickle)
    masks = fill_masks(encoder.model, encoder.tokenizer, text, top, pieces, candidates, encoder.context)
    if json:
        print_json([[asdict(guess) for guess in guesses] for guesses in masks])
        return
    for index, guesses in enumerate(masks):
        if index:
            print()
        rows = [(guess.word, guess.score, guess.probability, guess.text) for guess in guesses]
        print_table(("word", "score", "probability", "text"), rows)


def generate(
    model: Model,
    prompts: Annotated[list[str] | None, Argument(help="Prompts; by default an empty one.")] = None,
    max_tokens: Annotated[int, Option(help="Maximum number of new tokens.", min=1)] = 50,
    temperature: Annotated[float, Option(help="Softmax temperature; below 1 is sharper.")] = 1.0,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Annotated[int, Option(help="Seed of the sampling.")] = 0,
    beam: Annotated[int | None, Option(help="Beam search with this beam size instead of sampling.", min=1)] = None,
    json: Json = False,
    device: Device = "auto",
    allow_pickle: AllowPickle = False,
) -> None:
    """Generate text from prompts with a language model.

    Example:
      kinfolk generate --model language-model "Once upon a time" --max-tokens 40 --seed 1
    """
    from kinfolk.api.loaded import load_language_model

    loaded = load_language_model(model, device, allow_pickle)
    texts = loaded.generate(prompts or [""], max_tokens, temperature, top_k, top_p, seed, beam)
    print_json(texts) if json else print(*texts, sep="\n")


COMMANDS = (fill_mask, generate)
