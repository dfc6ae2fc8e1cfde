"""The search: genomes to objectives on a backend, generation by generation, then fine-tuning the picks.

Follow one individual: `candidate` evaluates it, `runner` feeds the strategy and the history, `events`
tells whoever watches, `finetuning` trains the three, `solution` saves them, `job` is the whole flow.
"""
