"""Everything private to Keras, torch or scikit-learn that the package uses.

Each private name is behind a function that says what it is for. `tests/test_keras.py`
fails when Keras renames or changes one.
"""

import collections
import contextlib
import functools
import inspect
import tempfile

import keras
import numpy as np

# Private methods that Keras calls and a class of the package overrides.
OVERRIDDEN = (
    # `fit` and `evaluate` ask it for the logs of an epoch.
    "_get_metrics_result_or_logs",
)


def all_layers(model, kinds=keras.Layer):
    """List a model and all layers in it, each once, that are of some classes."""
    return [each for each in model._flatten_layers() if isinstance(each, kinds)]


def mask_of(tensor):
    """Get the mask that Keras has attached to a tensor, or `None`.

    Keras itself passes a mask only to layers that are called on one tensor.
    """
    if not keras.ops.is_tensor(tensor):
        return None  # Such as a NumPy array, which the layer would convert.
    found = _mask_layer(read=True)(tensor)
    return None if found is tensor else found


def with_mask(tensor, mask):
    """Attach a mask to a new tensor, as Keras does to the outputs of a layer."""
    return _mask_layer(read=False)(tensor, mask=mask)


@functools.cache
def _mask_layer(read):
    layer = _Mask(name="mask", autocast=False)
    layer.read = read
    return layer


class _Mask(keras.Layer):
    """Returns the mask of its input, or its input with the mask attached.

    Only Keras' layers know where a mask is. Tensors in programs of JAX have no
    attributes.
    """

    read: bool

    def call(self, inputs, mask=None):
        return mask if self.read and mask is not None else inputs

    def compute_mask(self, inputs, previous_mask=None):
        return None if self.read else previous_mask


@contextlib.contextmanager
def kept_losses(layer):
    """Keep what layers have added to the loss, while others may call the same layers.

    Replicas of `tf.distribute` are threads that share layers, and take turns. The
    layers are those of the call that `layer` is in.
    """
    layers = all_layers(layer._get_call_context().entry_layer)
    losses = [each._losses[:] for each in layers]
    yield
    for each, own in zip(layers, losses, strict=True):
        each._losses[:] = own


def prefix_paths(layer, prefix):
    """Begin the path of each variable of a layer with a prefix, if it does not yet.

    Copies of a layer, and layers that are built before the layer around them, may have
    equal names inside. On torch, Keras registers parameters by path, and clears the
    gradients only of those that are registered.
    """
    for variable in layer.variables:
        if not variable.path.startswith(f"{prefix}/"):
            variable._path = f"{prefix}/{variable.path}"


def note_sharing(value, config):
    """Note in the config of an object which object it is, while a model is saved.

    Keras itself notes it too late for layers inside of layers: only in the config of
    the last one that has the object, so that loading would create a second object.
    """
    probe = _probe()
    keras.saving.serialize_keras_object(probe)
    if "shared_object_id" in keras.saving.serialize_keras_object(probe):
        config["shared_object_id"] = id(value)


@functools.cache
def _probe():
    return keras.initializers.Zeros()


def calls_by_layer(model):
    """Count how often one call of a model calls each layer, by the id of the layer.

    `TimeDistributed` calls its layer once per time step: 0 times if the number of time
    steps is not known. Other calls outside of functional models count as one.
    """
    counts = collections.Counter()

    def visit(layer, times, inputs=()):
        counts[id(layer)] += times
        if isinstance(layer, keras.layers.TimeDistributed):
            length = inputs[0].shape[1] if inputs else None
            times *= length or 0
        if isinstance(layer, keras.Sequential):
            layer = layer._functional or layer
        if hasattr(layer, "_nodes_by_depth"):
            for call in calls_in(layer):
                visit(call.operation, times, call.input_tensors)
        elif isinstance(layer, keras.Layer):
            for part in layer._flatten_layers(include_self=False, recursive=False):
                visit(part, times)

    visit(model, 1)
    return {id(layer): counts.get(id(layer), 1) for layer in all_layers(model)}


def calls_in(model):
    """List the calls of layers in a functional model, each after what it reads.

    A call has an `operation`, `input_tensors`, `arguments` and `outputs`.
    """
    model = getattr(model, "_functional", None) or model
    return [
        call
        for depth in sorted(model._nodes_by_depth, reverse=True)
        for call in model._nodes_by_depth[depth]
    ]


def has_graph(model):
    """Whether a model is functional, or sequential and built: its calls are known."""
    return hasattr(getattr(model, "_functional", None) or model, "_nodes_by_depth")


def replace_parts(model, layer, parts):
    """Replace attributes of a built layer inside of a model, such as its sub-layers."""
    for name, part in parts.items():
        old = getattr(layer, name)
        if isinstance(part, keras.Layer):
            layer._tracker.replace_tracked_value("layers", old, part)
            prefix_paths(part, layer.path)
        setattr(layer, name, part)
    if keras.backend.backend() == "torch":
        # The layers around it have registered the parameters of the old ones.
        for each in all_layers(model):
            each._track_variables()


def names_of_outputs(names):
    """List the names of a dict in the order of `outputs` of a call that returns it."""
    return keras.tree.flatten({name: name for name in names})


def calls_for(model, tensor, known=()):
    """List the calls that compute a tensor of a functional model, in their order.

    Tensors of which `known` has the `id` need none.
    """
    known = {*known}
    calls, needed = [], {id(tensor)} - known
    for call in reversed(calls_in(model)):
        if needed & {*map(id, call.outputs)}:
            calls.append(call)
            needed |= {*map(id, call.input_tensors)} - known
    return calls[::-1]


