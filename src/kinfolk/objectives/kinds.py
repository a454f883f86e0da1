"""The kinds of pre-training by name, and the files that know them: light, so that `--help` can list them."""

FILES = {
    "bert": "kinfolk.objectives.masked_lm",
    **dict.fromkeys(("gpt2", "lstm", "gru", "rnn", "gru_reset_before"), "kinfolk.objectives.language_model"),
}
