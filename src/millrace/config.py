"""`millrace.toml`, environment and options → frozen settings.

A later source wins: defaults, then `millrace.toml`, then `MILLRACE_<SECTION>_<KEY>` in the environment (`MILLRACE_LOG_URL`), then
what a caller or the command line says. Relative paths are relative to the working folder.
"""

import difflib
import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from millrace import durations
from millrace.errors import ConfigError
from millrace.values.local_paths import explain_refusal
from millrace.values.secrets import Secret, is_secret

DEFAULT_FILE = Path("millrace.toml")
"""Where settings are looked for when no file is named."""


def _check_duration(text: str) -> str:
    durations.parse_positive(text, name="duration")
    return text


def _to_spark_text(value: object) -> object:
    """Spark's settings are text: `true`, not `True`; other types than TOML's simple ones stay, to be refused."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


_CLIENT_VARIABLE_PREFIX = "MILLRACE_KAFKA_CLIENT_"


def _flatten_client_settings(settings: object) -> object:
    """Dotted keys, which TOML takes as tables in tables, made flat; secrets hidden. What is not a table stays, to be refused."""
    if not isinstance(settings, dict):
        return settings
    flat: dict[str, object] = {}
    for key, value in settings.items():
        if isinstance(value, dict):
            nested = _flatten_client_settings(value)
            assert isinstance(nested, dict)
            flat |= {f"{key}.{name}": nested_value for name, nested_value in nested.items()}
        else:
            flat[key] = _to_spark_text(value)
    return {
        key: Secret(_client_variable(key), value) if is_secret(key) and isinstance(value, str) else value
        for key, value in flat.items()
    }


def _client_variable(key: str) -> str:
    return _CLIENT_VARIABLE_PREFIX + re.sub(r"\W", "_", key).upper()


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
        description="Where the log is: embedded:FOLDER (one machine, nothing to install), or kafka://HOST:PORT[,HOST:PORT...][/PREFIX], where all topics begin with PREFIX.",
    )


class KafkaSettings(_Section):
    """[kafka]: only for a log on Kafka."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    wait: Annotated[str, AfterValidator(_check_duration)] = Field(
        "2m",
        description="How long to wait for brokers that do not answer, at the start and later, before giving up.",
    )
    replicas: int | None = Field(
        None,
        gt=0,
        description="How many brokers hold each topic that is made. Default: what the brokers are set to.",
    )
    client: Annotated[dict[str, str | Secret], BeforeValidator(_flatten_client_settings)] = Field(
        default_factory=dict,
        description="Settings of librdkafka, passed through as they are, such as security.protocol, ssl.ca.location, sasl.mechanism, sasl.username. Passwords are never shown, logged or stored; they are best given as MILLRACE_KAFKA_CLIENT_SASL_PASSWORD.",
    )

    @property
    def wait_ms(self) -> int:
        """The same in whole milliseconds."""
        return durations.parse_millis(self.wait)

    def secret_variables(self) -> dict[str, str]:
        """Environment variables that a process needs which is given these settings: pickled, they hold no secrets."""
        return {value.variable: value.reveal() for value in self.client.values() if isinstance(value, Secret)}


class StateSettings(_Section):
    """[state]: what jobs remember from one batch to the next."""

    dir: Annotated[Path, BeforeValidator(_check_local_path)] = Field(
        Path("millrace-data/state"),
        description="Folder of state and checkpoints, on this machine or mounted; one run at a time may hold it.",
    )


