"""MovieLens gives watched and sampled pairs, and the ratings of the watched."""

import io
import zipfile

import numpy as np
import pytest

from research.papers.data import movielens

NUM_RATINGS = 300
FORMATS = {
    "100k": ("", "\t"),
    "latest-small": ("userId,movieId,rating,timestamp\r\n", ","),
    "1m": ("", "::"),
}


def make_ratings():
    """Users 10, 20, ..., 300; films 7, 14, ..., 280; a rating by both numbers."""
    rng = np.random.default_rng(0)
    pairs = rng.permutation(30 * 40)[:NUM_RATINGS]
    users, movies = 10 * (1 + pairs // 40), 7 * (1 + pairs % 40)
    return list(zip(users, movies, rate(users, movies), strict=True))


def rate(user, movie):
    return 1 + (user // 10 + movie // 7) % 5


SOME = make_ratings()[:-1]


def table(version, ratings):
    header, separator = FORMATS[version]
    lines = (separator.join(map(str, (*row, 964982703))) for row in ratings)
    return (header + "\n".join(lines) + "\n").encode()


@pytest.fixture
def make(tmp_path, official, module, monkeypatch):
    """Write the archive of a version, and read it."""
    versions = module("movielens").VERSIONS

    def load(version="1m", ratings=None, **options):
        expected = versions[version]
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr(expected.table, table(version, ratings or make_ratings()))
        official("movielens", expected.archive, archive.getvalue())
        changed = expected._replace(num_ratings=NUM_RATINGS)
        monkeypatch.setitem(versions, version, changed)
        return movielens(version, data_dir=tmp_path, **options)

    return load


def pairs(data, split):
    """User and film ids of a split."""
    x = getattr(data, split).x
    return data.info["user_ids"][x[:, 0]], data.info["movie_ids"][x[:, 1]]


@pytest.mark.parametrize("version", FORMATS)
def test_ratings_and_as_many_negatives(make, version):
    data = make(version)
    assert data.task_names == ("watched", "rating")
    assert data.task_kinds == ("binary", "regression")
    assert data.info["columns"] == ("user", "movie")
    assert data.info["vocabulary_sizes"] == (30, 40)
    rated, found, negatives = {row[:2] for row in make_ratings()}, set(), set()
    for split, size in {"train": 480, "validation": 60, "test": 60}.items():
        x, y = getattr(data, split)
        assert x.shape == y.shape == (size, 2)
        assert (x.dtype, y.dtype) == (np.int32, np.float32)
        users, movies = pairs(data, split)
        watched = y[:, 0] == 1
        np.testing.assert_array_equal(y[watched, 1], rate(users, movies)[watched])
        assert np.isnan(y[~watched, 1]).all()
        found |= set(zip(users[watched], movies[watched], strict=True))
        negatives |= set(zip(users[~watched], movies[~watched], strict=True))
    # All 600 pairs differ: none is in two splits.
    assert found == rated
    assert len(rated) == len(negatives) == NUM_RATINGS
    assert not negatives & rated


def test_half_stars_are_kept(make):
    ratings = [(u, m, rating - 0.5) for u, m, rating in make_ratings()]
    data = make("latest-small", ratings)
    assert set(data.train.y[data.train.y[:, 0] == 1, 1]) == {0.5, 1.5, 2.5, 3.5, 4.5}


def test_the_seed_decides_and_not_the_order_of_the_file(make):
    first, again = make(seed=1), make(seed=1, ratings=make_ratings()[::-1])
    for split in ("train", "test"):
        one, same = getattr(first, split), getattr(again, split)
        np.testing.assert_array_equal(one.x, same.x)
        np.testing.assert_array_equal(one.y, same.y)
    assert not np.array_equal(first.train.x, make(seed=2).train.x)


@pytest.mark.parametrize("folder", ["", "movielens"])
def test_what_the_archive_extracts_to_will_do(make, tmp_path, folder):
    expected = make("latest-small").train
    archive = tmp_path / "movielens" / "ml-latest-small.zip"
    (tmp_path / folder).mkdir(exist_ok=True)
    with zipfile.ZipFile(archive) as file:
        file.extractall(tmp_path / folder)
    archive.unlink()
    for given in (tmp_path, tmp_path / folder / "ml-latest-small"):
        found = movielens("latest-small", data_dir=given).train
        np.testing.assert_array_equal(found.x, expected.x)
    path = tmp_path / folder / "ml-latest-small" / "ratings.csv"
    path.write_bytes(path.read_bytes()[:-40])
    text = r"ratings.csv must be .*\(300 lines.*29. lines"
    with pytest.raises(ValueError, match=text):
        movielens("latest-small", data_dir=tmp_path)


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([*SOME, (10, 7, "five")], r"ml-1m.zip must be .*\(300 lines.*five"),
        ([*SOME, (10, 7, 99)], "a rating of 99 in line 300, where 0.5 to 5 stars"),
        ([*SOME, (10, 7, 0)], "a rating of 0 in line 300"),
        ([*SOME, (10, 7, 3.3)], "a rating of 3.3 in line 300"),
        ([*SOME, SOME[0]], "a second rating of film .* by user .* in line 300"),
        (
            [(user, film, 3) for user in range(15) for film in range(20)],
            "0 pairs without a rating, fewer than the 300",
        ),
    ],
)
def test_lines_that_are_no_ratings_are_refused(make, rows, text):
    with pytest.raises(ValueError, match=text):
        make(ratings=rows)
