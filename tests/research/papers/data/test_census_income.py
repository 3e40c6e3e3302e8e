"""Census-Income is encoded by what its training file holds."""

import gzip

import numpy as np
import pytest

from research.papers.data import census_income

pytest.importorskip("pandas")

TRAIN, TEST = "census-income.data.gz", "census-income.test.gz"
SPLITS = "train", "validation", "test"
WORKERS = "Private", "NA"  # All that training has.
COLLEGE, SCHOOL = "Bachelors degree(BA AB BS)", "High school graduate"


@pytest.fixture
def files(tmp_path, module, monkeypatch):
    """A folder with both files; people differ in what their number says."""
    loader = module("census_income")

    def person(number, first_class, space):
        row = dict.fromkeys(loader.COLUMNS, "Not in universe")
        row |= dict.fromkeys(loader.NUMERIC, "0")
        row |= {
            "age": number,
            "class of worker": first_class if number == 0 else "NA",
            "sex": f"Female{space}" if number % 3 else "Male",
            "year": 94 + number % 2,
            "education": COLLEGE if number % 4 == 0 else SCHOOL,
            "marital stat": "Never married" if number % 5 == 0 else "Widowed",
            "instance weight": 1000 + number,
            "income": "50000+." if number % 7 == 0 else "- 50000.",
        }
        return {name: str(value) for name, value in row.items()}

    people = {
        TRAIN: [person(number, "Private", " ") for number in range(100)],
        TEST: [person(number, "Never seen", "") for number in range(61)],
    }
    for name, rows in people.items():
        lines = "".join(", ".join(row.values()) + "\n" for row in rows)
        (tmp_path / name).write_bytes(gzip.compress(lines.encode()))
        monkeypatch.setitem(loader.NUM_ROWS, name, len(rows))
    return tmp_path


def column(data, split, name):
    return getattr(data, split).x[:, data.info["columns"].index(name)]


def ages(data, split):
    """The people of a split; ages are standardized."""
    return np.round(column(data, split, "age") * np.arange(100).std(ddof=1) + 49.5)


def test_inputs_are_numbers_and_one_hot_values(files):
    data = census_income(data_dir=files)
    sizes = {"train": 100, "validation": 31, "test": 30}
    for split, size in sizes.items():
        x, y = getattr(data, split)
        assert x.shape == (size, len(data.info["columns"]))
        assert y.shape == (size, 2)
        assert x.dtype == y.dtype == np.float32
        people = ages(data, split).astype(int)
        np.testing.assert_array_equal(column(data, split, "sex=Male"), people % 3 == 0)
        np.testing.assert_array_equal(column(data, split, "sex=Female"), people % 3 > 0)
        np.testing.assert_array_equal(column(data, split, "year=95"), people % 2)
        # The first person of the test file has a value that training has not.
        private, none = (column(data, split, f"class of worker={v}") for v in WORKERS)
        np.testing.assert_array_equal(private, (people == 0) & (split == "train"))
        np.testing.assert_array_equal(none, people != 0)
    assert sum(c.startswith("class of worker=") for c in data.info["columns"]) == 2
    people = np.concatenate([ages(data, split) for split in ("validation", "test")])
    assert sorted(people) == list(range(61))
    np.testing.assert_allclose(column(data, "train", "age").std(ddof=1), 1, rtol=1e-5)
    assert (column(data, "train", "capital gains") == 0).all()


@pytest.mark.parametrize(("group", "every"), [(1, 7), (2, 4)])
def test_both_groups_of_tasks_and_that_labels_are_no_inputs(files, group, every):
    data = census_income(group, data_dir=files)
    assert data.task_names == (("income", "education")[group - 1], "never_married")
    columns = {column.split("=")[0] for column in data.info["columns"]}
    assert not columns & {"education", "marital stat", "income", "instance weight"}
    for split in SPLITS:
        people, y = ages(data, split), getattr(data, split).y
        np.testing.assert_array_equal(y[:, 0], people % every == 0)
        np.testing.assert_array_equal(y[:, 1], people % 5 == 0)


def test_the_test_file_alone_is_split_and_encoded_by_its_training_rows(files):
    (files / TRAIN).unlink()
    data = census_income(test_file_only=True, data_dir=files)
    assert [getattr(data, split).num_samples for split in SPLITS] == [37, 12, 12]
    ages = np.concatenate([column(data, split, "age") for split in SPLITS])
    assert len(np.unique(ages)) == 61
    np.testing.assert_allclose(column(data, "train", "age").mean(), 0, atol=1e-6)
    np.testing.assert_allclose(column(data, "train", "age").std(ddof=1), 1, rtol=1e-5)
    # A value that one person has is no column, unless this person is among them.
    for seed in range(4):
        data = census_income(seed=seed, test_file_only=True, data_dir=files)
        one_hot = ["=" in name for name in data.info["columns"]]
        assert data.train.x[:, one_hot].any(axis=0).all()
    with pytest.raises(FileNotFoundError, match=r"needs the file census-income.data"):
        census_income(data_dir=files)


def test_the_seed_decides_the_halves_of_the_test_file(files):
    first, again, other = (census_income(seed=s, data_dir=files) for s in (1, 1, 2))
    np.testing.assert_array_equal(first.test.x, again.test.x)
    assert not np.array_equal(ages(first, "test"), ages(other, "test"))


@pytest.mark.parametrize("test_file_only", [False, True])
def test_sizes_can_be_asked_for(files, test_file_only):
    data = census_income(1, test_file_only, 9, 8, 7, data_dir=files)
    assert [getattr(data, split).num_samples for split in SPLITS] == [9, 8, 7]


DAMAGES = {
    "truncated": lambda content: content[:-20],
    "overwritten": lambda content: content[:50] + bytes(50) + content[100:],
    "another": lambda content: b"no archive",
    "rows": lambda content: gzip.compress(gzip.decompress(content)[:-300]),
    "values": lambda content: gzip.compress(
        gzip.decompress(content).replace(b"3,", b"three,")
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_an_error(files, damage):
    path = files / TRAIN
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    text = r"census-income.data.gz must be the official one \(100 rows\)"
    with pytest.raises(ValueError, match=text):
        census_income(data_dir=files)
