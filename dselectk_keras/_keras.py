"""Everything private to Keras that the package uses, and nothing else.

Each private name is behind a function that says what it is for. `tests/test_keras.py`
fails when Keras renames or changes one, and says where in Keras to look.
"""

import keras

# Private methods that Keras calls and a class of the package overrides.
OVERRIDDEN = (
    # `fit` and `evaluate` ask it for the logs of an epoch.
    "_get_metrics_result_or_logs",
)


def all_layers(model):
    """List a model and all its layers, those inside of other layers too, each once."""
    return list(model._flatten_layers())


def mask_of(tensor):
    """Get the mask that Keras has attached to a tensor, or `None`.

    Keras itself passes a mask only to layers that are called on one tensor.
    """
    return getattr(tensor, "_keras_mask", None)


def create_variables(model, batch):
    """Create all variables of a compiled model, without computing anything.

    The batch is a pair or triple of arrays, as for `model.train_on_batch`.
    """
    model._symbolic_build(data_batch=batch)


def free_variables(model):
    """Free the memory of a model and its optimizer; they cannot be used again.

    Only for JAX. Python itself may take long to notice that nobody uses a model.
    """
    model._purge_model_variables(
        trainable_variables=True, non_trainable_variables=True, optimizer_variables=True
    )


def begin_at_epoch(model, epoch):
    """Let `fit` begin with an epoch; to be called when training begins.

    `None` is the `initial_epoch` of `fit`.
    """
    model._initial_epoch = epoch


def track_parameters(model):
    """Tell torch which parameters a model has, after layers were replaced.

    Torch clears only the gradients of parameters that it has been told of. Other
    backends need nothing.
    """
    if keras.backend.backend() == "torch":
        model._track_variables()


def replace_sublayers(layer, **sublayers):
    """Replace sub-layers of a built layer, which Keras locks, by attribute name."""
    layer._tracker.unlock()
    for name, new in sublayers.items():
        old = getattr(layer, name)
        if new is not old:
            layer._tracker.untrack(old)
            setattr(layer, name, new)
    layer._tracker.lock()


def optimizer_slots(optimizer):
    """Read what a built optimizer keeps for each variable, such as momentum.

    Returns:
        The list of the variables that it trains; and a dict of slots by attribute,
        each a list of variables in the same order and of the same shapes.
    """
    trained = optimizer._trainable_variables
    shapes = [tuple(variable.shape) for variable in trained]

    def are_slots(value):
        return (
            isinstance(value, list)
            and value is not trained
            and all(isinstance(each, keras.Variable) for each in value)
            and [tuple(each.shape) for each in value] == shapes
        )

    found = {name: value for name, value in vars(optimizer).items() if are_slots(value)}
    return trained, found


def metric_function(metric):
    """Get the function of labels and predictions that a metric is the mean of."""
    return metric._fn


def metric_mode(metric):
    """Get the `mode` with which a callback such as `EarlyStopping` monitors a metric.

    Of a function, or if the metric does not know it, it is `"auto"`.
    """
    if not hasattr(metric, "_direction"):
        return "auto"
    return "max" if metric._direction == "up" else "min"


def compiled_loss(model):
    """Get the Keras loss that was given to `compile`, or `None`."""
    return model._compile_loss


def compiled_metrics(model):
    """Get the Keras metric of those that were given to `compile`, or `None`."""
    return model._compile_metrics


def loss_weights(model):
    """Get the `loss_weights` that were given to `compile`, or `None`."""
    loss = compiled_loss(model)
    return None if loss is None else loss._user_loss_weights


def mean_loss(model):
    """Compute the mean of the losses of all steps since metrics were reset."""
    return model._loss_tracker.result()


def added_loss(model, term):
    """Reduce an entry of `model.losses` to what Keras adds to the model's loss.

    On TensorFlow the result is scaled where several devices share a batch.
    """
    return model._aggregate_additional_loss(term)
