"""Official files: found in a folder or downloaded, and checked before they are read.

Nothing is extracted and nothing processed is kept, so that no data set can be served
as another, or from what an interrupted run has left.
"""

import contextlib
import hashlib
import os
import pathlib
import urllib.error
import urllib.request
from typing import NamedTuple

from dselectk_keras.utils import optional_import


class File(NamedTuple):
    """What an official file must be, and where it comes from."""

    size: int
    sha256: str
    url: str

    def __str__(self):
        """The expectation, for errors."""
        return f"{self.size:,} bytes, SHA-256 {self.sha256}"


def official(dataset, files, data_dir=None):
    """The paths of a data set's files, by name, each of them checked.

    Args:
        dataset: The data set's name.
        files: The expected `File` by name.
        data_dir: A folder that holds the files, or a folder of the data set's name
            with them; `None` downloads them.
    """
    if data_dir is None:
        paths = _download(dataset, files)
    else:
        paths = {
            name: located(dataset, name, data_dir, file, file.url)
            for name, file in files.items()
        }
    for name, file in files.items():
        _check(paths[name], file)
    return paths


def located(dataset, name, data_dir, expected, source):
    """The path of a file below a folder, or an error that says how to get it."""
    folders = [pathlib.Path(data_dir) / dataset, pathlib.Path(data_dir)]
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(
        f"The data set {dataset!r} needs the file {name} ({expected}) in one of "
        f"{', '.join(map(str, folders))}. It is in none of them. Get it from {source}."
    )


def damaged(path, expected, received, source):
    """The error about a file that is not what it should be."""
    return ValueError(
        f"The file {path} must be the official one ({expected}). Received: {received}. "
        f"Remove it, and get it anew from {source}."
    )


def _check(path, file):
    size = path.stat().st_size
    if size != file.size:
        raise damaged(path, file, f"{size:,} bytes", file.url)
    with path.open("rb") as content:
        sha256 = hashlib.file_digest(content, "sha256").hexdigest()
    if sha256 != file.sha256:
        raise damaged(path, file, f"SHA-256 {sha256}", file.url)


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
            _reach(next(iter(files.values())).url)
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
    return {name: pathlib.Path(path) for name, path in paths.items()}


def _reach(url):
    """Fail at once without a network, which the downloader would try for minutes."""
    request = urllib.request.Request(url, method="HEAD")
    # Whatever the server answers: there is a network.
    with contextlib.suppress(urllib.error.HTTPError):
        urllib.request.urlopen(request, timeout=10).close()
