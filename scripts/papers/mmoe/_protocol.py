"""Facts of the protocol, from the fields of the presets."""


def by_preset(experiment, write):
    """What a fact is here, for the presets `cpu` and `paper`.

    Args:
        experiment: An `Experiment`.
        write: A function of an experiment that returns the fact as text.

    Returns:
        A string: one text if the presets agree, and otherwise one for each.
    """
    presets = type(experiment).presets()
    texts = {name: str(write(presets[name])) for name in ("cpu", "paper")}
    if len(set(texts.values())) == 1:
        return texts["cpu"]
    return "; ".join(f"{name}: {text}" for name, text in texts.items())
