"""A module that cannot be imported."""

import no_such_package  # noqa: F401
