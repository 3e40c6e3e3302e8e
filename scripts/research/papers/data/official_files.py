"""Find or download official files, and check them before they are read.

Nothing extracted or processed is stored, so that an interrupted run leaves no invalid
files.
"""

import contextlib
import csv
import hashlib
import os
import pathlib
import urllib.error
import urllib.request
from typing import NamedTuple

from dselectk_keras.utils import optional_import


class File(NamedTuple):
    """Size, checksum and source of an official file."""

    size: int
    sha256: str
    url: str

    def __str__(self):
        """The expected size and checksum, for errors."""
        return f"{self.size:,} bytes, SHA-256 {self.sha256}"


def read_table(path):
    """The official files that a table lists, by data set and name."""
    files = {}
    table = path.read_text(encoding="utf-8")
    for dataset, name, size, sha256, url in list(csv.reader(table.splitlines()))[1:]:
        files.setdefault(dataset, {})[name] = File(int(size), sha256, url)
    return files


FILES = read_table(pathlib.Path(__file__).with_name("files.csv"))


def fetch_files(dataset, data_dir, *names):
    """The verified paths of some files; without a folder, they are downloaded."""
    files = {name: FILES[dataset][name] for name in names}
    if data_dir is None:
        paths = _download(dataset, files)
    else:
        paths = [
            find_file(dataset, name, data_dir, file, file.url)
            for name, file in files.items()
        ]
    for path, file in zip(paths, files.values(), strict=True):
        size = path.stat().st_size
        if size != file.size:
            raise damaged_file_error(path, file, f"{size:,} bytes", file.url)
        with path.open("rb") as content:
            sha256 = hashlib.file_digest(content, "sha256").hexdigest()
        if sha256 != file.sha256:
            raise damaged_file_error(path, file, f"SHA-256 {sha256}", file.url)
    return paths


def find_file(dataset, name, data_dir, expected, source):
    """The path of a file in a folder, or an error that says where to get it."""
    if data_dir is None:
        raise ValueError(
            f"`{dataset}` needs `data_dir`, a folder with its files, which TensorFlow "
            f"Datasets does not have. Received: data_dir=None. Get them from {source}."
        )
    folders = [pathlib.Path(data_dir) / dataset, pathlib.Path(data_dir)]
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(
        f"The data set {dataset!r} needs the file {name} ({expected}) in one of "
        f"{', '.join(map(str, folders))}. It is in none of them. Get it from {source}."
    )


def damaged_file_error(path, expected, received, source):
    """The error for a file with unexpected content."""
    return ValueError(
        f"The file {path} must be the official one ({expected}). Received: {received}. "
        f"Remove it, and get it again from {source}."
    )


def _download(dataset, files):
    """Paths of the files in the download folder of TensorFlow Datasets."""
    tfds = optional_import(
        "tensorflow_datasets", extra="data", purpose=f"Downloading {dataset!r}"
    )
    tfds.disable_progress_bar()
    root = os.environ.get("TFDS_DATA_DIR", "~/tensorflow_datasets")
    folder = pathlib.Path(root).expanduser() / "downloads"
    try:
        if not (folder / dataset).exists():
            _check_network(next(iter(files.values())).url)
        manager = tfds.download.DownloadManager(
            download_dir=folder, dataset_name=dataset
        )
        paths = manager.download({name: file.url for name, file in files.items()})
    except (OSError, tfds.download.DownloadError) as error:
        urls = ", ".join(file.url for file in files.values())
        raise OSError(
            f"The data set {dataset!r} could not be downloaded: {error}. Get {urls} in "
            "another way, and pass the folder as `data_dir`."
        ) from error
    return [pathlib.Path(paths[name]) for name in files]


def _check_network(url):
    """Fail at once without a network; the downloader would retry for minutes."""
    request = urllib.request.Request(url, method="HEAD")
    # Any answer of the server shows that there is a network.
    with contextlib.suppress(urllib.error.HTTPError):
        urllib.request.urlopen(request, timeout=10).close()
