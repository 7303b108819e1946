from __future__ import annotations

import html
import importlib.util
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bertpool.errors import BertpoolError, OutputError
from bertpool.extraction import extract
from bertpool.insight.colours import OKABE_ITO, OTHER, Categories, Numbers, colour_by
from bertpool.insight.compare import compare
from bertpool.insight.comparison import Comparison
from bertpool.insight.figure import has_glyphs
from bertpool.insight.map_html import draw as draw_html
from bertpool.insight.map_png import draw as draw_png
from bertpool.insight.map_png import shortened
from bertpool.insight.picture_path import check_comparison_plot
from bertpool.insight.plot import plot, plot_comparison
from bertpool.insight.projection import Projection, pca
from bertpool.insight.texts import Pairs
from bertpool.insight.vector_map import VectorMap
from bertpool.model import load
from matplotlib import image
from sklearn.decomposition import PCA
from tiny_models import sentences

Tiny = Callable[[str], Path]
Run = Callable[..., Any]

NASTY = [
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "\"double\" and 'single' & ampersand",
    "emoji \U0001f600 and \u4e2d\u6587",
    "$x_1^2$ and \\alpha and _under_",
    "line\u2028separator",
    "",
]


def points_of(count: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(count, 2))


def drawn(texts: list[str], **more: Any) -> VectorMap:
    projection = Projection(points_of(len(texts)), ("PC 1 (60.0%)", "PC 2 (20.0%)"))
    return VectorMap("notes.parquet", "a model", projection, texts, **more)


def data_of(page: bytes) -> dict[str, Any]:
    """Read the data out of a page as a browser does: up to the first closing tag."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script', page.decode())
    assert found
    content: dict[str, Any] = json.loads(found[1])
    return content


@pytest.fixture
def vectors(bertpool: Run, tiny: Tiny, tmp_path: Path) -> Path:
    """Embed some texts with a column of groups and one of numbers."""
    rows = [
        json.dumps({"text": text, "topic": f"topic {i % 3}", "length": len(text)})
        for i, text in enumerate(sentences(40, 5, 15))
    ]
    (tmp_path / "notes.jsonl").write_text("\n".join(rows))
    options = ["--keep", "topic", "--keep", "length", "-m", tiny("tiny-bert"), "-q"]
    path = tmp_path / "notes.parquet"
    assert bertpool("embed", tmp_path / "notes.jsonl", "-o", path, *options).code == 0
    return path


# The projection


def test_points_are_those_of_scikit_learns_pca_but_for_the_signs() -> None:
    vectors = np.random.default_rng(1).normal(size=(60, 9)) * np.arange(1, 10)
    expected = PCA(n_components=2, svd_solver="full").fit(vectors)
    found = pca(vectors)
    np.testing.assert_allclose(np.abs(found.points), np.abs(expected.transform(vectors)), atol=1e-9)
    shares = [float(re.findall(r"([\d.]+)%", axis)[0]) for axis in found.axes]
    assert shares == pytest.approx(expected.explained_variance_ratio_ * 100, abs=0.06)


def test_equal_vectors_are_one_point() -> None:
    found = pca(np.ones((5, 4)))
    assert not found.points.any()
    assert found.axes[0] == "PC 1 (0.0% of variance)"


def test_vectors_of_one_dimension_have_a_flat_second_axis() -> None:
    assert not pca(np.arange(6.0)[:, None]).points[:, 1].any()


# Colours


def test_few_different_values_are_categories_the_largest_first() -> None:
    found = colour_by("topic", ["b", "a", "b", None])
    assert isinstance(found, Categories)
    assert found.names == ("b", "(none)", "a")
    assert found.places.tolist() == [0, 2, 0, 1]


def test_many_categories_share_the_last_colour() -> None:
    found = colour_by("topic", [f"t{i % 12}" for i in range(100)])
    assert isinstance(found, Categories)
    assert len(found.names) == len(OKABE_ITO)
    assert found.names[-1] == OTHER
    assert found.colours[-1] not in OKABE_ITO


def test_many_different_numbers_are_a_scale_also_as_text() -> None:
    for values in (list(range(20)), [str(i) for i in range(20)]):
        found = colour_by("length", [*values, None])
        assert isinstance(found, Numbers)
        assert np.isnan(found.values[-1])


def test_few_numbers_and_truth_values_are_categories() -> None:
    assert isinstance(colour_by("label", [0, 1, 0]), Categories)
    assert isinstance(colour_by("truncated", [True, False]), Categories)


def test_one_outlier_does_not_stretch_the_scale() -> None:
    found = colour_by("length", [*range(100), 10_000])
    assert isinstance(found, Numbers)
    assert found.scale[1] < 101


# Pages


def test_a_page_holds_every_text_unchanged_whatever_it_holds() -> None:
    assert data_of(draw_html(drawn(NASTY)))["texts"] == NASTY


def test_no_text_or_name_can_end_the_script_or_start_another() -> None:
    colouring = colour_by("</script><b>", [f"</script>{i}" for i in range(len(NASTY))])
    page = draw_html(drawn(NASTY, colouring=colouring)).decode()
    assert page.count("</script>") == page.count("<script") == 2
    assert "alert(1)</" not in page


def test_the_title_of_a_page_is_escaped() -> None:
    nasty = VectorMap("<b>&.parquet", "'\"<i>", Projection(points_of(3), ("x", "y")), [])
    page = draw_html(nasty).decode()
    assert "<b>&." not in page
    assert html.escape("<b>&.parquet") in page


def test_a_page_asks_for_nothing_from_elsewhere() -> None:
    page = draw_html(drawn(NASTY)).decode()
    assert not re.findall(r"(?:src|href)=|https?:|@import|url\(", page)


def test_a_long_text_is_cut_in_the_page() -> None:
    (text, _, _) = data_of(draw_html(drawn(["a" * 9000, "b", "c"])))["texts"]
    assert len(text) == 400


STUB = """
const made = [];
class Element {
  constructor(id) { this.id = id; this.children = []; this.style = {}; this.on = {};
    this.attributes = {}; this.hidden = false; this.value = ""; this.own = ""; made.push(this); }
  set textContent(text) { this.own = String(text); this.children = []; }
  get textContent() { return this.own + this.children.map(c => c.textContent ?? c).join(""); }
  append(child) { this.children.push(child); }
  replaceChildren() { this.own = ""; this.children = []; }
  setAttribute(name, value) { this.attributes[name] = value; }
  addEventListener(name, listener) { this.on[name] = listener; }
  getBoundingClientRect() { return { width: 800, height: 600 }; }
  setPointerCapture() {}
  getContext() { return recorder; }
}
const arcs = [], words = [];
const recorder = new Proxy({}, { get: (_, name) =>
  name === "arc" ? (x, y, r) => arcs.push([x, y, r]) :
  name === "fillText" ? text => words.push(text) : () => {}, set: () => true });