def call_again(call, layer=None, known=None):
    """Call a layer as in a call of a functional model, or another layer in its place.

    `known` has tensors by the `id` of those whose place they take.
    """
    known = known or {}
    given = {id(each): known.get(id(each), each) for each in call.input_tensors}
    args, kwargs = call.arguments.fill_in(given)
    return (layer or call.operation)(*args, **kwargs)


def recomputed(model, tensor, replaced):
    """Compute a tensor of a functional model anew, with other tensors in its graph.

    `replaced` has these tensors by the `id` of those whose place they take.
    """
    known = dict(replaced)
    for call in calls_for(model, tensor, replaced):
        if known.keys() & {*map(id, call.input_tensors)}:
            found = keras.tree.flatten(call_again(call, known=known))
            pairs = zip(map(id, call.outputs), found, strict=True)
            known = {**dict(pairs), **known}
    return known.get(id(tensor), tensor)


def restart_slots(optimizer, variable, changed=True):
    """Reset an optimizer's state of a variable that was set, such as momentum.

    Otherwise it would undo the change. Moving averages (`use_ema`) begin at the present
    values. `changed` says which entries were set, booleans that broadcast to its shape.
    """
    # The optimizer of mixed precision has one inside, and `MultiOptimizer` several.
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    for each in getattr(optimizer, "optimizers", [optimizer]):
        trained = getattr(each, "_trainable_variables", [])
        for i in [i for i, other in enumerate(trained) if other is variable]:
            for slots in vars(each).values():
                is_list = isinstance(slots, list) and len(slots) == len(trained)
                slot = slots[i] if is_list and slots is not trained else None
                if isinstance(slots, dict):  # As `Muon` of Keras 3.12 has them.
                    slot = slots.get(variable.path)
                if isinstance(slot, keras.Variable) and slot.shape == variable.shape:
                    value = keras.ops.convert_to_numpy(variable)
                    first = _first_slot(each, slot.name, value)
                    old = keras.ops.convert_to_numpy(slot)
                    slot.assign(np.where(changed, first, old))


def _first_slot(optimizer, name, value):
    """Compute a slot of a variable with which a gradient of 0 keeps the variable."""
    kind = name.rpartition("_")[2]
    free = getattr(keras.optimizers, "ScheduleFreeAdamW", ())
    if kind == "average" or (kind == "momentum" and isinstance(optimizer, free)):
        return value
    if kind == "accumulator" and not name.endswith("gradient_accumulator"):
        return optimizer.initial_accumulator_value
    if kind == "linear":
        # The step of `Ftrl` computes the variable from this slot alone.
        rate = float(keras.ops.convert_to_numpy(optimizer.learning_rate))
        scale = optimizer.initial_accumulator_value**-optimizer.learning_rate_power
        scale = (scale + optimizer.beta) / rate
        scale += 2.0 * optimizer.l2_regularization_strength
        return -scale * value - optimizer.l1_regularization_strength * np.sign(value)
    return 0.0


def copy_state(source, target):
    """Copy the variables of a layer, its flags, and what it got from data.

    `set_weights` copies neither a vocabulary nor the constants of `Normalization`, and
    a config does not say which layers inside of others are frozen.
    """
    target.set_weights(source.get_weights())
    copy_adapted(source, target)
    for old, new in zip(all_layers(source), all_layers(target), strict=False):
        if old.trainable != new.trainable:
            new.trainable = old.trainable


def copy_adapted(source, target):
    """Copy what preprocessing layers got from data to a layer with an equal config."""
    adapted = [
        [layer for layer in all_layers(each) if hasattr(layer, "finalize_state")]
        for each in (source, target)
    ]
    for old, new in zip(*adapted, strict=True):
        if old.built and not new.built:
            new.build_from_config(old.get_build_config())
        store = {}
        old.save_own_variables(store)
        # Through NumPy: on JAX they would share a buffer.
        values = {key: keras.ops.convert_to_numpy(own) for key, own in store.items()}
        new.load_own_variables(values)
        has_words = hasattr(old, "get_vocabulary")
        if has_words and old.get_vocabulary(include_special_tokens=False):
            with tempfile.TemporaryDirectory() as folder:
                old.save_assets(folder)
                new.load_assets(folder)


def settings(function):
    """Get the config of a loss or metric, with the settings that its class leaves out.

    Such as the `delta` of `Huber`. There are none if it is a name or a function.
    """
    if not isinstance(function, (keras.Loss, keras.Metric)):
        return {}
    known = inspect.signature(type(function)).parameters
    given = getattr(function, "_fn_kwargs", {})
    own = {name: value for name, value in given.items() if name in known}
    return {**own, **function.get_config()}


def track_layer(model, layer):
    """Make a functional model train a layer that is an attribute (for Keras 3.12)."""
    if all(each is not layer for each in model._layers):
        model._layers.append(layer)


def compile_arguments(model):
    """Get the arguments that `compile` got, by name; none if it was not called."""
    if not getattr(model, "compiled", False):
        return {}
    return model._compile_config.config


def boosted_trees(model):
    """The trees of each round of scikit-learn's boosted trees, and the constants."""
    return model._predictors, model._baseline_prediction


def is_in_backward_pass():
    """Check whether torch computes gradients now, outside of a compiled program."""
    if keras.backend.backend() != "torch":
        return False
    import torch  # pyright: ignore[reportMissingImports]

    if torch.compiler.is_compiling():
        return False
    return torch._C._current_graph_task_id() != -1
