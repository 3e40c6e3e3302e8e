"""Ratings of films by users."""

import os
import pathlib
import zipfile
from typing import NamedTuple

import numpy as np

from dselectk_keras.datasets import sampling
from dselectk_keras.datasets.dataset import Dataset, Split
from dselectk_keras.utils import check_choice
from research.engine import stand_in
from research.papers.data import official_files
from research.papers.data.changes import changed
from research.papers.data.partition import partition


class Version(NamedTuple):
    """The archive of a version, and the format of its table of ratings."""

    archive: str
    table: str
    separator: bytes
    header_lines: int
    num_ratings: int


VERSIONS = {
    "100k": Version("ml-100k.zip", "ml-100k/u.data", b"\t", 0, 100_000),
    "latest-small": Version(
        "ml-latest-small.zip", "ml-latest-small/ratings.csv", b",", 1, 100_836
    ),
    "1m": Version("ml-1m.zip", "ml-1m/ratings.dat", b"::", 0, 1_000_209),
}


def movielens(
    version: str = "1m",
    num_train: int | None = None,
    num_validation: int | None = None,
    num_test: int | None = None,
    seed: int = 0,
    data_dir: str | os.PathLike | None = None,
) -> Dataset:
    """MovieLens: whether a user watches a film, and how many stars they give it.

    Two tasks per pair of a user and a film: `watched`, which is 1 for rated pairs and 0
    for sampled others, and `rating`, from 0.5 or 1 to 5 stars. A film that was not
    watched has no rating: its label is NaN, which `MultitaskModel` ignores in the loss.

    From the paper: the tasks; 4,000 films and 6,000 users, as in MovieLens 1M; 1.6
    million examples for training and 200,000 each for validation and test. Ours: as
    many sampled pairs as ratings, split 8:1:1, which gives these numbers; negatives are
    drawn uniformly and without replacement from all pairs that were not rated; a
    missing rating is NaN; the seed. No pair is in two splits.

    Args:
        version: `"100k"`, `"latest-small"` (of 2018) or `"1m"`.
        num_train: Number of training pairs; `None` is all the others.
        num_validation: Number of validation pairs; `None` is a tenth of all.
        num_test: Number of test pairs; `None` is a tenth of all.
        seed: Non-negative integer; determines the negatives and the splits.
        data_dir: Folder that holds the official archive or what it extracts to, the
            extracted folder, or a folder `movielens` with them; `None` downloads it.

    Returns:
        A `Dataset` with int32 inputs (samples, 2), the indices of user and film, and
        float32 labels (samples, 2). Its `info` holds `columns`, the `vocabulary_sizes`
        of the two columns, which embeddings need, and the original ids by index,
        `user_ids` and `movie_ids`.

    Example:
        >>> data = movielens("latest-small", data_dir="data")  # doctest: +SKIP
        >>> data.info["vocabulary_sizes"]  # doctest: +SKIP
        (610, 9724)

    Reference:
        Hazimeh et al., "DSelect-k" (NeurIPS 2021), Section 4.1; Harper and Konstan,
        The MovieLens Datasets: History and Context, 2015
        (https://grouplens.org/datasets/movielens/).
    """
    check_choice("version", version, VERSIONS)
    table = _read_ratings(VERSIONS[version], data_dir)
    user_ids, users = np.unique(table[:, 0].astype("int64"), return_inverse=True)
    movie_ids, movies = np.unique(table[:, 1].astype("int64"), return_inverse=True)
    num_users, num_movies = len(user_ids), len(movie_ids)

    rated = users * num_movies + movies
    order = np.argsort(rated)  # The result must not depend on the table's order.
    negatives = _sample_negatives(
        sampling.random_stream(seed, 0), rated[order], num_users * num_movies
    )
    pairs = np.concatenate([rated[order], negatives])
    x = np.stack(np.divmod(pairs, num_movies), axis=1).astype("int32")
    y = np.full((len(pairs), 2), np.nan, "float32")
    y[:, 0] = np.arange(len(pairs)) < len(rated)
    y[: len(rated), 1] = table[order, 2]

    tenth = len(pairs) // 10
    parts = partition(
        sampling.random_stream(seed, 1),
        len(pairs),
        num_train=num_train,
        num_validation=tenth if num_validation is None else num_validation,
        num_test=tenth if num_test is None else num_test,
    )
    return Dataset(
        *(Split(x[part], y[part]) for part in parts),
        task_names=("watched", "rating"),
        task_kinds=("binary", "regression"),
        info={
            "columns": ("user", "movie"),
            "vocabulary_sizes": (num_users, num_movies),
            "user_ids": user_ids,
            "movie_ids": movie_ids,
        },
    )