const known = {};
global.document = { getElementById: id => known[id] ??= new Element(id),
                    createElement: name => new Element(name) };
global.window = { devicePixelRatio: 2 };
global.ResizeObserver = class { constructor(f) { this.f = f; } observe() { this.f(); } };
document.getElementById("data").textContent = DATA;
"""
AFTER = """
const result = { drawn: arcs.length, words: [...words] };
const [x, y] = [atX(data.x[1]), atY(data.y[1])];
canvas.on.pointermove({ offsetX: x, offsetY: y });
result.tip = tip.textContent;
canvas.on.wheel({ offsetX: x, offsetY: y, deltaY: -1, preventDefault() {} });
canvas.on.pointermove({ offsetX: x, offsetY: y });
result.tipZoomed = tip.textContent;
search.value = "EMOJI"; search.on.input();
result.found = found.textContent;
result.legend = legend.textContent;
const buttons = made.filter(e => e.id === "button");
if (buttons.length) { arcs.length = 0; buttons[0].on.click(); result.left = arcs.length - 1; }
console.log(JSON.stringify(result));
"""


def run_in_node(page: bytes) -> dict[str, Any]:
    """Run a page's script with elements that only remember what is done to them."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node isn't installed")
    script = re.findall(r"<script>(.*?)</script>", page.decode(), flags=re.DOTALL)[-1]
    data = json.dumps(json.dumps(data_of(page)))
    whole = f"const DATA = {data};\n{STUB}\n{script}\n{AFTER}"
    finished = subprocess.run(
        [node, "-"], input=whole, capture_output=True, text=True, check=False, timeout=60
    )
    assert finished.returncode == 0, finished.stderr
    content: dict[str, Any] = json.loads(finished.stdout)
    return content


