"""`kinfolk fill-mask` and `kinfolk generate`: what a model puts into a gap, or after a prompt."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from typer import Argument, Option

from kinfolk.cli import options
from kinfolk.cli.output import print_json, print_table
from kinfolk.errors import InputError

SETTINGS = options.SAMPLING | {
    "max_tokens": options.option(int, "Maximum number of new tokens.  [default: 50, or what fits]", min=1),
    "beam": options.option(int, "Beam search with this beam size instead of sampling.", min=1),
    "length_penalty": options.option(float, "Beam search: greater favours longer texts.  [default: 0.6]"),
    "slide": options.option(bool, "Go on beyond the context, from the last half of the text.", "--slide"),
}


def fill_mask(
    text: Annotated[str, Argument(help="A text with one mask token or more.")],
    model: options.ModelName,
    top: options.Top = 5,
    pieces: Annotated[int, Option(help="Also whole words of up to this number of subwords.")] = 1,
    words: Annotated[str | None, Option(help="Rank these words only: Rome,Paris.")] = None,
    json: options.Json = False,
    device: options.Device = "auto",
    allow_pickle: options.AllowPickle = False,
) -> None:
    """Predict masked words. Several masks are predicted one by one.

    Words are ranked by score, the geometric mean of their subwords' probabilities.

    Example:
      kinfolk fill-mask --model bert-base-uncased "Paris is the capital of [MASK]."
    """
    candidates = [word for word in options.parse_names(words or "") if word] or None
    if words is not None and candidates is None:
        raise InputError("--words has no word; give some with commas between them: --words Rome,Paris")
    from kinfolk.api.fill import fill_masks
    from kinfolk.checkpoints.folder import open_encoder

    masks = fill_masks(open_encoder(model, device, allow_pickle), text, top, pieces, candidates)
    if json:
        print_json([[asdict(guess) for guess in guesses] for guesses in masks])
        return
    for index, guesses in enumerate(masks):
        if index:
            print()
        rows = [(guess.word, guess.score, guess.probability, guess.text) for guess in guesses]
        print_table(("word", "score", "probability", "text"), rows)


@options.group("settings", SETTINGS)
def generate(
    *,
    model: options.ModelName,
    prompts: Annotated[
        list[str] | None, Argument(help="Prompts, by default an empty one; - reads lines from stdin.")
    ] = None,
    settings: dict[str, Any],
    json: options.Json = False,
    device: options.Device = "auto",
    allow_pickle: options.AllowPickle = False,
) -> None:
    """Generate text from prompts with a language model. The text after a single prompt is shown as it is written; those
    of several have a blank line between them.

    The next token is drawn at random; with --temperature 0 it is the likeliest (greedy).

    Example:
      kinfolk generate --model language-model "Once upon a time" --max-tokens 40 --seed 1
    """
    from kinfolk.api.loaded import load_language_model
    from kinfolk.data.formats import STDIN, read_texts

    loaded = load_language_model(model, device, allow_pickle)
    prompts = list(read_texts(STDIN)) if prompts == [STDIN] else prompts or [""]
    if len(prompts) == 1 and not json and not {"beam", "length_penalty"} & settings.keys():
        for piece in loaded.stream(prompts[0], **settings):
            print(piece, end="", flush=True)
        print()
        return
    texts = loaded.generate(prompts, **settings)
    if json:
        print_json(texts)
    elif texts:
        print(*texts, sep="\n\n")
