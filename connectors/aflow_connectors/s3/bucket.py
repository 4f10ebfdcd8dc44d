"""Objects below a prefix of a bucket: the requests that this connector makes, and their errors.

All methods block and are for worker threads; obstore releases the GIL meanwhile. Errors of obstore are ``BucketError``
with a short reason, without its debug output and without secrets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import chain
from typing import Any, Final

from aflow.checkpoints import BucketError, NoObject, ObjectInfo, Refused, Version
from aflow.errors import FlowDefinitionError, shown
from aflow_connectors.optional import load
from aflow_connectors.secret_texts import secrets_of, without_secrets

#: Bytes up to which an object is written by one request; a larger one is a multipart upload.
_ONE_REQUEST: Final = 8 << 20
#: A request that fails is repeated by obstore within this time, unless ``client`` has a ``retry_config``.
_RETRIES: Final = {"max_retries": 4, "retry_timeout": timedelta(seconds=30)}
_SCHEMES: Final = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl", "memory", "file")
_HOSTLESS: Final = ("memory", "file")
_CODE: Final = re.compile(r"<Code>(\w+)</Code>")
_MESSAGE: Final = re.compile(r"<Message>([^<]*)</Message>")


class Bucket:
    """The objects below ``url``; keys are relative to it.

    ``client`` are settings of obstore's store for the URL, such as ``endpoint``, ``region`` and credentials; without
    it they are those of the environment. ``store`` is an obstore store to use instead. Raises ``FlowDefinitionError``
    for an invalid URL or setting.
    """

    def __init__(
        self, owner: str, url: str, *, client: Mapping[str, object] | None, store: object | None
    ) -> None:
        root, prefix = split_url(owner, url)
        self.url: Final = f"{root}/{prefix}".rstrip("/") if prefix.strip("/") else root
        self.secrets: Final = secrets_of(client)
        self._owner: Final = owner
        self._root: Final = root
        self._prefix: Final = prefix.strip("/")
        self._client: Final = client
        self._store: Any = store

    def same_root(self, url: str) -> Bucket | None:
        """Return the objects below another URL of the same bucket; None for other URLs and paths."""
        if url != self._root and not url.startswith(self._root + "/"):
            return None
        other = Bucket(self._owner, url, client=self._client, store=self.store)
        other.secrets.update(self.secrets)
        return other

    @property
    def store(self) -> Any:
        """The store of obstore for the whole bucket. Raises ``ConnectorError`` if the package is missing."""
        if self._store is None:
            self._store = self._new_store()
        return self._store

    def _new_store(self) -> Any:
        stores = load("obstore.store", package="obstore", extra="s3", purpose=self._owner)
        settings: dict[str, Any] = {"retry_config": _RETRIES, **(self._client or {})}
        if str(settings.get("endpoint", "")).startswith("http://"):
            settings.setdefault("client_options", {"allow_http": True})
        try:
            # The class of the store depends on the URL.
            return stores.from_url(self._root, **settings)
        except Exception as exc:
            raise FlowDefinitionError(
                f"{self._owner}: client= is not valid for {self._root}: {self._reason(exc)}"
            ) from None

    def shown(self, key: str) -> str:
        """Return the URL of an object."""
        return f"{self.url}/{key}" if key else self.url

    # ------------------------------------------------------------------------------------------ requests

    def read(self, key: str, *, limit: int | None = None) -> tuple[bytes, Version]:
        """Return an object and its version. Raises ``NoObject``, and ``BucketError`` if it is above ``limit`` bytes."""
        try:
            got = self.store.get(self._path(key))
            size = int(got.meta["size"])
            if limit is not None and size > limit:
                raise BucketError(f"it has {size:,} bytes, and at most {limit:,} are expected")
            return bytes(got.bytes()), _version(got.meta)
        except BucketError:
            raise
        except Exception as exc:
            raise self._error(exc) from None

    def read_range(self, key: str, start: int, stop: int, *, version: Version) -> bytes:
        """Return the bytes from ``start`` to ``stop`` of that version. Raises ``Refused`` if the object changed."""
        options: dict[str, object] = {"range": (start, stop)}
        if "e_tag" in version:
            options["if_match"] = version["e_tag"]
        try:
            return bytes(self.store.get(self._path(key), options=options).bytes())
        except Exception as exc:
            raise self._error(exc) from None

    def head(self, key: str) -> ObjectInfo:
        """Return the size and version of an object. Raises ``NoObject``."""
        try:
            found = self.store.head(self._path(key))
        except Exception as exc:
            raise self._error(exc) from None
        return ObjectInfo(key, int(found["size"]), found["e_tag"] or "")

    def create(self, key: str, data: bytes) -> Version:
        """Write an object that must not exist. Raises ``Refused`` if it does."""
        return self._put(key, data, "create")

    def replace(self, key: str, data: bytes, version: Version) -> Version:
        """Write an object that must have ``version``. Raises ``Refused`` if it has another one."""
        return self._put(key, data, dict(version))

    def write(self, key: str, pieces: Iterable[bytes]) -> int:
        """Write an object completely, or not at all, and return its size.

        Raises ``BucketError``, and the errors of ``pieces``.
        """
        size = 0
        failures: list[BaseException] = []

        def counted() -> Iterator[bytes]:
            nonlocal size
            try:
                for piece in pieces:
                    size += len(piece)
                    yield piece
            except BaseException as exc:
                failures.append(exc)
                raise

        source = counted()
        first: list[bytes] = []
        for piece in source:
            first.append(piece)
            if size > _ONE_REQUEST:
                break
        try:
            if size > _ONE_REQUEST:
                self.store.put(self._path(key), chain(first, source), chunk_size=_ONE_REQUEST)
            else:
                self._put(key, b"".join(first), "overwrite")
        except BucketError:
            raise
        except Exception as exc:
            if failures:
                raise failures[0] from None
            raise self._error(exc) from None
        return size

    def objects(self, prefix: str) -> list[ObjectInfo]:
        """Return all objects below ``prefix``, a folder, in the order of their keys."""
        path = self._path(prefix)
        skipped = len(self._prefix) + 1 if self._prefix else 0
        try:
            return sorted(
                (
                    ObjectInfo(one["path"][skipped:], int(one["size"]), one["e_tag"] or "")
                    for page in self.store.list(path or None)
                    for one in page
                ),
                key=lambda one: one.key,
            )
        except Exception as exc:
            raise self._error(exc) from None

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects; one that does not exist is no error."""
        try:
            # By bulk requests, where the store has them.
            self.store.delete([self._path(key) for key in keys])
        except FileNotFoundError:
            for key in keys:
                self._delete_one(key)
        except Exception as exc:
            raise self._error(exc) from None

    def _delete_one(self, key: str) -> None:
        try:
            self.store.delete(self._path(key))
        except FileNotFoundError:
            return
        except Exception as exc:
            raise self._error(exc) from None

    def copy(self, source: str, target: str) -> None:
        """Copy an object in the bucket, without reading it; one at ``target`` is replaced. Raises ``NoObject``."""
        try:
            self.store.copy(self._path(source), self._path(target))
        except Exception as exc:
            raise self._error(exc) from None

    def _put(self, key: str, data: bytes, mode: object) -> Version:
        try:
            return _version(self.store.put(self._path(key), data, mode=mode, use_multipart=False))
        except Exception as exc:
            raise self._error(exc) from None

    def _path(self, key: str) -> str:
        return "/".join(filter(None, (self._prefix, key.strip("/"))))

    # ------------------------------------------------------------------------------------------ errors

    def _error(self, exc: Exception) -> BucketError:
        kind = type(exc).__name__
        if "NoSuchBucket" in str(exc):
            return BucketError(f"there is no bucket {self._root}")
        if isinstance(exc, FileNotFoundError):
            return NoObject("it does not exist")
        if kind in {"AlreadyExistsError", "PreconditionError"}:
            return Refused(self._reason(exc))
        if kind in {"PermissionDeniedError", "UnauthenticatedError"} or isinstance(
            exc, PermissionError
        ):
            return BucketError(f"access is denied, check the credentials: {self._reason(exc)}")
        if isinstance(exc, NotImplementedError) or kind == "NotSupportedError":
            return BucketError(f"the store does not support this request: {self._reason(exc)}")
        return BucketError(self._reason(exc))

    def _reason(self, exc: Exception) -> str:
        """Return the code and message of the server, or the first line of an error of obstore."""
        text = str(exc)
        code, message = _CODE.search(text), _MESSAGE.search(text)
        if code:
            reason = f"{code[1]}: {message[1]}" if message and message[1] else code[1]
        else:
            reason = text.strip().partition("\n")[0][:300] or type(exc).__name__
        return without_secrets(reason, self.secrets)


def split_url(owner: str, url: object) -> tuple[str, str]:
    """Return the URL of the bucket and the path in it. Raises ``FlowDefinitionError`` unless ``url`` names a bucket."""
    scheme, separator, rest = url.partition("://") if isinstance(url, str) else ("", "", "")
    host, _, path = rest.partition("/")
    if not separator or scheme not in _SCHEMES or (not host and scheme not in _HOSTLESS):
        raise FlowDefinitionError(
            f"{owner}: the URL must be like 's3://bucket/prefix', not {shown(url)}"
        )
    if "@" in host and not scheme.startswith("abfs"):
        raise FlowDefinitionError(
            f"{owner}: the URL of {host.rpartition('@')[2]} must have no credentials; client= takes them"
        )
    return f"{scheme}://{host}", path


def _version(meta: Mapping[str, str | None]) -> Version:
    # obstore refuses an item that is None.
    return {name: value for name in ("e_tag", "version") if (value := meta.get(name))}
