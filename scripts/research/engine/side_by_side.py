"""Train copies of a model side by side; on JAX, an epoch is one program."""

import keras
import numpy as np

from dselectk_keras.program import Program

LANES = 4  # Jobs of a bench that are trained side by side.


def make_program(model, batch_size):
    """The program of a compiled model whose variables exist."""
    return Program(model, batch_size)


def train_side_by_side(
    program, state, data, orders, held_out=(), prepare=None, measure=None
):
    """Train copies of a model, and evaluate them after each epoch.

    Args:
        program: The program of the model.
        state: The state of the copies; see `Program`.
        data: Inputs and labels.
        orders: For each epoch, the rows of each copy, `(copies, rows)`.
        held_out: What is evaluated: pairs of data and the rows of each copy.
        prepare: A function of the state and the number of the epoch that returns the
            state with which the epoch begins.
        measure: A function of the state after an epoch.

    Returns:
        The state, and for each epoch a list: the logs of the training and of what is
        evaluated, dicts of arrays, and what `measure` returns.
    """
    found = []
    for epoch, order in enumerate(orders):
        state = prepare(state, epoch) if prepare else state
        state, results = program.train(state, order, data)
        found.append([results.logs])
        for arrays, rows in held_out:
            state, results = program.test(state, rows, arrays, rows.shape[1])
            found[-1].append(results.logs)
        if measure:
            found[-1].append(measure(state))
    return state, found


def concatenated(parts):
    """Arrays of the same structure one below the other."""
    return keras.tree.map_structure(lambda *each: np.concatenate(each), *parts)


def set_numbers(program, state, numbers, settings):
    """Set numbers of all copies: those of a model, and its rate and weight decay.

    Args:
        program: The program of the model.
        state: The state of the copies.
        numbers: A dict of variables by name; see `Settings`.
        settings: For each copy a dict of values by name.
    """
    optimizer = program.model.optimizer
    variables = {"rate": optimizer.learning_rate, "decay": optimizer.weight_decay}
    values = {
        id(variable): np.array([own[name] for own in settings], "float32")
        for name, variable in (variables | numbers).items()
    }
    return program.assign(state, values)


def in_lanes(train, jobs):
    """Call a function with some jobs at a time, for a program of one number of them."""
    found = []
    for first in range(0, len(jobs), LANES):
        lanes = jobs[first : first + LANES]
        padded = [*lanes, *lanes[:1] * (LANES - len(lanes))]
        found.extend(train(padded)[: len(lanes)])
    return found