def _read_ratings(version, data_dir):
    """Users, films and ratings, from the archive or from what it extracts to."""
    path = _find_extracted(version.table, version.archive, data_dir)
    if path is None:
        (path,) = official_files.fetch_files("movielens", data_dir, version.archive)
        with zipfile.ZipFile(path) as archive:
            content = archive.read(version.table)
    else:
        content = path.read_bytes()
    lines = content.replace(version.separator, b"\t").splitlines()
    lines = lines[version.header_lines :]
    try:
        if len(lines) != version.num_ratings:
            raise ValueError(f"{len(lines):,} lines")
        table = np.loadtxt(lines, delimiter="\t", usecols=(0, 1, 2), encoding="utf-8")
        _check_ratings(table, version.header_lines)
        return table
    except ValueError as error:
        expected = f"{version.num_ratings:,} lines of user, film, rating and time"
        source = official_files.FILES["movielens"][version.archive].url
        raise official_files.damaged_file_error(
            path, expected, error, source
        ) from error


def _check_ratings(table, header_lines):
    """Raise an error for a rating that is impossible, or that a user gave twice."""
    stars = table[:, 2]
    wrong = ~((stars >= 0.5) & (stars <= 5.0) & (2 * stars % 1 == 0))
    if wrong.any():
        row = wrong.argmax()
        raise ValueError(
            f"a rating of {stars[row]:g} in line {header_lines + row + 1}, where 0.5 "
            "to 5 stars are possible"
        )
    _, first = np.unique(table[:, :2], axis=0, return_index=True)
    if len(first) < len(table):
        row = np.setdiff1d(np.arange(len(table)), first)[0]
        user, film = table[row, :2]
        raise ValueError(
            f"a second rating of film {film:g} by user {user:g} in line "
            f"{header_lines + row + 1}"
        )


def _find_extracted(table, archive, data_dir):
    """The path of the extracted table, if it exists and the archive does not."""
    if data_dir is not None:
        for folder in (pathlib.Path(data_dir) / "movielens", pathlib.Path(data_dir)):
            if not (folder / archive).is_file() and (folder / table).is_file():
                return folder / table
        # Or the folder is the extracted one itself.
        file = pathlib.Path(data_dir) / pathlib.PurePath(table).name
        if file.parent.name == pathlib.PurePath(table).parent.name and file.is_file():
            return file
    return None


def _sample_negatives(rng, rated, num_pairs):
    """As many unrated pairs as there are rated ones, without repetition."""
    if 2 * len(rated) > num_pairs:
        raise ValueError(
            f"There are {num_pairs - len(rated):,} pairs without a rating, fewer than "
            f"the {len(rated):,} ratings."
        )
    found = np.empty(0, "int64")
    while len(found) < len(rated):
        drawn = rng.integers(num_pairs, size=2 * (len(rated) - len(found)))
        new = drawn[~np.isin(drawn, rated)]
        found = np.concatenate([found, new])
        _, first = np.unique(found, return_index=True)
        found = found[np.sort(first)]
    return found[: len(rated)]


def pairs_of_noise():
    """Noise in the shape of MovieLens."""
    sizes = (20, 30)

    def paired(part):
        y = part.y.copy()
        y[y[:, 0] == 0, 1] = np.nan
        return Split((part.x * sizes).astype("int32"), y)

    data = stand_in((2,), {"watched": "binary", "rating": "regression"})
    return changed(data, paired, info={"vocabulary_sizes": sizes})
