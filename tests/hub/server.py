"""A hub on loopback: as much of huggingface.co as its clients of both majors ask of it.

Large files are where they are in truth: at another address, with a signed link that needs no token and must get none.
"""

from __future__ import annotations

import hashlib
import http.server
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

_LARGE = (".safetensors", ".onnx", ".bin", "_data", ".data", ".xml")


class Asked(NamedTuple):
    """One request: "GET" or "HEAD", the path without its query, who asks, and from which byte on."""

    method: str
    path: str
    authorization: str
    range: str


@dataclass(kw_only=True)
class Repo:
    """A repository: its files at each commit, which commit a branch is at, its card, and what else is said of it."""

    commits: dict[str, dict[str, bytes]]
    branches: dict[str, str]
    private: bool = False
    card: Any = field(default_factory=dict)
    said: Mapping[str, Any] = field(default_factory=dict)


def commit(name: str) -> str:
    """What a commit of this name is called."""
    return hashlib.sha1(name.encode()).hexdigest()


def files_in(*folders: Path) -> dict[str, bytes]:
    """Every file in some folders, by its name there."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file()
    }


@dataclass
class Hub:
    """The hub, and how it behaves.

    Attributes:
        token: Opens private repositories.
        repos: By id.
        asked: What was asked, in its order.
        cut: By the end of a file's name: bytes after which a connection ends, in the order in which it is asked for.
        broken: Ends of files' names for which it has no answer but an error.
        busy: Repositories of which it says nothing for now.
        slow: By the end of a file's name: seconds before each half of it.
    """

    token: str = "hf_secret"
    repos: dict[str, Repo] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    cut: dict[str, list[int]] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    busy: set[str] = field(default_factory=set)
    slow: dict[str, float] = field(default_factory=dict)
    port: int = 0

    def add(self, name: str, files: Mapping[str, bytes], **said: Any) -> Repo:
        """Put a repository there with one commit, on its branch main."""
        sha = commit(name)
        self.repos[name] = Repo(commits={sha: dict(files)}, branches={"main": sha}, **said)
        return self.repos[name]

    def paths(self, method: str = "GET") -> list[str]:
        """What was asked for."""
        return [asked.path for asked in self.asked if asked.method == method]

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def environment(self, work: Path) -> dict[str, str]:
        """What makes a process use this hub, with all that it keeps in a folder."""
        return {
            "HF_ENDPOINT": self.endpoint,
            "HF_HUB_OFFLINE": "0",
            "HF_HOME": str(work / "hub"),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "FASTPIPE_CACHE": str(work / "artifacts"),
            "NO_PROXY": "*",
            "no_proxy": "*",
        }


@contextmanager
def serving(hub: Hub) -> Iterator[Hub]:
    """Answer for a hub as long as the context lasts."""
    handler = type("Handler", (_Handler,), {"hub": hub})
    with http.server.ThreadingHTTPServer(("", 0), handler) as server:
        hub.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield hub
        finally:
            server.shutdown()


class _Handler(http.server.BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def log_message(self, *_: Any) -> None:
        pass

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        authorization = self.headers.get("Authorization", "")
        self.hub.asked.append(Asked(self.command, path, authorization, self.headers.get("Range", "")))
        if path.startswith("/large/"):
            _, _, repo_owner, repo_name, sha, name = path.split("/", 5)
            return self._bytes(self.hub.repos[f"{repo_owner}/{repo_name}"].commits[sha][name], name, {})
        parts = path.removeprefix("/api/models/").strip("/").split("/")
        repo = self.hub.repos.get("/".join(parts[:2]))
        if "/".join(parts[:2]) in self.hub.busy:
            return self._send(429, {})
        if repo is None or (repo.private and authorization != f"Bearer {self.hub.token}"):
            return self._send(401, {"X-Error-Code": "RepoNotFound"})
        revision = parts[3] if len(parts) > 3 else "main"
        sha = repo.branches.get(revision, revision)
        if sha not in repo.commits:
            return self._send(404, {"X-Error-Code": "RevisionNotFound"})
        if path.startswith("/api/models/"):
            what = parts[2] if len(parts) > 2 else "revision"
            files = repo.commits[sha]
            return self._json([] if what == "tree" else _info("/".join(parts[:2]), sha, repo, files))
        return self._file("/".join(parts[:2]), sha, "/".join(parts[4:]))

    def _file(self, repo: str, sha: str, name: str) -> None:
        body = self.hub.repos[repo].commits[sha].get(name)
        if body is None:
            return self._send(404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": sha})
        if any(name.endswith(end) for end in self.hub.broken):
            return self._send(403, {})  # clients wait and ask again after 500
        said = {"X-Repo-Commit": sha, "ETag": f'"{_etag(name, body)}"'}
        if not name.endswith(_LARGE):
            return self._bytes(body, name, said)
        link = f"http://localhost:{self.hub.port}/large/{repo}/{sha}/{name}"
        large = {"Location": link, "X-Linked-Size": str(len(body)), "X-Linked-Etag": said["ETag"]}
        return self._send(302, {**said, **large})

    def _bytes(self, body: bytes, name: str, said: Mapping[str, str]) -> None:
        start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")[0])
        length = {"Accept-Ranges": "bytes", "Content-Length": str(len(body) - start)}
        if start:
            length["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
        self.send_response(206 if start else 200)
        for key, value in {**said, **length}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        end = next((name_ for name_ in self.hub.cut if name.endswith(name_) and self.hub.cut[name_]), None)
        if end:
            self.wfile.write(body[start : start + self.hub.cut[end].pop(0)])
            self.wfile.flush()
            self.close_connection = True
            self.connection.close()
            return
        pause = next((s for ending, s in self.hub.slow.items() if name.endswith(ending)), 0)
        half = (start + len(body)) // 2
        for part in (body[start:half], body[half:]):
            time.sleep(pause)
            self.wfile.write(part)

    def _json(self, values: Any) -> None:
        body = json.dumps(values).encode()
        self._bytes(body, "", {"Content-Type": "application/json"})

    def _send(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": "0"}.items():
            self.send_header(name, value)
        self.end_headers()


def _etag(name: str, body: bytes) -> str:
    return hashlib.sha256(body).hexdigest() if name.endswith(_LARGE) else hashlib.sha1(body).hexdigest()


def _info(name: str, sha: str, repo: Repo, files: Mapping[str, bytes]) -> dict[str, Any]:
    def described(path: str, body: bytes) -> dict[str, Any]:
        found: dict[str, Any] = {"rfilename": path, "size": len(body), "blobId": hashlib.sha1(body).hexdigest()}
        if path.endswith(_LARGE):
            found["lfs"] = {"sha256": _etag(path, body), "size": len(body), "pointerSize": 130}
        return found

    return {
        "id": name,
        "modelId": name,
        "sha": sha,
        "private": repo.private,
        "tags": [],
        "pipeline_tag": "text-classification",
        "library_name": "transformers",
        "cardData": repo.card,
        "siblings": [described(path, body) for path, body in files.items()],
        **repo.said,
    }
