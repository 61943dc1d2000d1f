"""Archives whose manifest, or whose content, is not what it should be."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from test_native.hostile.cases import EXTERNS, SOURCE, STORAGE, Case, Good


def _raw(change: Callable[[str], str | bytes]) -> Callable[[Good], bytes]:
    def build(good: Good) -> bytes:
        text = change(json.dumps(good.manifest()))
        return good.bytes(text.encode() if isinstance(text, str) else text)

    return build


def _says(**fields: Any) -> Callable[[Good], bytes]:
    return lambda good: good.saying(lambda manifest: manifest.update(fields)).bytes()


def _after_sealing(name: str, change: Callable[[bytes], bytes]) -> Callable[[Good], bytes]:
    """A content that was changed, checksums and all, when the manifest was done."""

    def build(good: Good) -> bytes:
        manifest = json.dumps(good.manifest()).encode()
        return good.having({name: change(good.members[name])}).bytes(manifest)

    return build


def _of_another(good: Good) -> bytes:
    other = good.having({"more.txt": b"text"})
    return good.bytes(json.dumps(other.manifest()).encode())


def _of_a_twin(good: Good) -> bytes:
    twin = good.having({STORAGE: bytes(16)})
    return good.bytes(json.dumps(twin.manifest()).encode())


def _unlisted(good: Good) -> bytes:
    return good.having({"more.py": b"raise SystemExit"}).bytes(json.dumps(good.manifest()).encode())


def _hidden_extern(good: Good) -> bytes:
    manifest = good.manifest()
    further = good.having({EXTERNS: good.members[EXTERNS] + b"subprocess\n"})
    manifest["files"] = further.manifest()["files"]
    return further.bytes(json.dumps(manifest).encode())


def _without_source(good: Good) -> bytes:
    ghost = {"action": "intern", "origin": "rules", "reason": "a test", "imported_by": []}
    return good.saying(lambda manifest: manifest["modules"].update(ghost=ghost)).bytes()


_SELF_TEST = {"package": "model", "resource": "model.pkl", "seed": 0, "rtol": 1e-4, "atol": 1e-5}

MANIFEST_CASES = [
    Case("manifest that is not JSON", "crash or confuse the reader", "manifest", "json",
         _raw(lambda text: text[:-1])),
    Case("manifest that is not UTF-8", "the same", "manifest", "json",
         _raw(lambda text: b"\xff" + text.encode())),
    Case("manifest of 100,000 brackets", "run the reader out of stack", "manifest", "json",
         _raw(lambda text: '{"schema": 3, "inputs": ' + "[" * 100_000)),
    Case("manifest nested in itself 500 times", "run those who print it out of stack", "manifest", "depth",
         _says(inputs=json.loads('{"inputs":' * 500 + "0" + "}" * 500))),
    Case("manifest with a key twice", "say one thing to each reader", "manifest", "duplicate-key",
         _raw(lambda text: text[:-1] + ', "schema": 3}')),
    Case("manifest with a digest twice", "the same, for one file", "manifest", "duplicate-key",
         _raw(lambda text: text.replace('"files": {', f'"files": {{"{SOURCE}": "{"0" * 64}", '))),
    Case("manifest with NaN", "pass every comparison as tolerance", "manifest", "number",
         _says(self_test={**_SELF_TEST, "rtol": float("nan")})),
    Case("manifest with an infinite tolerance", "the same", "manifest", "number",
         _raw(lambda text: text.replace('"self_test": null', '"self_test": 1e999'))),
    Case("manifest with a negative tolerance", "fail every comparison", "manifest", "self_test",
         _says(self_test={**_SELF_TEST, "atol": -1})),
    Case("manifest with a seed of 5,000 digits", "cost time by conversion", "manifest", "json",
         _raw(lambda text: text.replace('"self_test": null', '"self_test": 1' + "0" * 5000))),
    Case("manifest of 65 MiB", "cost memory in every interpreter", "manifest", "manifest-size",
         _raw(lambda text: text + " " * (65 << 20))),
    Case("manifest of another schema", "be read by rules that are not its own", "manifest", "schema",
         _says(schema=99)),
    Case("manifest with an unknown field", "mean something to a reader to come", "manifest",
         "unknown-field", _says(run_first="os.system")),
    Case("manifest without externs", "crash who asks for them", "manifest", "missing-field",
         lambda good: good.saying(lambda manifest: manifest.pop("externs")).bytes()),
    Case("manifest with short digests", "be easy to match", "manifest", "files",
         _says(files={SOURCE: "00"})),
    Case("entry that is not there", "fail at the first request only", "manifest", "entry",
         _says(entry={"package": "model", "resource": "other.pkl", "kind": "module"})),
    Case("entry by a path", "load a pickle outside of the archive", "manifest", "resource",
         _says(entry={"package": "..", "resource": "../../model.pkl", "kind": "module"})),
    Case("example inputs that are no arguments", "crash who shows them", "manifest", "inputs",
         _says(inputs={"args": 5, "kwargs": {}})),
    Case("data that is not there", "be looked for on the server", "manifest", "data",
         _says(data=["../../etc/passwd"])),
    Case("global that is none", "match more than one name", "manifest", "globals", _says(globals=["os.*:*"])),
    Case("extern that the manifest hides", "have a module that no manifest lists", "manifest", "externs",
         _hidden_extern),
    Case("module without its source", "be looked for on the server", "manifest", "modules", _without_source),
    Case("member that the manifest hides", "have a member that no digest covers", "manifest", "files",
         _unlisted),
    Case("manifest of another archive", "vouch for what it never saw", "manifest", "files", _of_another),
    Case("manifest of an archive with the same names", "the same", "digests", "digest", _of_a_twin),
    Case("changed source", "run other code than was packed", "digests", "digest",
         _after_sealing(SOURCE, lambda content: content.replace(b"self.weight[", b"5 + self.weight[")
                        .replace(b"import pathlib\n", b"import pathlib"))),
    Case("changed weights", "answer differently than when it was packed", "digests", "digest",
         _after_sealing(STORAGE, lambda content: bytes(len(content)))),
    Case("changed pickle", "build another object", "digests", "digest",
         _after_sealing("model/model.pkl", lambda content: content.replace(b"training", b"drowning"))),
]  # fmt: skip
