"""The signature policy: what an archive must prove before the server runs anything in it.

The operator decides, in the environment that the server is started with: which keys must have signed an
archive, whether digests are checked, and whether a self-test is run. No archive can weaken that. Everything
is checked on the process's own snapshot of the file, the very bytes that run afterwards, and by one
interpreter for all of them.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from interpool.native.errors import SelfTestError

if TYPE_CHECKING:
    from interpool.handler.config import HostSettings, ModelSettings
    from interpool.native.archive.format import Manifest
    from interpool.native.inside.packages import HermeticPackage

# To the model log, as TorchServe's own lines about a load.
logger = logging.getLogger()


@dataclass(frozen=True)
class SignaturePolicy:
    """The conditions for one model: plain values, which cross to an interpreter as JSON.

    Attributes:
        keys: PEM files of public keys, one of which must have signed the archive; none: any
            archive will do.
        digests: whether the content of each file is checked, and not just the structure.
        self_test: whether the archive must answer its own example inputs as it did when made.
    """

    keys: Sequence[str] = ()
    digests: bool = True
    self_test: bool = False

    @classmethod
    def of(cls, host: HostSettings, model: ModelSettings) -> Self:
        """The host's conditions, and the self-test if the model asks for it.

        Args:
            host: the server's settings.
            model: the model's own settings, which can ask for more and not for less.
        """
        return cls(
            keys=[str(key) for key in host.signature_keys],
            digests=host.verify == "digests",
            self_test=host.self_test or model.self_test,
        )

    def check(self, package: HermeticPackage) -> Manifest:
        """Check an opened archive, unless another interpreter has; nothing in it runs.

        Its structure was checked when it was opened. Then come its manifest, its digests, its
        signature and what it needs of this machine.

        Raises:
            ArchiveError: it is refused; the subclass and its rule say why.
        """
        # Here and below not at the top: the pool host, which hands the conditions on, stays small.
        from interpool.archiver_ext.verify.verification import required_manifest

        manifest = required_manifest(package.path, package.reader.manifest)
        # By its conditions: an archive that has met weaker ones has not met these.
        conditions = json.dumps([self.digests, *self.keys])
        package.reader.once(f"signature policy {conditions}", lambda: self._check(package, manifest))
        return manifest

    def _check(self, package: HermeticPackage, manifest: Manifest) -> str:
        from interpool.archiver_ext.verify.externs import check_externs
        from interpool.archiver_ext.verify.signature_check import verify_signature_apart
        from interpool.archiver_ext.verify.signing import signature_bytes
        from interpool.native.archive.reader import MANIFEST_MEMBER, check_digests, read_member

        started = time.monotonic()
        checked = ["structure", "manifest"]
        records = package.reader.records
        with package.reader.open_file() as file:
            if self.digests:
                check_digests(package.path, file, records, manifest)
                checked.append("digests")
            if self.keys:
                signed = read_member(package.path, file, records[MANIFEST_MEMBER])
                bundle = signature_bytes(package.path, file, records)
                signer = verify_signature_apart(signed, bundle, self.keys, package.path)
                checked.append(f"signature by key {signer}")
        warnings = check_externs(package.path, manifest)
        checked.append("externs")
        for warning in warnings:
            logger.warning("%s: %s", package.path, warning)
        spent = time.monotonic() - started
        logger.info("%s is as it was made: %s (%.2f s)", package.path, ", ".join(checked), spent)
        return json.dumps(warnings)

    def test(self, package: HermeticPackage, manifest: Manifest) -> None:
        """Run the archive's self-test if it is asked for, once for all interpreters.

        Args:
            package: the archive, which was checked.
            manifest: its manifest.

        Raises:
            SelfTestError: it fails, or there is none.
        """
        if not self.self_test:
            return
        if manifest["self_test"] is None:
            raise SelfTestError(
                f"{package.path} is to be tested before it is served, and holds no example inputs: pack it "
                "with them, or serve it without self_test",
                "no-self-test",
            )
        package.reader.once("self-test", lambda: self._test(package, manifest))

    def _test(self, package: HermeticPackage, manifest: Manifest) -> str:
        from interpool.archiver_ext.verify.self_testing import run_self_test

        started = time.monotonic()
        run_self_test(package, manifest)
        spent = time.monotonic() - started
        logger.info("%s answers its example inputs as when it was made (%.2f s)", package.path, spent)
        return ""
