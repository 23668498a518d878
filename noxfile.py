"""The commands of this project: `nox -s tests`, `nox -s demo`, and their parts."""

from __future__ import annotations

import nox

nox.needs_version = ">=2024.10.9"
nox.options.default_venv_backend = "venv"
nox.options.reuse_venv = "yes"  # the environments are large; what they hold is brought up to date by every run
nox.options.sessions = ["tests"]

EXTRAS = nox.project.load_toml("pyproject.toml")["project"]["optional-dependencies"]
V4 = "transformers>=4.57.1,<5"
V5 = "transformers>=5,<6"
# In as many processes as there are cores; a file stays in one of them, as its tests share what they build.
PYTEST = ("python", "-m", "pytest", "-n", "auto", "--dist", "loadfile")
# The long scenarios of the benchmarks have a session of their own.
QUICK = ("-m", "not scenario")
# What depends on the engines and on no version of transformers is not asked twice.
QUICK_AGAIN = ("-m", "not scenario and not once")


def install(session: nox.Session, *requirements: str) -> None:
    session.install("-c", ".ci/constraints.txt", *requirements)


def run(session: nox.Session, *command: str) -> None:
    session.run(*command, env={"HF_HUB_OFFLINE": "1"})


@nox.session(venv_backend="none")
def tests(session: nox.Session) -> None:
    """Everything that must be green: lint, then the tests next to transformers 4 and 5. Fails if one of them fails."""
    for part in ("lint", "tests_v4", "tests_v5"):
        session.notify(part)


@nox.session
def lint(session: nox.Session) -> None:
    """Style, types, and the directions of imports."""
    # torch and its like count as Any, so that this needs none of them. These two are typed, and checked against.
    install(session, *EXTRAS["lint"], "filelock", "platformdirs", "typer")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")
    session.run("lint-imports")


@nox.session
def tests_v4(session: nox.Session) -> None:
    """The tests next to transformers 4, with Optimum."""
    install(session, "-e", ".[all,test]", V4)
    run(session, *PYTEST, *QUICK, *session.posargs)


@nox.session
def tests_v5(session: nox.Session) -> None:
    """The tests next to the newest transformers 5, for which there is no Optimum."""
    install(session, "-e", ".[openvino,onnxruntime,test]", V5)
    run(session, *PYTEST, *QUICK_AGAIN, *session.posargs)


@nox.session
def scenarios(session: nox.Session) -> None:
    """Every long scenario of the benchmarks, at a tiny size."""
    install(session, "-e", ".[all,test,bench]", V4)
    run(session, *PYTEST, "-m", "scenario", *session.posargs)


@nox.session
def demo(session: nox.Session) -> None:
    """fastpipe beside plain transformers on 1,000 real sentences."""
    install(session, "-e", ".[all,demo]", V4)
    run(session, "python", "docs/demo.py")


@nox.session
def bench(session: nox.Session) -> None:
    """The scenarios of benchmarks/, by name: `nox -s bench -- W1 W4`."""
    install(session, "-e", ".[all,bench]", V4)
    run(session, "python", "-m", "benchmarks", *session.posargs)
