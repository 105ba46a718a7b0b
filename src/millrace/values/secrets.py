"""Passwords and keys of settings and environment. They are never shown, logged or stored."""

import os
import re

from millrace.errors import ConfigError

_SECRET_NAME = re.compile(
    r"password|passphrase|secret|token|jaas|private|\.pem$|oauthbearer\.config|credential", re.IGNORECASE
)
_PUBLIC_NAME = re.compile(r"(ca|certificate)\.pem$|token\.endpoint|mechanism|strategy")


def is_secret(key: str) -> bool:
    """Whether the value of a setting of this name must not be shown."""
    return bool(_SECRET_NAME.search(key)) and not _PUBLIC_NAME.search(key)


class Secret:
    """A secret and the environment variable that may hold it.

    Its text is `***`. Pickled for another process, it holds only the name of the variable.
    """

    __slots__ = ("_value", "variable")

    def __init__(self, variable: str, value: str | None = None) -> None:
        """Without a value, the environment variable is read when it is needed."""
        self.variable = variable
        self._value = value

    def reveal(self) -> str:
        """The secret itself, to be sent and not to be shown."""
        value = os.environ.get(self.variable) if self._value is None else self._value
        if value is None:
            raise ConfigError(
                f"{self.variable} is not in the environment of this process, and secrets are not sent to "
                "other machines; "
                "set it where Spark's executors run, such as by a secret of Kubernetes"
            )
        return value

    def __repr__(self) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self.variable == other.variable and self._value == other._value

    def __hash__(self) -> int:
        return hash(self.variable)

    def __reduce__(self) -> "tuple[type[Secret], tuple[str]]":
        return Secret, (self.variable,)
