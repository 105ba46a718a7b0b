"""What can go wrong, as a tree.

    MillraceError
    ├── DefinitionError      a job, window, trigger or pattern says something impossible
    ├── ConfigError          millrace.toml or an option says something impossible
    ├── ComponentMissing     Java, an extra or a program that is needed is absent or too old
    ├── LogError             the durable log refused
    │   ├── TopicMissing     no such topic
    │   ├── TopicMismatch    the topic exists, but not as declared
    │   ├── OffsetGone       a range that retention has removed, or that was never written
    │   ├── LogDamaged       what is stored is not what was written
    │   ├── LogUnwritable    no permission, no space
    │   ├── LogUnreachable   nobody answers
    │   ├── LogDenied        wrong password, certificate or rights
    │   └── Fenced           another writer has taken over
    ├── StateError           the state folder refused
    │   ├── StateInUse       another run holds it
    │   ├── StateUnwritable  no permission, no space
    │   ├── StateUnreadable  what is stored cannot be read
    │   ├── StateMismatch    it belongs to other jobs
    │   └── StreamEnded      its stream has ended, so no row can follow
    ├── InputError           a file or recording that cannot be read
    ├── PatternFailed        a pattern met events with which it cannot go on
    │   └── NoPlaceToSkip    it is to skip to an event that a match does not have
    ├── LookupFailed         a key could not be answered, and on_error='fail' stops the job
    ├── SinkFailed           a database refused results
    └── RunFailed            a query stopped and did not recover
        └── JobQuarantined   a job was stopped by its own code; those beside it went on

A user's mistake ends in one of these, never in a bare traceback: the message names the value, the consequence
and the remedy.
"""


class MillraceError(Exception):
    """Root of all errors that millrace raises on purpose."""


class DefinitionError(MillraceError, ValueError):
    """A job, window, trigger or pattern says something impossible."""


class ConfigError(MillraceError, ValueError):
    """A setting says something impossible."""


class ComponentMissing(MillraceError):
    """Something outside Python that is needed is absent or too old."""


class LogError(MillraceError):
    """The durable log refused."""


class TopicMissing(LogError):
    """No such topic."""


class TopicMismatch(LogError):
    """The topic exists, but not as declared."""


class OffsetGone(LogError):
    """Retention has removed the range, or it was never written."""


class LogDamaged(LogError):
    """What is stored is not what was written: a damaged disk, or a file that was changed by others."""


class LogUnwritable(LogError):
    """The log cannot be written: permission or space."""


class LogUnreachable(LogError):
    """Nobody answers where the log should be."""


class LogDenied(LogError):
    """The log does not let us: password, certificate or rights."""


class Fenced(LogError):
    """Another writer of the same name has taken over."""


class StateError(MillraceError):
    """The state folder refused."""


class StateInUse(StateError):
    """Another run holds the state folder."""


class StateUnwritable(StateError):
    """The state folder cannot be written: permission or space."""


class StateUnreadable(StateError):
    """What is stored cannot be read."""


class StateMismatch(StateError):
    """The state folder belongs to other jobs."""


class StreamEnded(StateError):
    """The stream of a state folder has ended (`until_end`):
    rows that come now would be late for everything.
    """


class InputError(MillraceError):
    """A file or recording cannot be read."""


class LookupFailed(MillraceError):
    """A key could not be answered, and `on_error="fail"` stops the job."""


class PatternFailed(MillraceError):
    """A pattern met events with which it cannot go on; `kind` says in a word what: here,
    too many partial matches.
    """

    kind = "limit"


class NoPlaceToSkip(PatternFailed):
    """After a match there is no event at which matching could go on,
    and the pattern says that this is an error.
    """

    kind = "skip"


class SinkFailed(MillraceError):
    """A database refused results."""


class RunFailed(MillraceError):
    """A query stopped and did not recover."""


class JobQuarantined(RunFailed):
    """A job was stopped by its own code; those beside it went on."""
