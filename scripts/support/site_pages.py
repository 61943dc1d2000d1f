"""A hook of mkdocs': the site's pages that lie outside docs/, and links that lead from there and back.

Pages in docs/ link to files of the checkout as GitHub shows them (``../CONTRIBUTING.md``). On the site the
README is the front page, and others have names of their own.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
DOCS = "docs"
# Files of the checkout, and what they are on the site.
OUTSIDE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "LICENSE": "LICENSE",
    "SECURITY.md": "security-policy.md",
    "model_store/README.md": "model-store.md",
    "native/examples/figure2/main.cc": "main.cc",
}
SOURCES = {page: source for source, page in OUTSIDE.items()}
LINK = re.compile(r"(?<=\]\()([^)#:\s]+)(?=[)#])")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside docs/."""
    for source, page in OUTSIDE.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page's text with links between pages of the site."""
    source = SOURCES.get(page.file.src_uri, f"{DOCS}/{page.file.src_uri}")
    folder = posixpath.dirname(source)
    return LINK.sub(lambda link: _on_site(link[0], folder, page.file.src_uri), markdown)


def _on_site(link: str, folder: str, page: str) -> str:
    """A link of a file in ``folder``, as the site has it; mkdocs warns of those that lead nowhere."""
    target = posixpath.normpath(posixpath.join(folder, link))
    target = OUTSIDE.get(target, target.removeprefix(f"{DOCS}/"))
    return posixpath.relpath(target, posixpath.dirname(page) or ".")
