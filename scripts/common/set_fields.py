"""Change fields of a config by texts, such as those of a command line."""

import ast
import dataclasses
import types
import typing

__all__ = ["set_fields"]


def set_fields(config, texts):
    """Change fields of a config by texts, each read by the type of its field.

    Args:
        config: An `Experiment`, or another dataclass.
        texts: A list of strings, such as `"epochs=3"`.

    Returns:
        A copy of the config.

    Example:
        >>> from common.set_fields import set_fields
        >>> from common.training_run import TrainingRun
        >>> run = set_fields(TrainingRun(), ["epochs=3", "units=(16, 8)", "gate=top_k"])
        >>> run.epochs, run.units, run.gate
        (3, (16, 8), 'top_k')
    """
    hints = typing.get_type_hints(type(config))
    known = [field.name for field in dataclasses.fields(config)]
    changes = {}
    for text in texts:
        name, _, value = text.partition("=")
        if name not in known:
            raise ValueError(
                f"{type(config).__name__} has no field {name!r}. It has: "
                f"{', '.join(known)}."
            )
        try:
            changes[name] = _read(value, hints[name])
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    return dataclasses.replace(config, **changes)


def _read(text, hint):
    """A value of a type, from its text."""
    try:
        value = ast.literal_eval(text)
    except (SyntaxError, ValueError):
        value = text
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    for kind in sorted(kinds, key=lambda kind: kind is str):
        wanted, items = typing.get_origin(kind) or kind, typing.get_args(kind)
        if wanted is str:
            return text
        if wanted is float and type(value) is int:
            return float(value)
        if wanted is tuple and isinstance(value, (tuple, list)):
            items = items[:1] * len(value) if items[1:] == (...,) else items
            if len(items) == len(value):
                texts = [
                    each if isinstance(each, str) else repr(each) for each in value
                ]
                return tuple(map(_read, texts, items))
        elif type(value) is wanted:
            return value
    name = getattr(hint, "__name__", hint)
    raise ValueError(f"must be of the type {name}. Received: {text!r}.")
