"""`millrace.toml`, environment and options → frozen settings.

A later source wins: defaults, then `millrace.toml`, then environment variables `MILLRACE_<SECTION>_<KEY>`
(`MILLRACE_LOG_URL`), then options of a caller or the command line. Each value is kept with its source until
all are validated, so that an error names the file, variable or option at fault. Relative paths are relative
to the working folder.
"""

import difflib
import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from millrace import durations
from millrace.errors import ConfigError
from millrace.values.client_settings import (
    VARIABLE_PREFIX,
    flatten_client_settings,
    key_of_variable,
    merge_client_settings,
    to_setting_text,
)
from millrace.values.local_paths import explain_refusal
from millrace.values.secrets import Secret, is_secret

DEFAULT_FILE = Path("millrace.toml")
"""The settings file that is read if none is named and it exists."""


def _check_duration(text: str) -> str:
    durations.parse_positive(text, name="duration")
    return text


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def _check_local_path(value: object) -> object:
    if isinstance(value, str | Path) and (reason := explain_refusal(value, "the state folder")):
        raise ValueError(reason)
    return value


class LogSettings(_Section):
    """[log]: the durable log between ingestion, jobs and views."""

    url: str = Field(
        "embedded:millrace-data/log",
        min_length=1,
        description=(
            "The log: embedded:FOLDER (one machine, nothing to install), or "
            "kafka://HOST:PORT[,HOST:PORT...][/PREFIX], where the names of all topics begin with PREFIX."
        ),
    )