def test_the_pages_script_draws_every_point_and_shows_the_text_under_the_pointer() -> None:
    colouring = colour_by("topic", ["a", "b", "a", "a", "a", "a", "a"])
    result = run_in_node(draw_html(drawn(NASTY, colouring=colouring)))
    assert result["drawn"] == len(NASTY)
    assert "PC 1 (60.0%)" in result["words"]
    assert "0" in result["words"]
    assert not [word for word in result["words"] if "e-" in word]
    assert result["tip"] == result["tipZoomed"] == f"row 2, topic: b{NASTY[1]}"
    assert result["found"] == "1 of 7 texts"
    assert result["legend"] == "topica6b1"
    assert result["left"] == 1


def test_the_pages_script_shows_a_scale_of_numbers() -> None:
    texts = [f"text {i}" for i in range(30)]
    colouring = colour_by("length", [*range(29), None])
    result = run_in_node(draw_html(drawn(texts, colouring=colouring)))
    assert result["drawn"] == 30
    assert result["tip"] == "row 2, length: 1text 1"


def test_the_pages_script_takes_vectors_without_texts() -> None:
    nameless = VectorMap("v.npy", "m", Projection(points_of(5), ("x", "y")), [])
    assert run_in_node(draw_html(nameless))["tip"] == "row 2"


# Pictures


@pytest.mark.parametrize("count", [3, 10, 2000])
def test_a_picture_is_drawn_of_few_and_many_points(count: int, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(draw_png(drawn((NASTY * count)[:count])))
    assert image.imread(tmp_path / "a.png").shape == (900, 1200, 4)


@pytest.mark.parametrize("values", [["$a", "_b", "</c>", "d", "e", "f", "g"], list(range(9))])
def test_a_picture_takes_any_name_in_its_legend(values: list[object]) -> None:
    colouring = colour_by("$column_", values)
    assert draw_png(drawn((NASTY * 2)[: len(values)], colouring=colouring)).startswith(b"\x89PNG")


def test_the_same_map_gives_the_same_bytes() -> None:
    assert draw_png(drawn(NASTY)) == draw_png(drawn(NASTY))


def test_a_script_that_the_font_lacks_is_known() -> None:
    assert has_glyphs("plain, né, \u03b1")
    assert not has_glyphs("\u0e23\u0e16\u0e44\u0e1f")


def test_a_long_name_is_cut_to_a_line() -> None:
    assert shortened("a\nb  c") == "a b c"
    assert len(shortened("word " * 50)) == 34


# Files


def test_a_file_is_drawn_beside_it_by_default(vectors: Path) -> None:
    assert plot(str(vectors)) == vectors.with_suffix(".png")
    assert vectors.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


def test_a_page_of_a_file_has_its_texts_groups_and_what_made_it(vectors: Path) -> None:
    path = plot(str(vectors), output=str(vectors.with_suffix(".html")), color="topic")
    data = data_of(path.read_bytes())
    assert data["texts"] == sentences(40, 5, 15)
    assert sorted(group["name"] for group in data["groups"]) == ["topic 0", "topic 1", "topic 2"]
    assert "tiny-bert, mean: 40 texts" in path.read_text()


def test_a_sample_keeps_texts_beside_their_points(vectors: Path) -> None:
    page = plot(str(vectors), output=str(vectors.with_name("s.html")), color="length", sample=25)
    data = data_of(page.read_bytes())
    assert len(data["texts"]) == len(data["x"]) == len(data["values"]) == 25
    assert [len(text) for text in data["texts"]] == data["values"]
    assert "25 texts, a sample of 40" in page.read_text()


def test_vectors_of_npy_have_no_texts(bertpool: Run, tiny: Tiny, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n".join(sentences(9, 5, 5)))
    path = tmp_path / "a.npy"
    assert bertpool("embed", tmp_path / "a.txt", "-o", path, "-m", tiny("tiny-bert")).code == 0
    page = plot(str(path), output=str(tmp_path / "a.html"))
    assert data_of(page.read_bytes())["texts"] == []


def test_one_of_several_columns_of_vectors_is_drawn(
    bertpool: Run, tiny: Tiny, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("\n".join(sentences(9, 5, 5)))
    path = tmp_path / "a.parquet"
    options = ["-o", path, "-m", tiny("tiny-bert"), "-s", "cls,mean"]
    assert bertpool("embed", tmp_path / "a.txt", *options).code == 0
    pages = [
        plot(str(path), output=str(tmp_path / f"{name}.html"), column=name).read_bytes()
        for name in ("cls", "mean")
    ]
    assert data_of(pages[0])["x"] != data_of(pages[1])["x"]
    with pytest.raises(OutputError, match=r"--column max: .* has vectors in cls, mean"):
        plot(str(path), output=str(tmp_path / "b.html"), column="max")


def test_a_picture_that_is_there_is_kept_unless_forced(vectors: Path) -> None:
    vectors.with_suffix(".png").write_text("mine")
    with pytest.raises(OutputError, match="exists"):
        plot(str(vectors))
    plot(str(vectors), force=True)
    assert vectors.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"output": "a.gif"}, "unknown suffix; pictures are .png, .html"),
        ({"color": "nothing"}, "--color nothing: .* has the columns id, topic, length, text"),
        ({"color": "embedding"}, "--color embedding"),
        ({"output": "no-such-folder/a.png"}, "its folder doesn't exist"),
    ],
)
def test_what_cannot_be_drawn_is_refused(
    vectors: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], said: str
) -> None:
    monkeypatch.chdir(vectors.parent)
    with pytest.raises(OutputError, match=said):
        plot(str(vectors), **options)


