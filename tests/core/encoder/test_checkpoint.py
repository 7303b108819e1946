from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bertpool.digest import file_sha256
from bertpool.encoder.checkpoint import (
    DEFAULT_MODEL,
    DEFAULT_PACKAGE,
    DEFAULT_SHA256,
    find_checkpoint,
    read_json,
)
from bertpool.errors import ModelError
from embedding import embed

Tiny = Callable[[str], Path]
Cached = Callable[..., Path]

COMMIT = "0123456789abcdef0123456789abcdef01234567"
PATH_LIKE = ("./modles/tiny-bert", "../x", "/no/such/dir", "~/no-such-x", "x/", ".")


@pytest.fixture(autouse=True)
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give each test an empty hub cache and an empty working directory."""
    cache, here = tmp_path / "hub", tmp_path / "here"
    cache.mkdir()
    here.mkdir()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    monkeypatch.chdir(here)
    return cache


@pytest.fixture
def cached(tiny: Tiny, hub_cache: Path) -> Cached:
    """Put a tiny model into the hub cache as the hub's library lays it out."""

    def put(model: str = "tiny-bert", name: str = "owner/name", branch: str = "main") -> Path:
        repository = hub_cache / f"models--{name.replace('/', '--')}"
        snapshot = repository / "snapshots" / COMMIT
        snapshot.mkdir(parents=True)
        (repository / "blobs").mkdir()
        for file in sorted(p for p in tiny(model).rglob("*") if p.is_file()):
            blob = repository / "blobs" / hashlib.sha256(bytes(file)).hexdigest()
            shutil.copy(file, blob)
            link = snapshot / file.relative_to(tiny(model))
            link.parent.mkdir(exist_ok=True)
            link.symlink_to(blob)
        (repository / "refs").mkdir()
        (repository / "refs" / branch).write_text(COMMIT)
        return snapshot

    return put


def refused(model: str | None, **options: Any) -> ModelError:
    with pytest.raises(ModelError) as refusal:
        find_checkpoint(model, **options)
    assert "\n" not in str(refusal.value)
    return refusal.value


