"""Sphinx: docs/*.md, CONTRIBUTING.md and CHANGELOG.md -> a site in site/, by `make docs`.

The pages are plain Markdown, which GitHub shows, too: their order is the table here, not a part of
them. Nothing is fetched, neither when the site is built nor when it is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from sphinx.application import Sphinx
from sphinx.builders.html import StandaloneHTMLBuilder

import xla_dynamo

ROOT = Path(__file__).parents[2]
START = "docs/index"
# Every page, in the order of the sidebar; a page that is missing here, or there, is an error.
NAVIGATION = {
    "Start": {
        "Start here": "self",
        "Examples": "examples",
        "What is supported": "support",
        "Limits": "limits",
    },
    "Use": {
        "torch.compile": "torch_compile",
        "Scripts for torch_xla": "legacy",
        "Sizes that change": "shapes",
        "Many devices": "distributed",
        "TPUs": "tpu",
        "CUDA": "gpu",
        "Numerics": "numerics",
    },
    "Come from": {
        "torch_xla": "migrate_torch_xla",
        "TorchTPU": "migrate_torchtpu",
        "TorchInductor": "migrate_inductor",
    },
    "Debug": {
        "When something is wrong": "debugging",
        "The report of a run": "report",
        "Recompilation": "recompilation",
        "Errors and warnings": "errors",
    },
    "Look up": {
        "Reference": "api",
        "Operators": "operators",
        "Versions": "versions",
        "Benchmarks": "benchmarks",
        "Speed of single ops": "speed",
        "torch_xla's tests": "torch_xla_suite",
    },
    "Contribute": {
        "Contributing": "/CONTRIBUTING",
        "Design": "design",
        "Changes": "/CHANGELOG",
    },
}

project = html_title = "xla_dynamo"
version = release = xla_dynamo.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = START
include_patterns = ["docs/*.md", "CONTRIBUTING.md", "CHANGELOG.md"]
# Folders that Sphinx would search for pages: environments have a hundred thousand files.
exclude_patterns = [each.name for each in ROOT.iterdir() if each.is_dir() and each.name != "docs"]
myst_heading_anchors = 4

default_role = "code"  # docstrings have names in single backticks
smartquotes_action = "D"  # dashes alone: quotes are those of Python's strings
napoleon_attr_annotations = False
autodoc_member_order = "bysource"
autodoc_class_signature = "separated"
autodoc_typehints_format = "short"
python_display_short_literal_types = True

html_theme = "furo"
html_static_path = ["static"]
html_extra_path = ["root"]  # site/index.html leads to the start page
html_css_files = ["site.css"]
html_js_files = [("operators.js", {"defer": "defer"})]
html_copy_source = html_show_sphinx = html_show_copyright = False


# Files that pages link to, such as examples/gpt.py: each gets a page, too.
SOURCES: set[str] = set()


def link_to_source(found: re.Match[str]) -> str:
    """A link to a Python file, as one to the page that shows it."""
    name, path = found[1], found[2]
    if not (ROOT / path).is_file():
        return found[0]  # Sphinx says where
    SOURCES.add(path)
    return f'<a href="../{path}.html">{name.strip("`")}</a>'


def fit_to_the_site(app: Sphinx, page: str, source: list[str]) -> None:
    """Links named after files get the titles of pages; the start page, the sidebar's contents."""
    source[0] = re.sub(r"\[[\w./]+\.md\]\(", "[](", source[0])
    source[0] = re.sub(r"\[([^\]\n]+)\]\(\.\./([\w/]+\.py)\)", link_to_source, source[0])
    if page == START:
        for caption, pages in NAVIGATION.items():
            entries = "\n".join(f"{title} <{name}>" for title, name in pages.items())
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{entries}\n```\n"


def show_sources(app: Sphinx) -> Iterator[tuple[str, dict[str, str], str]]:
    """A page for each file of SOURCES."""
    for path in sorted(SOURCES):
        highlighter = cast(StandaloneHTMLBuilder, app.builder).highlighter
        code = highlighter.highlight_block((ROOT / path).read_text(), "python")
        yield path, {"title": path, "body": f"<h1>{path}</h1>{code}"}, "page.html"


def setup(app: Sphinx) -> None:
    app.connect("source-read", fit_to_the_site)
    app.connect("html-collect-pages", show_sources)
