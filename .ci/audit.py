"""Looks up every pinned package in the index's list of known vulnerabilities, through pip-audit.

Exit status: 0 if none is known or the list cannot be reached, which it says; 1 if there are some.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

PINS = Path(__file__).resolve().parent.parent / "constraints.txt"

ACCEPTED: dict[str, str] = {}
"""Identifier of a vulnerability -> why it does not concern this project."""


def main() -> int:
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(PINS), "--no-deps", "--disable-pip"]
    command += ["--format", "json", "--progress-spinner", "off", "--timeout", "20"]
    for identifier in ACCEPTED:
        command += ["--ignore-vuln", identifier]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    except subprocess.TimeoutExpired:
        print("audit: skipped, the list of known vulnerabilities did not answer in 10 minutes")
        return 0
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        print(f"audit: skipped, the list of known vulnerabilities cannot be reached: {reason[:200]}")
        return 0
    known = [(package, fault) for package in packages for fault in package.get("vulns", ())]
    for package, fault in known:
        fixed = ", ".join(fault["fix_versions"]) or "no version yet"
        print(f"audit: {package['name']} {package['version']}: {fault['id']}, fixed in {fixed}")
    unknown = [package["name"] for package in packages if "skip_reason" in package]
    if len(unknown) == len(packages):
        print("audit: skipped, the list of known vulnerabilities cannot be reached for any package")
        return 0
    asked = len(packages) - len(unknown)
    print(f"audit: {asked} packages looked up, {len(unknown)} unknown, {len(known)} vulnerabilities")
    return 1 if known else 0


if __name__ == "__main__":
    sys.exit(main())
