"""The generated tasks, their scores, and the adapters in the text encoder."""

import dataclasses

import keras
import numpy as np
import pytest

from experiments import Results, Run
from papers.smear import _scores, _sentences, table2_small
from papers.smear._routers import Adapters, routed_layers

WORDS = np.array(_sentences.WORDS)


def test_scores_by_hand():
    labels, predicted = np.array([1, 1, 0, 0]), np.array([1, 0, 1, 0])
    assert _scores.accuracy(labels, predicted) == 0.5
    assert _scores.f1(labels, predicted) == 0.5
    assert _scores.matthews(labels, predicted) == 0.0
    assert _scores.matthews(labels, labels) == pytest.approx(1)
    assert _scores.f1(np.zeros(2), np.zeros(2)) == 0.0
    assert _scores.pearson(labels, np.ones(4)) == 0.0
    scores = np.array([0, 1, 2, 5])
    assert _scores.spearman(scores, scores**3) == pytest.approx(1)
    assert _scores.pearson(scores, scores**3) < 0.95
    # Ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4.
    tied = _scores.spearman(np.array([0, 1, 1, 2]), np.arange(4))
    assert tied == pytest.approx(4.5 / np.sqrt(4.5 * 5))


def test_synonyms_are_mutual():
    for word, other in _sentences.SYNONYMS.items():
        assert word != other
        assert _sentences.SYNONYMS[other] == word
        assert (word in _sentences.GOOD) == (other in _sentences.GOOD)


def test_answers_follow_from_the_words():
    rng = np.random.default_rng(0)
    for task in _sentences.GLUE:
        found = set()
        for _ in range(60):
            (name, *words), answer = _sentences.example(task, rng)
            found.add(answer)
            assert name == task
            assert len(words) < _sentences.LENGTH
            if "<sep>" not in words:
                continue
            cut = words.index("<sep>")
            first, second = words[:cut], words[cut + 1 :]
            if task == "stsb":
                assert answer == sum(map(str.__eq__, first, second)) - 2
            if task == "mnli":
                assert len(second) - len(first) == {0: -1, 1: 1, 2: 0}[answer]
            if task == "rte":
                kept = [w for i, w in enumerate(first) if i not in (1, 5)]
                assert (second == kept) == (answer == 0)
            if task in ("mrpc", "qqp"):
                back = [_sentences.SYNONYMS.get(word, word) for word in second]
                assert (back == first) == (answer == 1)
            if task == "qnli":
                known = first[1:] == [second[2], second[3]]
                known |= first[1:] == [second[3], second[6]]
                assert known == (answer == 1)
        size = {"stsb": 6, "mnli": 3}.get(task, 2)
        assert found == set(range(size))


def test_masked_words_are_found_at_their_places():
    words, places, answers = _sentences.masked(40, seed=0)
    assert words.shape == (40, _sentences.LENGTH)
    hidden = np.take_along_axis(words, places, axis=1)
    assert set(WORDS[hidden.ravel()]) == {"<mask>"}
    assert (words == _sentences.NUMBERS["<mask>"]).sum() == 40
    assert not {"the", "<sep>", "<pad>"} & set(WORDS[answers.ravel()])


def test_sizes_differ_as_glue_does():
    sizes = table2_small.Table2Small.presets()["cpu"].sizes
    assert sizes["rte"] < sizes["cola"] < sizes["mnli"] == 2000


def test_tag_routing_shares_the_expert_of_rte_and_mnli():
    tags = dict(zip(_sentences.GLUE, table2_small.TAGS, strict=True))
    assert tags["rte"] == tags["mnli"]
    assert len(set(tags.values())) == 7


