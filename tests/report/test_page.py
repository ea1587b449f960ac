"""A run -> a page that needs and fetches nothing, in which a user's text is text; and back."""

from __future__ import annotations

import builtins
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.report import runs
from xla_dynamo.errors import InstallationError
from xla_dynamo.reporting import page

pytestmark = pytest.mark.spine


class Elements(HTMLParser):
    """What is in a page: its tags with attributes, and the text of cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_page_shows_the_run() -> None:
    found = Elements(page.html(runs.run()))
    words = ["train.py:8", "y = layer(x)", "x dimension 0 changed from 8 to 9", "sizes or dtypes"]
    words += [
        "Choose buckets.",
        "aten::nonzero",
        "Use where.",
        "60",
        "uploads",
        "mm = mm(x, t)",
        "layer (Linear)",
    ]
    assert [word for word in words if word not in found.text] == []
    bodies = [a["id"] for tag, a in found.tags if tag == "tbody" and "data-cause" in a]
    assert bodies == ["p0", "p1", "p2"]
    bars = [a for tag, a in found.tags if "compile" in (a.get("class") or "").split()]
    assert [bar["x"] for bar in bars] == ["5.0%", "15.0%", "25.0%"]
    assert [bar["class"] for bar in bars] == [
        "compile first",
        "compile sizes",
        "compile sizes disk",
    ]


def test_nothing_is_fetched() -> None:
    text = page.html(runs.run())
    found = Elements(text)
    assert {tag for tag, _ in found.tags} & {"link", "img", "iframe", "object", "base"} == set()
    assert [a["src"] for _, a in found.tags if "src" in a] == []
    assert [a["href"] for _, a in found.tags if "href" in a] == ["run.rank1.html"]
    assert re.findall(r"url\(|@import|fetch\(|XMLHttp|https?://(?!www.w3.org/2000/svg)", text) == []
    (policy,) = [a["content"] for tag, a in found.tags if "http-equiv" in a]
    assert policy is not None
    assert policy.startswith("default-src 'none'; ")


def test_what_a_user_wrote_is_no_markup() -> None:
    usual, hostile = Elements(page.html(runs.run())), Elements(page.html(runs.hostile()))
    assert {tag for tag, _ in hostile.tags} == {tag for tag, _ in usual.tags}
    assert [tag for tag, _ in hostile.tags].count("script") == 2
    handlers = [name for _, a in hostile.tags for name in a if name.startswith("on")]
    assert handlers == []
    assert "{{ 7 * 7 }}" in hostile.text  # as it is
    links = [a["href"] for _, a in hostile.tags if "href" in a]
    assert [link for link in links if link and ":" in link] == []


@pytest.mark.parametrize(
    "run", [runs.run(), runs.hostile(), runs.run(programs=(), spans=(), uses=())]
)
def test_a_page_can_be_read_back(run, tmp_path: Path) -> None:
    file = tmp_path / "run.html"
    page.write(run, file)
    assert page.read(file) == run
    assert [each.name for each in tmp_path.iterdir()] == ["run.html"]


def test_what_is_no_page_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "other.html"
    file.write_text("<p>")
    with pytest.raises(ValueError, match=r"other\.html is not a page of xla_dynamo\.report"):
        page.read(file)
    file.write_text('<script type="application/json" id="run">{"title": "x"}</script>')
    with pytest.raises(ValueError, match=r"is a page of another version: KeyError"):
        page.read(file)


def test_without_jinja2_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = builtins.__import__

    def without(name: str, *rest: object) -> object:
        if name == "jinja2":
            raise ImportError(name)
        return usual(name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InstallationError, match="pip install jinja2"):
        page.require()
