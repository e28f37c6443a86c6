"""Where a wheel puts the rooms: in the folder `house` of the one package `ridgeline` (see ci/installed)."""

from setuptools import find_packages, setup

ROOMS = ("kernels", "benchmarks", "ci", "dashboards")
HOUSE = "ridgeline.house"

found = find_packages(include=[pattern for room in ROOMS for pattern in (room, f"{room}.*")])
setup(
    packages=["ridgeline", *(f"{HOUSE}.{name}" for name in found)],
    package_dir={"ridgeline": "ci/installed"} | {f"{HOUSE}.{room}": room for room in ROOMS},
)