class RunSettings(_Section):
    """[run]: how jobs run."""

    name: str = Field(
        "millrace",
        pattern=r"^[A-Za-z0-9._-]+$",
        description="Name of this run; part of the identity of its state and of its place in the log.",
    )
    on: Literal["local", "spark"] = Field(
        "local", description="The runner: local (one process, no Java) or spark."
    )
    jobs: tuple[str, ...] = Field(
        (),
        description="Jobs that `millrace run` takes when none is named: module:attribute, file.py:attribute or a built-in name.",
    )
    max_events_per_batch: int = Field(
        400_000,
        gt=0,
        description="The most events a batch takes; more mean more throughput, fewer mean less latency.",
    )
    tick: Annotated[str, AfterValidator(_check_duration)] = Field(
        "1s",
        description="A batch comes at least this often while anything waits for the clock, though no event arrives.",
    )

    max_ahead: Annotated[str, AfterValidator(_check_duration)] = Field(
        "10m",
        description="A partition whose watermark is further than this ahead of one that still has events waiting is not read until that one has caught up: what it brings would only be kept.",
    )

    slots: int | None = Field(
        None,
        gt=0,
        le=128,
        description="Into how many parts keys are divided; left out, a state folder keeps what it has. 1: all that is keyed runs in one task, which gives the shortest batches as long as one core can follow. Default: 1 on the local runner; on Spark 1 where there are no more than two cores and keys change on the way, else 2 x spark.partitions.",
    )
    on_data_loss: Literal["fail", "earliest", "latest"] = Field(
        "fail",
        description="What to do where the log no longer has what comes next, because it was removed or the topic was made anew: fail, go on with the earliest event there is, or with the latest, that is with what comes from now on.",
    )

    @property
    def max_ahead_ms(self) -> int:
        """The same in whole milliseconds."""
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
        description="Spark's shuffle partitions; left out, a state folder keeps what it has. Default: the number of cores, but no more than slots.",
    )
    driver_memory: str = Field(
        "2g",
        pattern=r"^\d+[kmgKMG]$",
        description="Memory of the driver's JVM: a number and a unit, such as 512m or 2g.",
    )
    read_ahead: bool = Field(
        True,
        description="While a batch is worked on and enough events wait for another, read that one already, in processes of its own that step back behind all others. Only with a local master: on a cluster the next batch may be read elsewhere.",
    )
    standby: bool = Field(
        False,
        description="Keep a second session of Spark ready, which takes over when the one at work dies: results go on within seconds, for the memory of another JVM.",
    )
    conf: dict[str, Annotated[str, BeforeValidator(_to_spark_text)]] = Field(
        default_factory=dict,
        description="Any further Spark settings, passed through as they are; they win over those that millrace sets.",
    )


class ServeSettings(_Section):
    """[serve]: the web server of the live map."""

    host: str = Field(
        "127.0.0.1", min_length=1, description="Where to listen; 0.0.0.0 is reachable from other machines."
    )
    port: int = Field(8080, ge=0, le=65535, description="The port to listen at; 0: any that is free.")
    views: tuple[str, ...] = Field(
        ("millrace.transit.views:VIEWS",),
        description="What is shown: views, or lists of them, as module:attribute or file.py:attribute.",
    )