def test_of_token_vectors_there_is_no_map_but_of_the_pooled_ones_beside(
    tiny: Tiny, tmp_path: Path
) -> None:
    (tmp_path / "in.txt").write_text("cat\ndog two\nhouse\n")
    source, model = [str(tmp_path / "in.txt")], str(tiny("tiny-bert"))
    both, only = (str(tmp_path / name) for name in ("both.parquet", "only.parquet"))
    extract(source, output=both, strategy="tokens,mean", model=model)
    assert plot(both).is_file()
    extract(source, output=only, strategy="tokens", model=model)
    with pytest.raises(OutputError, match="has token vectors and no pooled ones") as caught:
        plot(only)
    assert caught.value.exit_code == 2


def without(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    """Make one library look as if it weren't installed."""
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == missing else find(name)
    )


def test_without_matplotlib_one_line_says_what_to_install(
    vectors: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, "matplotlib")
    with pytest.raises(BertpoolError, match=r"pip install 'bertpool\[plot\]'"):
        plot(str(vectors))
    with pytest.raises(BertpoolError, match=r"pip install 'bertpool\[plot\]'"):
        check_comparison_plot(str(vectors.with_name("c.html")), [str(vectors)], force=False)


def test_a_page_needs_no_matplotlib(vectors: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "matplotlib")
    assert plot(str(vectors), output=str(vectors.with_suffix(".html"))).is_file()


def test_without_umap_one_line_says_what_to_install(
    vectors: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, "umap")
    with pytest.raises(BertpoolError, match=r"pip install 'bertpool\[umap\]'"):
        plot(str(vectors), method="umap")


# Comparisons


def comparison(tiny: Tiny, kind: str) -> Comparison:
    model = load(str(tiny("tiny-bert")), threads=1)
    first, second = sentences(24, 2, 10), sentences(24, 3, 10)
    if kind == "texts":
        return compare(model, [*first, *second], strategy="cls,mean")
    labels = np.array([0.0, 1.0] * 12) if kind == "pairs" else np.arange(24) / 5
    return compare(model, Pairs(first, second, labels), strategy="cls,mean", resamples=20)


@pytest.mark.parametrize("kind", ["pairs", "scores", "texts"])
def test_a_comparison_is_drawn_as_picture_and_page(tiny: Tiny, tmp_path: Path, kind: str) -> None:
    found = comparison(tiny, kind)
    plot_comparison(found, str(tmp_path / "c.png"))
    assert image.imread(tmp_path / "c.png").shape[1] == 1800
    plot_comparison(found, str(tmp_path / "c.html"))
    page = (tmp_path / "c.html").read_text()
    assert page.count("<svg") == 1
    assert "advice: " in page
    assert "Nearest neighbours in common" in page
    assert not re.findall(r"<script|src=|@import", page)