def in_a_process(code: str, *arguments: object, **environment: str) -> str:
    """Run code in a process that dies at the first use of the network; return what it prints."""
    guard = (
        "import os, sys\n"
        "def guard(event, arguments):\n"
        "    if event in ('socket.connect', 'socket.getaddrinfo', 'socket.gethostbyname'):\n"
        "        print('network', event, arguments, flush=True)\n"
        "        os._exit(3)\n"
        "sys.addaudithook(guard)\n"
    )
    offline = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    inherited = {name: value for name, value in os.environ.items() if name not in offline}
    finished = subprocess.run(
        [sys.executable, "-c", guard + code, *map(str, arguments)],
        env={**inherited, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


# Directories


def test_a_directory_is_opened_by_its_path(tiny: Tiny) -> None:
    checkpoint = find_checkpoint(str(tiny("tiny-bert")))
    assert checkpoint.directory == tiny("tiny-bert")
    assert (checkpoint.name, checkpoint.revision) == ("tiny-bert", None)
    assert checkpoint.config["model_type"] == "bert"


@pytest.mark.parametrize("written", ["./tiny-bert", "tiny-bert/", "tiny-bert", "../here/tiny-bert"])
def test_a_directory_is_found_however_it_is_written(tiny: Tiny, written: str) -> None:
    shutil.copytree(tiny("tiny-bert"), "tiny-bert")
    assert find_checkpoint(written).name == "tiny-bert"


def test_the_name_of_the_working_directory_is_its_own(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tiny("tiny-bert"))
    assert find_checkpoint(".").name == "tiny-bert"


def test_a_tilde_is_the_home_directory(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    shutil.copytree(tiny("tiny-bert"), tmp_path / "x")
    assert find_checkpoint("~/x").directory == tmp_path / "x"


def test_a_directory_wins_over_a_hub_id(tiny: Tiny, cached: Cached) -> None:
    cached()
    shutil.copytree(tiny("tiny-distil"), "owner/name")
    checkpoint = find_checkpoint("owner/name")
    assert checkpoint.config["model_type"] == "distilbert"
    assert checkpoint.revision is None


@pytest.mark.parametrize("model", ["./modles/tiny-bert", "/no/such/dir", "~/no-such-x", "x/"])
def test_a_missing_directory_is_wrong_usage_that_names_it(model: str) -> None:
    error = refused(model)
    assert str(error) == f"model directory not found: {model}"
    assert error.exit_code == 2


def test_the_home_directory_of_nobody_is_not_found() -> None:
    assert "~nobody-by-this-name/x" in str(refused("~nobody-by-this-name/x"))


def test_a_file_is_refused_as_a_file(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()
    error = refused(str(tmp_path / "model.safetensors"))
    assert "is a file, not a directory" in str(error)
    assert error.exit_code == 2


def test_a_directory_without_a_configuration_is_refused(tmp_path: Path) -> None:
    error = refused(str(tmp_path))
    assert f"no config.json in {tmp_path}" in str(error)
    assert error.exit_code == 2


@pytest.mark.parametrize("content", ["{", "", "[1]", "\ufffe"])
def test_a_broken_configuration_is_an_error_that_names_it(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content, encoding="utf-16-le")
    assert str(tmp_path / "config.json") in str(refused(str(tmp_path)))


def test_a_revision_of_a_directory_is_refused(tiny: Tiny) -> None:
    error = refused(str(tiny("tiny-bert")), revision="main")
    assert "--revision" in str(error)
    assert error.exit_code == 2


def test_the_transformer_is_found_in_the_folder_that_the_modules_name(
    tiny: Tiny, tmp_path: Path
) -> None:
    shutil.copytree(tiny("tiny-bert"), tmp_path / "model" / "0_Transformer")
    kind = "sentence_transformers.models.Transformer"
    modules = [{"idx": 0, "name": "0", "path": "0_Transformer", "type": kind}]
    (tmp_path / "model" / "modules.json").write_text(json.dumps(modules))
    checkpoint = find_checkpoint(str(tmp_path / "model"))
    assert checkpoint.root == tmp_path / "model"
    assert checkpoint.directory == tmp_path / "model" / "0_Transformer"
    assert checkpoint.name == "model"


def test_a_path_is_refused_without_the_network() -> None:
    code = """
from bertpool.encoder.checkpoint import find_checkpoint
from bertpool.errors import ModelError
for model in sys.argv[1:]:
    try:
        find_checkpoint(model)
    except ModelError as error:
        print(error)
"""
    assert len(in_a_process(code, *PATH_LIKE).splitlines()) == len(PATH_LIKE)


def test_a_directory_is_loaded_and_run_without_the_network(tiny: Tiny, tmp_path: Path) -> None:
    code = f"""
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from pathlib import Path
from embedding import embed
print(embed(Path(sys.argv[1]), ["cat"]).shape)
"""
    assert in_a_process(code, tiny("tiny-bert"), HF_HOME=str(tmp_path)).strip() == "(1, 32)"


# The hub's cache


def test_a_cached_model_is_used_and_its_commit_told(cached: Cached) -> None:
    snapshot = cached()
    checkpoint = find_checkpoint("owner/name")
    assert checkpoint.directory == snapshot
    assert (checkpoint.name, checkpoint.revision) == ("owner/name", COMMIT)


def test_a_cached_model_gives_the_vectors_of_its_files(tiny: Tiny, cached: Cached) -> None:
    vectors = embed(cached(), ["cat one"])
    np.testing.assert_array_equal(vectors, embed(tiny("tiny-bert"), ["cat one"]))


@pytest.mark.parametrize("model", ["tiny-bin", "tiny-sharded", "tiny-st-dense"])
def test_a_cached_model_of_other_files_is_whole(cached: Cached, model: str) -> None:
    snapshot = cached(model)
    assert find_checkpoint("owner/name").directory == snapshot


@pytest.mark.parametrize("revision", [COMMIT, "v1"])
def test_a_cached_revision_is_found_by_its_commit_or_name(cached: Cached, revision: str) -> None:
    cached(branch="v1")
    assert find_checkpoint("owner/name", revision=revision).revision == COMMIT


def test_another_revision_than_the_cached_one_is_not_taken_for_it(cached: Cached) -> None:
    cached()
    assert "isn't in the hub cache" in str(refused("owner/name", revision="v2", offline=True))


def test_a_cached_model_is_found_without_the_network(cached: Cached, hub_cache: Path) -> None:
    cached()
    code = """
from bertpool.encoder.checkpoint import find_checkpoint
print(find_checkpoint("owner/name").revision)
"""
    assert in_a_process(code, HF_HUB_CACHE=str(hub_cache)).strip() == COMMIT


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes anywhere")
def test_a_cache_that_can_not_be_written_is_read(cached: Cached, hub_cache: Path) -> None:
    cached()
    hub_cache.chmod(0o500)
    assert find_checkpoint("owner/name").revision == COMMIT


@pytest.mark.parametrize(
    ("model", "missing"),
    [
        ("tiny-bert", "model.safetensors"),
        ("tiny-bert", "config.json"),
        ("tiny-bert", "tokenizer.json"),
        ("tiny-sharded", "model-00002-of-00002.safetensors"),
        ("tiny-st-cls", "1_Pooling/config.json"),
        ("tiny-st-dense", "2_Dense/model.safetensors"),
    ],
)
def test_a_snapshot_without_one_of_its_files_is_not_used(
    cached: Cached, model: str, missing: str
) -> None:
    (cached(model) / missing).unlink()
    assert "isn't in the hub cache" in str(refused("owner/name", offline=True))


def test_a_snapshot_whose_weights_lead_nowhere_is_not_used(cached: Cached) -> None:
    (cached() / "model.safetensors").resolve().unlink()
    assert "isn't in the hub cache" in str(refused("owner/name", offline=True))


def test_training_arguments_are_no_weights(cached: Cached) -> None:
    snapshot = cached()
    (snapshot / "model.safetensors").rename(snapshot / "training_args.bin")
    assert "isn't in the hub cache" in str(refused("owner/name", offline=True))


# Offline


def test_offline_names_the_model_the_option_and_the_ways_out(hub_cache: Path) -> None:
    message = str(refused("owner/name", offline=True))
    assert "owner/name" in message
    assert str(hub_cache) in message
    assert "--offline forbids" in message
    assert "hf download owner/name" in message


@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_offline_names_the_variable_that_forbids_it(tmp_path: Path, variable: str) -> None:
    code = """
from bertpool.encoder.checkpoint import find_checkpoint
from bertpool.errors import ModelError
try:
    find_checkpoint("owner/name")
except ModelError as error:
    print(error)
"""
    message = in_a_process(code, HF_HOME=str(tmp_path), **{variable: "1"})
    assert "owner/name" in message
    assert f"{variable} forbids" in message


@pytest.mark.parametrize("model", ["", "a/b/c", "two words", "owner/na me", "a\x00b", "a--b/c"])
def test_a_name_that_is_neither_a_directory_nor_a_hub_id_is_wrong_usage(model: str) -> None:
    error = refused(model)
    assert "neither a directory here nor a hub id" in str(error)
    assert error.exit_code == 2


def test_a_hub_out_of_reach_is_an_error_that_names_the_model(tmp_path: Path) -> None:
    code = """
from bertpool.encoder.checkpoint import find_checkpoint
from bertpool.errors import ModelError
try:
    find_checkpoint("owner/name")
except ModelError as error:
    print(error)
"""
    environment = {k: v for k, v in os.environ.items() if "OFFLINE" not in k}
    # Port 9 discards, and nothing listens on it here.
    environment |= {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path)}
    command = [sys.executable, "-c", code]
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert finished.stdout.startswith("model owner/name can't be fetched (")
    assert finished.stdout.count("\n") == 1


# The default model


def test_the_default_model_is_found_in_its_package(minilm: Path) -> None:
    checkpoint = find_checkpoint(None, offline=True)
    assert checkpoint.directory == minilm
    assert (checkpoint.name, checkpoint.revision) == (DEFAULT_MODEL, None)


def test_the_default_model_is_found_in_its_package_by_its_hub_id(minilm: Path) -> None:
    assert find_checkpoint(DEFAULT_MODEL, offline=True).directory == minilm


def test_the_package_is_not_imported() -> None:
    code = f"""
from bertpool.encoder.checkpoint import find_checkpoint
find_checkpoint(None, offline=True)
print({DEFAULT_PACKAGE!r} in sys.modules, "torch" in sys.modules, "transformers" in sys.modules)
"""
    assert in_a_process(code).strip() == "False False False"


def test_the_hub_cache_comes_before_the_package(cached: Cached) -> None:
    snapshot = cached(name=DEFAULT_MODEL)
    assert find_checkpoint(None).directory == snapshot


def test_a_revision_asked_for_is_not_the_packages(minilm: Path) -> None:
    message = str(refused(DEFAULT_MODEL, revision="v2", offline=True))
    assert "isn't in the hub cache" in message


def test_a_packaged_copy_with_other_weights_is_passed_over(
    tiny: Tiny,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    package = tmp_path / "site" / DEFAULT_PACKAGE
    shutil.copytree(tiny("tiny-bert"), package / "model")
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert "bertpool[minilm]" in str(refused(None, offline=True))
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "not the published weights" in record.getMessage()


def test_a_package_without_the_model_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site" / DEFAULT_PACKAGE
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert "bertpool[minilm]" in str(refused(None, offline=True))


# Hashes


def test_a_hash_is_that_of_the_files_bytes(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"cat" * 1_000_000)
    assert file_sha256(tmp_path / "file") == hashlib.sha256(b"cat" * 1_000_000).hexdigest()


def test_a_changed_file_has_another_hash(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"cat")
    before = file_sha256(tmp_path / "file")
    (tmp_path / "file").write_bytes(b"dog")
    os.utime(tmp_path / "file", ns=(1, 1))
    assert file_sha256(tmp_path / "file") != before


def test_the_hash_of_one_weight_file_is_its_own(minilm: Path) -> None:
    assert find_checkpoint(str(minilm)).weights_sha256() == DEFAULT_SHA256


def test_several_weight_files_are_hashed_together(tiny: Tiny, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(tiny("tiny-sharded"), tmp_path / "model"))
    before = find_checkpoint(str(directory)).weights_sha256()
    shard = directory / "model-00002-of-00002.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1] + b"\x07")
    assert find_checkpoint(str(directory)).weights_sha256() != before


def test_safetensors_are_hashed_before_bin(tiny: Tiny, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(tiny("tiny-bert"), tmp_path / "model"))
    (directory / "pytorch_model.bin").write_bytes(b"other")
    checkpoint = find_checkpoint(str(directory))
    assert checkpoint.weight_files() == [directory / "model.safetensors"]


@pytest.mark.parametrize(
    "file",
    ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
     "vocab.txt", "vocab.json", "merges.txt", "spiece.model"],
)  # fmt: skip
def test_every_file_of_the_tokenizer_changes_its_hash(
    tiny: Tiny, tmp_path: Path, file: str
) -> None:
    directory = Path(shutil.copytree(tiny("tiny-bert"), tmp_path / "model"))
    before = find_checkpoint(str(directory)).tokenizer_sha256()
    (directory / file).write_bytes(b"{}")
    assert find_checkpoint(str(directory)).tokenizer_sha256() != before


def test_hashes_do_not_depend_on_where_the_model_lies(tiny: Tiny, tmp_path: Path) -> None:
    copy = find_checkpoint(str(shutil.copytree(tiny("tiny-bert"), tmp_path / "copy")))
    own = find_checkpoint(str(tiny("tiny-bert")))
    assert copy.weights_sha256() == own.weights_sha256()
    assert copy.tokenizer_sha256() == own.tokenizer_sha256()


def test_what_is_no_json_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(b"\xff")
    with pytest.raises(ModelError, match=r"x\.json: can't be read as JSON"):
        read_json(tmp_path / "x.json")