class KafkaSettings(_Section):
    """[kafka]: only for a log on Kafka."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    wait: Annotated[str, AfterValidator(_check_duration)] = Field(
        "2m",
        description=(
            "How long to wait for brokers that do not answer, at the start and later, before the run fails."
        ),
    )
    replicas: int | None = Field(
        None,
        gt=0,
        description=(
            "The number of replicas of each topic that is created. Default: the setting of the brokers."
        ),
    )
    client: Annotated[dict[str, str | Secret], BeforeValidator(flatten_client_settings)] = Field(
        default_factory=dict,
        description=(
            "Settings of librdkafka, such as security.protocol, ssl.ca.location, sasl.mechanism, "
            "sasl.username. Passwords are never shown, logged or stored; set them as "
            "MILLRACE_KAFKA_CLIENT_SASL_PASSWORD."
        ),
    )

    @property
    def wait_ms(self) -> int:
        """The duration in whole milliseconds."""
        return durations.parse_millis(self.wait)

    def secret_variables(self) -> dict[str, str]:
        """The environment variables with secrets, for child processes: pickled settings hold no secrets."""
        return {value.variable: value.reveal() for value in self.client.values() if isinstance(value, Secret)}


class StateSettings(_Section):
    """[state]: the state of jobs between batches."""

    dir: Annotated[Path, BeforeValidator(_check_local_path)] = Field(
        Path("millrace-data/state"),
        description=(
            "The folder of state and checkpoints, local or mounted. Only one run at a time may use it."
        ),
    )


class RunSettings(_Section):
    """[run]: how jobs run."""

    name: str = Field(
        "millrace",
        pattern=r"^[A-Za-z0-9._-]+$",
        description="The name of this run, of letters, digits, '.', '_' and '-'. It identifies the run's "
        "state, and its position in the log.",
    )
    on: Literal["local", "spark"] = Field(
        "local", description="The runner: local (one process, no Java) or spark."
    )
    jobs: tuple[str, ...] = Field(
        (),
        description=(
            "The jobs of `millrace run` if none is named: module:attribute, file.py:attribute or a built-in "
            "name."
        ),
    )
    max_events_per_batch: int = Field(
        400_000,
        gt=0,
        description=(
            "The most events of a batch. A greater number means more throughput, a smaller one less latency."
        ),
    )
    tick: Annotated[str, AfterValidator(_check_duration)] = Field(
        "1s",
        description=(
            "The longest time between batches while a trigger, timer or idle timeout waits for the clock."
        ),
    )

    max_ahead: Annotated[str, AfterValidator(_check_duration)] = Field(
        "10m",
        description=(
            "A partition whose watermark is further than this ahead of a partition with waiting events is "
            "not read until the other has caught up: its events would only be buffered."
        ),
    )

    slots: int | None = Field(
        None,
        gt=0,
        le=128,
        description=(
            "The number of parts into which keys are divided. 1: all keyed work runs in one task, which "
            "gives the shortest batches while one core keeps up. An existing state folder keeps its number. "
            "Default: 1 on the local runner; on Spark 1 with at most two cores and jobs that change keys, "
            "otherwise 2 x spark.partitions."
        ),
    )
    on_data_loss: Literal["fail", "earliest", "latest"] = Field(
        "fail",
        description=(
            "What to do if the log no longer has the next events, because retention removed them or the "
            "topic was created again: fail, or go on with the earliest event, or with the latest, which "
            "skips to new events."
        ),
    )

    @property
    def max_ahead_ms(self) -> int:
        """The duration in whole milliseconds."""
        return durations.parse_millis(self.max_ahead)

    @property
    def tick_ms(self) -> int:
        """The tick in whole milliseconds."""
        return durations.parse_millis(self.tick)


class SparkSettings(_Section):
    """[spark]: only for run.on = "spark"."""

    master: str = Field(
        "local[*]",
        min_length=1,
        description="Spark's master: local[*], local[N], spark://HOST:PORT or k8s://...",
    )
    partitions: int | None = Field(
        None,
        gt=0,
        description=(
            "Spark's shuffle partitions; an existing state folder keeps its number. Default: the number of "
            "cores, but at most run.slots."
        ),
    )
    driver_memory: str = Field(
        "2g",
        pattern=r"^\d+[kmgKMG]$",
        description="Memory of the driver's JVM: a number and a unit, such as 512m or 2g.",
    )
    read_ahead: bool = Field(
        True,
        description=(
            "Read the next batch during the current one, if enough events wait, in background processes at "
            "idle priority. Only with a local master: on a cluster another machine may read the next batch."
        ),
    )
    standby: bool = Field(
        False,
        description=(
            "Keep a second Spark session ready, which takes over within seconds if the first one dies. It "
            "takes the memory of another JVM."
        ),
    )
    conf: dict[str, Annotated[str, BeforeValidator(to_setting_text)]] = Field(
        default_factory=dict,
        description="Further settings of Spark; they override those that millrace sets.",
    )


class ServeSettings(_Section):
    """[serve]: the web server of the live map."""

    host: str = Field(
        "127.0.0.1",
        min_length=1,
        description="The address to listen at; 0.0.0.0 is reachable from other machines.",
    )
    port: int = Field(8080, ge=0, le=65535, description="The port to listen at; 0: any free one.")
    views: tuple[str, ...] = Field(
        ("millrace.transit.views:VIEWS",),
        description="The views to show, or lists of them: module:attribute or file.py:attribute.",
    )


class IngestSettings(BaseModel):
    """[ingest.NAME]: one connector and its processor; all other keys are options of the connector."""

    model_config = ConfigDict(frozen=True, extra="allow")

    connector: str = Field(
        min_length=1,
        description="The connector: mqtt, recording, files, stdin, simulator, or of an installed package.",
    )
    processor: str | None = Field(
        None,
        min_length=1,
        description=(
            "The processor that turns messages into events, such as hsl. files, stdin and simulator need "
            "none."
        ),
    )
    copies: int = Field(
        1,
        ge=1,
        le=1000,
        description="Write each event this many times, as if other vehicles had sent it.",
    )
    spread: Annotated[str, AfterValidator(_check_duration)] = Field(
        "1m", description="The greatest time between copies of an event, so that they do not move in step."
    )

    @property
    def options(self) -> dict[str, Any]:
        """The options of the connector, which checks them itself."""
        return dict(self.model_extra or {})


class Settings(_Section):
    """Everything that can be set, with defaults that work on one machine."""

    log: LogSettings = LogSettings()
    kafka: KafkaSettings = KafkaSettings()
    state: StateSettings = StateSettings()
    run: RunSettings = RunSettings()
    spark: SparkSettings = SparkSettings()
    serve: ServeSettings = ServeSettings()
    ingest: dict[str, IngestSettings] = Field(default_factory=dict)
    jobs: dict[str, dict[str, Any]] = Field(default_factory=dict)

    def with_options(self, **options: object) -> "Settings":
        """The settings with some changed, named `section_key`: `with_options(log_url="...")`. None changes
        nothing.
        """
        overrides = [
            (*name.partition("_")[::2], value, f"option {name}")
            for name, value in options.items()
            if value is not None
        ]
        # Not model_dump(): pydantic's serializer turns a Ctrl-C into an error of its own.
        current: list[_SettingEntry] = [
            (section, key, value, "settings")
            for section, keys in self
            for key, value in (keys.items() if isinstance(keys, dict) else keys)
        ]
        return _validate_entries([*current, *overrides])


SECTIONS: dict[str, type[_Section]] = {
    "log": LogSettings,
    "kafka": KafkaSettings,
    "state": StateSettings,
    "run": RunSettings,
    "spark": SparkSettings,
    "serve": ServeSettings,
}

_SettingEntry = tuple[str, str, object, str]
"""A section, a key, a value, and its source for error messages."""


def load(path: Path | None = None, *, env: Mapping[str, str] | None = None) -> Settings:
    """Settings from `path` (by default `millrace.toml`, if it is there) and the environment."""
    if path is None and not DEFAULT_FILE.exists():
        return _validate_entries(list(_read_environment(os.environ if env is None else env)))
    return _validate_entries(
        [*_read_file(path or DEFAULT_FILE), *_read_environment(os.environ if env is None else env)]
    )


def _read_file(path: Path) -> Iterator[_SettingEntry]:
    try:
        sections = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"{path}: the settings file cannot be read ({error.strerror}); name another with --config"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not a valid TOML file ({error}); correct it") from error
    for section, keys in sections.items():
        if not isinstance(keys, dict):
            raise ConfigError(
                f"{path}: {section} = {keys!r} is outside of any section; the sections are "
                f"{_list_keys(Settings)}"
            )
        for key, value in keys.items():
            yield section, key, value, str(path)


def _read_environment(env: Mapping[str, str]) -> Iterator[_SettingEntry]:
    for name, text in sorted(env.items()):
        if name.startswith(VARIABLE_PREFIX):
            yield "kafka", "client", {key_of_variable(name): text}, f"environment variable {name}"
            continue
        section, _, key = name.removeprefix("MILLRACE_").lower().partition("_")
        if name.startswith("MILLRACE_") and section in SECTIONS:
            field = SECTIONS[section].model_fields.get(key)
            yield section, key, _parse_variable(text, field, name), f"environment variable {name}"


def _parse_variable(text: str, field: FieldInfo | None, name: str) -> object:
    """The text, or for lists and tables the JSON in it."""
    if field is None or get_origin(field.annotation) not in (tuple, dict):
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(
            f"environment variable {name} = {text!r} is not allowed: write a JSON list or object ({error})"
        ) from error


def _validate_entries(entries: list[_SettingEntry]) -> Settings:
    values: dict[str, dict[str, object]] = {}
    sources: dict[tuple[str, ...], str] = {}
    for section, key, value, source in entries:
        keys = values.setdefault(section, {})
        keys[key] = (
            merge_client_settings(keys.get(key), value) if (section, key) == ("kafka", "client") else value
        )
        sources[section,] = sources[section, key] = source
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        lines = [
            _explain(tuple(map(str, e["loc"])), e["type"], e["msg"], e["input"], sources)
            for e in error.errors()
        ]
        raise ConfigError("\n".join(lines)) from None


def _explain(
    location: tuple[str, ...], kind: str, message: str, value: object, sources: dict[tuple[str, ...], str]
) -> str:
    """One line with the source, the key, the value, and what is allowed."""
    source = sources.get(location[:2]) or sources.get(location[:1], "settings")
    if any(map(is_secret, location)):
        value = Secret("")
    if kind == "extra_forbidden":
        model = SECTIONS[location[0]] if len(location) > 1 else Settings
        close = difflib.get_close_matches(location[-1], model.model_fields, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        what_exists = f"[{location[0]}] takes" if len(location) > 1 else "the sections are"
        return (
            f"{source}: unknown key {'.'.join(location)} = {value!r}; {hint}{what_exists} {_list_keys(model)}"
        )
    if kind == "missing":
        return f"{source}: [{'.'.join(location[:-1])}] has no {location[-1]}; add {location[-1]} = ..."
    if kind.startswith("string_pattern"):
        message = (_find_description(location) or message).rstrip(".")
    allowed = message.removeprefix("Value error, ").removeprefix("Input should be ")
    return f"{source}: {'.'.join(location)} = {value!r} is not allowed; allowed: {allowed}"


def _find_description(location: tuple[str, ...]) -> str | None:
    return (
        SECTIONS[location[0]].model_fields[location[1]].description
        if len(location) > 1 and location[0] in SECTIONS
        else None
    )


def _list_keys(model: type[BaseModel]) -> str:
    return ", ".join(model.model_fields)
