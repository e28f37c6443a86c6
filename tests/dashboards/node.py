"""Node.js without a browser: the pages' own scripts computed, and locked npm packages installed."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from tests.kit import HANGS_S
from tests.needed import absent, needed

STATIC = Path(__file__).parents[2] / "dashboards" / "static"
INSTALL = ["ci", "--ignore-scripts", "--no-audit", "--no-fund"]


def computed(script, module, expression, value, before=""):
    """A JavaScript expression of `input`, which is `value`, and R, which is `module` after a script of the pages.

    before: JavaScript that runs before that script.
    """
    node = needed("Node.js")
    read = 'const input = JSON.parse(require("fs").readFileSync(0, "utf8"));'
    program = f"globalThis.Ridgeline = {{}};\n{before}{(STATIC / script).read_text()}\nconst R = {module};\n{read}"
    program += f"\nprocess.stdout.write(JSON.stringify({expression}));"
    done = subprocess.run([node, "-e", program], input=json.dumps(value), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def installed(package, folder):
    """A copy of a package's folder at `folder`, with what its lock names.

    Where that cannot be had, the test fails under continuous integration and is skipped, with the reason, elsewhere.
    """
    argv = [needed("npm"), *INSTALL]
    shutil.copytree(package, folder)
    try:
        done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=HANGS_S)
        why = done.stderr[-500:] if done.returncode else ""
    except subprocess.TimeoutExpired as error:
        why = str(error)
    if why:
        absent(f"the locked packages of {package.name} cannot be installed here, `npm ci` says: {why}")
    return folder
