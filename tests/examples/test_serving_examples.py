"""What goes into containers: files that parse, options and paths that there are."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from nnefc.cli.commands.serve import serve_libraries

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "serving"


def instructions() -> list[tuple[str, str]]:
    """Of the Dockerfile, each with its words; lines that go on are one."""
    text = re.sub(r"^#.*\n", "", (FOLDER / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    lines = [line.partition(" ") for line in text.splitlines() if line.strip()]
    return [(name, tail.strip()) for name, _, tail in lines]


def test_the_image_copies_what_there_is_and_all_that_the_wheel_is_built_from() -> None:
    copied = set()
    for name, tail in instructions():
        if name == "COPY" and not tail.startswith("--from"):
            *sources, _ = tail.split()
            copied |= set(sources)
    made_by_the_user = "examples/serving/models"
    assert all((ROOT / source).exists() for source in copied - {made_by_the_user})
    assert {"pyproject.toml", "MANIFEST.in", "LICENSE", "README.md", "compiler", "passes", "targets"} <= copied


def test_the_image_has_instructions_that_docker_knows_and_lists_that_are_json() -> None:
    known = "FROM WORKDIR COPY RUN USER EXPOSE STOPSIGNAL HEALTHCHECK ENTRYPOINT CMD"
    for name, tail in instructions():
        assert name in known.split()
        if name in ("ENTRYPOINT", "CMD"):
            assert all(isinstance(word, str) for word in json.loads(tail))
        if name == "RUN":
            shlex.split(tail)
    first, program = dict(instructions())["ENTRYPOINT"], dict(instructions())["HEALTHCHECK"].partition("CMD")[2]
    assert json.loads(first)[:2] == ["nnefc", "serve"]
    compile(json.loads(program)[2], "the health check", "exec")


@pytest.fixture
def documents() -> list[dict[str, Any]]:
    yaml = pytest.importorskip("yaml")
    return list(yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text()))


def test_the_manifest_names_ports_probes_and_labels_that_fit(documents: list[dict[str, Any]]) -> None:
    deployment, service = documents
    pod = deployment["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    assert service["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"]
    ports = {port["name"] for port in container["ports"]}
    assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["port"] in ports
        assert container[probe]["httpGet"]["path"] in ("/v2/health/ready", "/v2/health/live")


def test_the_manifest_gives_options_that_the_command_has(documents: list[dict[str, Any]]) -> None:
    (container,) = documents[0]["spec"]["template"]["spec"]["containers"]
    given = [word for word in container["args"] if word.startswith("--")]
    printed = CliRunner().invoke(serve_libraries, ["--help-all"]).output
    assert given and all(f"{option} " in printed for option in given)
    drain = float(container["args"][container["args"].index("--drain") + 1])
    pause = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert documents[0]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > drain + pause