def test_only_adapters_and_norms_are_trained():
    shared = Adapters(8, 2, 4, tags=table2_small.TAGS)
    parts = table2_small.frozen_parts(1, 8)
    table2_small.encoded(parts, keras.Input((_sentences.LENGTH,), dtype="int32"))
    flat = table2_small._flat(parts)
    weights = [layer.get_weights() for layer in flat]
    model = table2_small.build_encoder("SMEAR", 1, 8, shared, weights, 0.1)
    before = [w.copy() for w in model.get_weights()]
    assert len(routed_layers(model)) == 2
    texts = _sentences.texts(dict.fromkeys(_sentences.GLUE, 2), seed=0)
    model.fit(table2_small.inputs_of("SMEAR", texts, 0), texts.answers, verbose=0)
    frozen = {id(v) for v in model.weights} - {id(v) for v in model.trainable_weights}
    for now, then, variable in zip(
        model.get_weights(), before, model.weights, strict=True
    ):
        kept = np.array_equal(now, then)
        if id(variable) in frozen and "step" not in variable.path:
            assert kept or "seed" in variable.path, variable.path
    kernels = [v for v in model.trainable_weights if "dense" not in v.path]
    assert kernels


def test_scores_of_right_answers_are_one():
    texts = _sentences.texts(dict.fromkeys(_sentences.GLUE, 30), seed=0)
    found = table2_small.scores_of(texts.answers[:, 0], texts)
    assert found["average"] == pytest.approx(1)
    assert len(found["scores"]) == 11


def routed(**layers):
    """The claims on routing, of made-up favourites: a list of experts by layer."""
    smoke = table2_small.Table2Small.presets()["smoke"]
    experiment = dataclasses.replace(smoke, routers=tuple(layers))
    results = Results(experiment, "smoke")
    for arm, experts in layers.items():
        for seed in range(2):
            routing = np.eye(8)[list(experts)].tolist()
            numbers = {"average": 0.5, "scores": [0.5] * 11, "routing": routing}
            results.add(Run(arm, seed, {}, numbers, 1.0), {})
    return [claim.holds for claim in experiment.report(results).claims[-6:]]


# In the order of GLUE: cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte.
BY_TASK = (0, 1, 2, 3, 4, 2, 5, 2)
MOSTLY_ONE = (0, 1, 0, 2, 0, 0, 0, 0)
ALL_APART, ALL_IN_ONE = tuple(range(8)), (0,) * 8


def test_claims_on_routing():
    estimators = {key: [ALL_IN_ONE, MOSTLY_ONE] for key in table2_small.ESTIMATORS}
    others = {key: [ALL_APART] for key in ("Latent Skills", "Ensemble")}
    found = routed(SMEAR=[BY_TASK, MOSTLY_ONE], **estimators, **others)
    # One-hot weights cannot send MNLI to many experts, nor use most over all layers.
    assert found == [True, True, False, True, True, False]
    estimators = {key: [ALL_APART, ALL_APART] for key in table2_small.ESTIMATORS}
    found = routed(SMEAR=[ALL_APART, ALL_APART], **estimators, **others)
    assert found == [False, False, False, True, False, True]
    assert routed(SMEAR=[ALL_APART])[-2:] == [False, False]


def test_many_experts_are_not_sparse():
    even = np.full((2, 1, 8, 8), 1 / 8)
    assert table2_small._is_sparse(even) == (
        "a task has 8.0 of 8 experts in use; fewer than 4 count",
        False,
    )
    apart = np.zeros((2, 1, 8, 8))
    apart[..., 0] = 1
    for task, expert in (("sst2", 1), ("stsb", 2)):
        apart[..., _sentences.GLUE.index(task), :] = np.eye(8)[expert]
    apart[..., _sentences.GLUE.index("mnli"), :] = 1 / 8
    assert table2_small._some_stand_apart(apart)[1]


def test_the_learning_rate_warms_up():
    presets = table2_small.Table2Small.presets()
    rates = [float(presets["paper"].rate(step)) for step in (0, 1_000, 2_000, 9_000)]
    assert rates == pytest.approx([0, 1.5e-4, 3e-4, 3e-4])
    assert presets["cpu"].rate == 1e-3
