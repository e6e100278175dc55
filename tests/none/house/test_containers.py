"""The container files: they name files that exist and what the command line knows. Building them needs Docker."""

from __future__ import annotations

import re
import shlex
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from xbench_fast.runtime.cli.serve_command import serve
from xbench_fast.runtime.serving.settings import HttpSettings, ServiceSettings

yaml = pytest.importorskip("yaml")
FILES = ("Dockerfile.cpu", "Dockerfile.gpu")


def instructions(path: Path) -> list[tuple[str, str]]:
    """(instruction, rest) of a Dockerfile, continuation lines joined."""
    text = re.sub(r"\\\n", " ", "\n".join(line for line in path.read_text().splitlines() if line[:1] != "#"))
    return [(line.split()[0], line.split(None, 1)[1]) for line in text.splitlines() if line.strip()]


def load(root: Path, name: str) -> Any:
    return yaml.safe_load((root / "containers" / name).read_text())


@pytest.mark.parametrize("name", FILES)
def test_what_is_copied_exists_and_is_in_the_context(root: Path, name: str) -> None:
    ignored = (root / ".dockerignore").read_text().splitlines()
    allowed = [line[1:] for line in ignored if line.startswith("!")]
    assert "*" in ignored
    copied = [rest.split()[:-1] for word, rest in instructions(root / "containers" / name) if word == "COPY"]
    sources = [item for items in copied if not items[0].startswith("--from=build") for item in items]
    packages = re.search(r"^NAME, ROOMS = .*$", (root / "setup.py").read_text(), re.M)
    assert packages is not None
    rooms = set(re.findall(r'"(\w+)"', packages[0])) - {"xbench_fast"}
    assert len(rooms) > 3 and {"pyproject.toml", "setup.py", "constraints.txt", "api", *rooms} <= set(sources)
    for source in sources:
        assert (root / source).exists(), source
        assert any(fnmatch(source, item) for item in allowed), f"{source} is not in the context"


@pytest.mark.parametrize("name", FILES)
def test_images_are_pinned_run_as_nobody_and_say_whether_they_are_well(root: Path, name: str) -> None:
    found = instructions(root / "containers" / name)
    words = [word for word, _ in found]
    for base in (rest.split()[0] for word, rest in found if word == "FROM"):
        assert re.fullmatch(r"(?:[a-z]+/)?[a-z]+:\d[\w.-]+", base), base
    assert "--constraint constraints.txt" in next(
        rest for word, rest in found if word == "RUN" and "pip install" in rest
    )
    assert words.index("USER") < words.index("ENTRYPOINT")
    assert re.fullmatch(r"\d+", dict(found)["USER"]) and int(dict(found)["USER"]) > 0
    assert "/v2/health/ready" in dict(found)["HEALTHCHECK"]
    file, project = (root / "containers" / name).read_text(), (root / "pyproject.toml").read_text()
    extras = re.findall(r"'\.\[([\w,]+)\]'|EXTRAS=(\w+)", file)
    assert extras and ("$EXTRAS" in file) == ("ARG EXTRAS=" in file)
    for extra in ",".join(one or other for one, other in extras).split(","):
        assert re.search(rf"^{extra} = \[", project, re.M), extra


def flags(command: list[str]) -> set[str]:
    return {word for word in command if word.startswith("--")}


def test_commands_are_those_of_the_command_line(root: Path) -> None:
    known = {flag for option in serve.params for flag in option.opts}
    services = load(root, "compose.yaml")["services"]
    commands = [services[name]["command"] for name in ("serve", "gpu")]
    for name in FILES:
        commands.append(yaml.safe_load(dict(instructions(root / "containers" / name))["CMD"]))
    for command in commands:
        assert command[0] == "serve" and flags(command) <= known and "--host" in command


def test_the_services_fit_together(root: Path) -> None:
    compose = load(root, "compose.yaml")
    for name, service in compose["services"].items():
        if "build" in service:
            assert (root / "containers" / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
            assert service["read_only"] and "/tmp" in service["tmpfs"]
        else:
            assert re.fullmatch(r"[\w/-]+:v?\d+\.\d+\.\d+", service["image"])
        assert service["cap_drop"] == ["ALL"] and "no-new-privileges:true" in service["security_opt"]
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ())), name
        assert set(service["networks"]) <= set(compose["networks"]), name
        assert set(service.get("secrets", ())) <= set(compose["secrets"])
    for name in ("prometheus", "proxy", "gpu-proxy"):
        mounted = [item.split(":") for item in compose["services"][name]["volumes"]]
        assert any((root / "containers" / source).is_file() for source, *_ in mounted)
    (job,) = load(root, "prometheus.yml")["scrape_configs"]
    assert job["metrics_path"] == "/metrics" and job["authorization"]["credentials_file"] == "/run/secrets/token"
    servers = {name: service for name, service in compose["services"].items() if "build" in service}
    targets = {target for item in job["static_configs"] for target in item["targets"]}
    for service in servers.values():
        health = service["command"][service["command"].index("--health-port") + 1]
        assert f":{health}/v2/health/ready" in service["healthcheck"]["test"][-1] and "ports" not in service
    assert targets == {f"{name}:{health}" for name in servers}


def test_every_server_has_a_proxy_before_it(root: Path) -> None:
    services = load(root, "compose.yaml")["services"]
    for server, proxy in (("serve", "proxy"), ("gpu", "gpu-proxy")):
        (network,) = services[proxy]["networks"]
        assert services[server]["networks"][network]["aliases"] == ["upstream"]
        assert set(services[proxy]["depends_on"]) == {server}
        assert services[proxy].get("profiles") == services[server].get("profiles")
    text = (root / "containers" / "nginx.conf").read_text()
    assert "server upstream:8000;" in text and "listen 8080;" in text
    assert f"client_max_body_size {HttpSettings.max_body >> 20}m;" in text
    (read,) = re.findall(r"proxy_read_timeout (\d+)s;", text)
    assert int(read) > ServiceSettings.timeout


def test_the_lines_in_the_comments_name_these_files(root: Path) -> None:
    for path in (root / "containers").iterdir():
        for line in path.read_text().splitlines():
            words = shlex.split(line[1:].partition("#")[0]) if line.startswith(("#   docker", "#   kubectl")) else []
            if "-f" in words:
                assert (root / words[words.index("-f") + 1]).is_file()
