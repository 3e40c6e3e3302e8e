"""Floating-point operations, counted from shapes."""

import itertools

from benchmarks.tokens import TokenWorkload


def forward_flops(workload, form):
    """Operations of a forward pass, an addition and a multiplication being two.

    Counted are the products: experts, gates, mixtures and towers. What is done
    element by element is left out.

    Args:
        workload: A `Workload`.
        form: A name in `FORMS`.

    Returns:
        A number, for one batch.
    """
    return workload.batch_size * sum(_parts(workload, form))


def training_flops(workload, form):
    """Operations of a step: forward, and twice as many backward.

    One of the backward products of the first layer, towards the inputs, is not
    needed.

    Args:
        workload: A `Workload`.
        form: A name in `FORMS`.

    Returns:
        A number, for one batch.
    """
    first, *rest = _parts(workload, form)
    return workload.batch_size * (2 * first + 3 * sum(rest))


def _parts(workload, form):
    """Operations for an example: the first layers of the experts, and the rest."""
    if isinstance(workload, TokenWorkload):
        return workload.flops(form)
    num_tasks = 1 if form == "one task" else workload.num_tasks
    used = {
        "condensed": workload.num_used,
        "one task": workload.num_nonzeros,
        "dispatched": workload.num_used,
    }.get(form, workload.num_experts)
    if workload.units is None:
        height, width, channels = workload.input_shape
        sizes = []
        for filters in (10, 20):
            height, width = height - 4, width - 4
            sizes.append(2 * height * width * 25 * channels * filters)
            height, width, channels = height // 2, width // 2, filters
        first, *rest = (*sizes, 2 * height * width * channels * 50)
        out = 50
    else:
        first, rest, out = (
            2 * workload.num_features * workload.units,
            [],
            workload.units,
        )
    gates = 0
    if workload.per_example:
        logits = workload.num_experts
        if workload.gate == "dselect_k":
            bits = (workload.num_experts - 1).bit_length()
            logits = workload.num_nonzeros * (bits + 1)
        gates = 2 * workload.num_features * logits * num_tasks
    mixed = workload.num_used if form == "dispatched" else used
    mixture = 2 * mixed * out * num_tasks
    if form.startswith("plain") and workload.tower == "sum":
        mixture //= out  # The sum comes before the mixture.
    towers = 0
    if workload.tower != "sum":
        widths = [out, *workload.tower, workload.num_classes or 1]
        towers = 2 * num_tasks * sum(a * b for a, b in itertools.pairwise(widths))
    return used * first, used * sum(rest), gates, mixture, towers