class IngestSettings(BaseModel):
    """[ingest.NAME]: one connector and its processor; all other keys are the connector's own."""

    model_config = ConfigDict(frozen=True, extra="allow")

    connector: str = Field(
        min_length=1, description="What reaches the outside world, such as mqtt, recording or files."
    )
    processor: str | None = Field(
        None,
        min_length=1,
        description="What turns raw messages into events, such as hsl; files, stdin and simulator need none.",
    )
    copies: int = Field(
        1,
        ge=1,
        le=1000,
        description="Every event this many times, as if by other vehicles: more volume from what there is.",
    )
    spread: Annotated[str, AfterValidator(_check_duration)] = Field(
        "1m", description="How far copies are apart in time at most, so that they do not move in step."
    )

    @property
    def options(self) -> dict[str, Any]:
        """The connector's own keys, which the connector checks."""
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
        """The same settings but for some, named `section_key` as in the environment: `changed(log_url="...")`. None changes nothing."""
        overrides = [
            (*name.partition("_")[::2], value, f"option {name}")
            for name, value in options.items()
            if value is not None
        ]
        current: list[_SettingEntry] = [
            (section, key, value, "settings")
            for section, keys in self.model_dump().items()
            for key, value in keys.items()
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
"""A section, a key, a value, and its source."""


def load(path: Path | None = None, *, env: Mapping[str, str] | None = None) -> Settings:
    """Settings from `path` (by default `millrace.toml`, if it is there) and the environment."""
    if path is None and not DEFAULT_FILE.exists():
        return _validate_entries(list(_read_environment(os.environ if env is None else env)))
    return _validate_entries(
        [*_read_file(path or DEFAULT_FILE), *_read_environment(os.environ if env is None else env)]
    )


def document() -> str:
    """A `millrace.toml` that says nothing new: every key, its meaning and its default, commented out."""
    parts = [
        "# Every key of millrace.toml, with its default. Environment variables MILLRACE_<SECTION>_<KEY> win over this file."
    ]
    for section, model in SECTIONS.items():
        parts.append(f"\n# {model.__doc__.partition(': ')[2] if model.__doc__ else ''}\n[{section}]")
        parts += [_document_key(section, key, field) for key, field in model.model_fields.items()]
    parts.append(
        "\n# One section for each source of events; other keys are the connector's own.\n# [ingest.NAME]"
    )
    parts += [f"# {key} = ...  # {field.description}" for key, field in IngestSettings.model_fields.items()]
    parts.append(
        '\n# Parameters of a job that is made by a function, under the name by which it is run: a built-in one, or "jobs.py:made".\n'
        "# [jobs.vehicle-distribution]\n"
        "# resolution = 9       # of H3 cells\n"
        '# window = "30s"\n'
        '# every = "5s"\n'
        '# watermark = "1s"     # or "percentile(0.99)"\n'
        '# lateness = "1m"\n'
        '# early = "1s"         # results before a window is complete, as often; left out: none'
    )
    return "\n".join(parts) + "\n"


def _document_key(section: str, key: str, field: FieldInfo) -> str:
    default = field.get_default(call_default_factory=True)
    if isinstance(default, dict):
        return f"# {field.description}\n# [{section}.{key}]"
    default_text = (
        "..." if default is None else json.dumps(str(default) if isinstance(default, Path) else default)
    )
    return f"# {field.description}\n# {key} = {default_text}"


def _read_file(path: Path) -> Iterator[_SettingEntry]:
    try:
        sections = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"{path}: the settings file cannot be read ({error.strerror}); name another with --config"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not a valid TOML file: {error}") from error
    for section, keys in sections.items():
        if not isinstance(keys, dict):
            raise ConfigError(
                f"{path}: {section} = {keys!r} stands outside any section; allowed sections are {_list_keys(Settings)}"
            )
        for key, value in keys.items():
            yield section, key, value, str(path)


def _read_environment(env: Mapping[str, str]) -> Iterator[_SettingEntry]:
    for name, text in sorted(env.items()):
        if name.startswith(_CLIENT_VARIABLE_PREFIX):
            yield (
                "kafka",
                "client",
                {name.removeprefix(_CLIENT_VARIABLE_PREFIX).lower().replace("_", "."): text},
                f"environment variable {name}",
            )
            continue
        section, _, key = name.removeprefix("MILLRACE_").lower().partition("_")
        if name.startswith("MILLRACE_") and section in SECTIONS:
            field = SECTIONS[section].model_fields.get(key)
            yield section, key, _parse_variable(text, field, name), f"environment variable {name}"


def _parse_variable(text: str, field: FieldInfo | None, name: str) -> object:
    """Lists and tables are written as JSON in the environment."""
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
            _merge_client_settings(keys.get(key), value) if (section, key) == ("kafka", "client") else value
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


def _merge_client_settings(earlier: object, later: object) -> object:
    """Client settings from several places are taken together."""
    earlier, later = _flatten_client_settings(earlier), _flatten_client_settings(later)
    return {**earlier, **later} if isinstance(earlier, dict) and isinstance(later, dict) else later


def _explain(
    location: tuple[str, ...], kind: str, message: str, value: object, sources: dict[tuple[str, ...], str]
) -> str:
    """One line: source, key, value, and what is allowed."""
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
