"""Pictures of the vision gates: `gates/media` of a workspace, each file as corpus.toml lists it or not at all."""

from __future__ import annotations

import hashlib
from pathlib import Path

from anvil_tui.adapters.toml_files import load_corpus
from anvil_tui.core.corpus import Corpus, MediaFile
from anvil_tui.core.errors import BadFile

CORPUS_FILE = "corpus.toml"
_AGAIN = "take the file of the release, or `anvil-tui init` in an empty folder and copy gates/media from there"


class MediaFolder:
    """Read at each use, so that a change is seen while the console runs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def corpus(self) -> Corpus:
        """What the folder holds. BadFile when corpus.toml is missing or wrong."""
        return load_corpus(self._folder / CORPUS_FILE)

    def read(self, file: MediaFile) -> bytes:
        """The bytes of one listed file. BadFile that names it when it is missing or not as listed."""
        path = self._folder / file.name
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise BadFile(str(path), f"no such file, but corpus.toml lists it; {_AGAIN}") from None
        except OSError as why:
            raise BadFile(str(path), f"cannot be read: {why.strerror}") from why
        sha256 = hashlib.sha256(data).hexdigest()
        if sha256 != file.sha256:
            raise BadFile(
                str(path),
                f"changed: {len(data):,} bytes with sha256 {sha256[:12]}…, corpus.toml lists {file.bytes:,} bytes "
                f"with {file.sha256[:12]}…; {_AGAIN}",
            )
        return data
