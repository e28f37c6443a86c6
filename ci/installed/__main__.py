"""`ridgeline`, and `python -m ridgeline`: the verbs."""

from __future__ import annotations

from ridgeline import enter


def main() -> None:
    """Run a verb; the exit code is its."""
    enter()
    from ci.__main__ import main as verbs

    verbs(prog_name="ridgeline")


if __name__ == "__main__":
    main()
