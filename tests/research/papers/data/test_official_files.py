"""Official files are found, downloaded, and never used when they are damaged."""

import hashlib

import pytest

from research.papers.data import official_files
from research.papers.data.official_files import File

CONTENT = b"what the official file holds"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def fetch(monkeypatch):
    """Fetch the only file of a data set."""

    def fetch(data_dir=None, url="https://example.org/part.gz"):
        files = {"part.gz": File(len(CONTENT), SHA256, url)}
        monkeypatch.setitem(official_files.FILES, "digits", files)
        (path,) = official_files.fetch_files("digits", data_dir, *files)
        return path

    return fetch


def test_files_are_found_in_the_folder_or_in_one_of_the_data_sets_name(fetch, tmp_path):
    (tmp_path / "part.gz").write_bytes(CONTENT)
    assert fetch(tmp_path) == tmp_path / "part.gz"
    (tmp_path / "digits").mkdir()
    (tmp_path / "digits" / "part.gz").write_bytes(CONTENT)
    assert fetch(str(tmp_path)) == tmp_path / "digits" / "part.gz"


OTHER = bytes(reversed(CONTENT))
NEEDED = rf"'digits' needs the file part.gz \(28 bytes, SHA-256 {SHA256}\) in one of "
NEEDED += r".*digits, .*in none of them. Get it from https://example.org/part.gz"
TRUNCATED = r"part.gz must be .*\(28 bytes.*Received: 27 bytes. Remove it"
RECEIVED = f"{SHA256}.*Received: SHA-256 {hashlib.sha256(OTHER).hexdigest()}"


@pytest.mark.parametrize(
    ("content", "error", "text"),
    [
        (None, FileNotFoundError, NEEDED),
        (CONTENT[:-1], ValueError, TRUNCATED),
        (OTHER, ValueError, RECEIVED),
    ],
    ids=["missing", "truncated", "of another data set"],
)
def test_a_file_that_is_not_the_official_one_is_an_error(
    content, error, text, fetch, tmp_path
):
    if content is not None:
        (tmp_path / "part.gz").write_bytes(content)
    with pytest.raises(error, match=text):
        fetch(tmp_path)


@pytest.fixture
def downloads(tmp_path, monkeypatch):
    """A folder for what TensorFlow Datasets downloads."""
    pytest.importorskip("tensorflow")
    pytest.importorskip("tensorflow_datasets")
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))
    return tmp_path / "tfds" / "downloads"


def test_without_a_folder_the_file_is_downloaded_once(
    fetch, tmp_path, downloads, capfd
):
    source = tmp_path / "part.gz"
    source.write_bytes(CONTENT)
    path = fetch(url=source.as_uri())
    assert path.read_bytes() == CONTENT
    assert downloads / "digits" in path.parents
    source.unlink()
    assert fetch(url=source.as_uri()).read_bytes() == CONTENT
    assert "%" not in capfd.readouterr().err  # No progress bar.


def test_a_damaged_download_is_not_used(fetch, tmp_path, downloads):
    source = tmp_path / "part.gz"
    source.write_bytes(CONTENT[:-1])
    with pytest.raises(ValueError, match=r"Received: 27 bytes. Remove it"):
        fetch(url=source.as_uri())


def test_without_a_network_the_error_says_what_to_pass(fetch, tmp_path, downloads):
    url = (tmp_path / "nothing.gz").as_uri()
    with pytest.raises(
        OSError, match=rf"'digits' could not be downloaded: .*Get {url} .*`data_dir`"
    ):
        fetch(url=url)
    assert not downloads.exists()
