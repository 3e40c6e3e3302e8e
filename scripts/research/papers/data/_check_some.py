"""A check of arguments that hold several names."""


def check_some(name, values, choices):
    """Raise an error for values that are not among the choices, or repeated."""
    if not values or len(set(values)) != len(values) or set(values) - set(choices):
        raise ValueError(
            f"`{name}` must hold some of {', '.join(map(repr, choices))}, none of them "
            f"twice. Received: {name}={values!r}."
        )
