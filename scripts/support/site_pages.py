"""A hook of mkdocs': what of the site lies outside docs/, and links that lead from there and back.

Pages in docs/ link to files of the checkout as GitHub shows them (``../CONTRIBUTING.md``). On the site the
README is the front page, and others have names of their own. A line that is only a link to a C++ header, or
only a command line that ends with ``--help``, becomes the header, or what the command prints.
"""

from __future__ import annotations

import posixpath
import re
import subprocess
import sys
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
HEADER = re.compile(r"^\[.*\]\((native/cpp/include/.*)\)$", re.MULTILINE)
HELP = re.compile(r"^`interpool (.*--help)`$", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside docs/."""
    for source, page in OUTSIDE.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page's text with links between pages of the site, with headers and with commands' help."""
    source = SOURCES.get(page.file.src_uri, f"{DOCS}/{page.file.src_uri}")
    folder = posixpath.dirname(source)
    markdown = LINK.sub(lambda link: _on_site(link[0], folder, page.file.src_uri), markdown)
    markdown = HEADER.sub(lambda link: f"```cpp\n{(ROOT / link[1]).read_text(encoding='utf-8')}```", markdown)
    return HELP.sub(lambda shown: f"```text\n{_printed(shown[1])}```", markdown)


def _printed(arguments: str) -> str:
    """What interpool prints."""
    command = [Path(sys.executable).with_name("interpool"), *arguments.split()]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout


def _on_site(link: str, folder: str, page: str) -> str:
    """A link of a file in ``folder``, as the site has it; mkdocs warns of those that lead nowhere."""
    target = posixpath.normpath(posixpath.join(folder, link))
    target = OUTSIDE.get(target, target.removeprefix(f"{DOCS}/"))
    return posixpath.relpath(target, posixpath.dirname(page) or ".")
