"""Settings: their sources, and the messages of mistakes."""

from pathlib import Path

import pytest
from pydantic import BaseModel, ValidationError

from millrace import config
from millrace.cli.commands.reference import document_settings
from millrace.config import Settings
from millrace.errors import ConfigError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(text: str) -> Path:
    path = Path("millrace.toml")
    path.write_text(text)
    return path


def test_without_a_file_defaults_work_on_one_machine() -> None:
    assert config.load(env={}) == Settings()
    assert (Settings().log.url, Settings().run.on, Settings().run.tick_ms) == (
        "embedded:millrace-data/log",
        "local",
        1000,
    )


def test_the_file_of_this_folder_is_read() -> None:
    write('[log]\nurl = "embedded:elsewhere"\n[run]\njobs = ["a:b"]\nslots = 8')
    loaded = config.load(env={})
    assert (loaded.log.url, loaded.run.jobs, loaded.run.slots) == ("embedded:elsewhere", ("a:b",), 8)


def test_the_environment_wins_over_the_file_and_options_over_both() -> None:
    write('[run]\non = "local"\nname = "file"\ntick = "2s"')
    loaded = config.load(env={"MILLRACE_RUN_ON": "spark", "MILLRACE_RUN_NAME": "environment"}).with_options(
        run_name="option", run_tick=None
    )
    assert (loaded.run.on, loaded.run.name, loaded.run.tick) == ("spark", "option", "2s")


def test_lists_and_tables_are_json_in_the_environment() -> None:
    loaded = config.load(env={"MILLRACE_RUN_JOBS": '["a", "b"]', "MILLRACE_SPARK_CONF": '{"spark.x": 1}'})
    assert (loaded.run.jobs, loaded.spark.conf) == (("a", "b"), {"spark.x": "1"})


def test_spark_settings_pass_through_as_text_that_spark_reads() -> None:
    write('[spark.conf]\n"spark.a" = true\n"spark.b" = 2\n"spark.c" = "x"')
    assert config.load(env={}).spark.conf == {"spark.a": "true", "spark.b": "2", "spark.c": "x"}


def test_a_connector_keeps_its_own_options() -> None:
    write('[ingest.bus]\nconnector = "recording"\nprocessor = "hsl"\npath = "x.jsonl"\nspeed = 10')
    bus = config.load(env={}).ingest["bus"]
    assert (bus.connector, bus.processor, bus.options) == (
        "recording",
        "hsl",
        {"path": "x.jsonl", "speed": 10},
    )


def test_other_variables_of_ours_are_no_settings() -> None:
    assert config.load(env={"MILLRACE_REQUIRE_ALL": "1"}) == Settings()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[run]\non = "flink"',
            "millrace.toml: run.on = 'flink' is not allowed; allowed: 'local' or 'spark'",
        ),
        (
            "[run]\nmax_events_per_batch = 0",
            "millrace.toml: run.max_events_per_batch = 0 is not allowed; allowed: greater than 0",
        ),
        (
            "[run]\nmax_event = 9",
            (
                "millrace.toml: unknown key run.max_event = 9; did you mean max_events_per_batch? [run] "
                "takes name, on, jobs,"
            ),
        ),
        (
            '[run]\ntick = "soon"',
            (
                "millrace.toml: run.tick = 'soon' is not allowed; allowed: duration='soon' is not a "
                "duration; write it like '500ms'"
            ),
        ),
        ('[run]\ntick = "0s"', "must be longer than zero"),
        ('[run]\nname = "a b"', "millrace.toml: run.name = 'a b' is not allowed"),
        (
            "[runn]\nx = 1",
            (
                "unknown key runn = {'x': 1}; did you mean run? the sections are log, kafka, state, run, "
                "spark, serve, ingest"
            ),
        ),
        ("tick = 3", "tick = 3 is outside of any section"),
        (
            '[spark]\ndriver_memory = "lots"',
            "spark.driver_memory = 'lots' is not allowed; allowed: Memory of the driver's JVM",
        ),
        ("[run]\nslots = 1000", "run.slots = 1000 is not allowed; allowed: less than or equal to 128"),
        ("[spark.conf]\nx = [1]", "spark.conf.x = [1] is not allowed; allowed: a valid string"),
        ('[ingest.bus]\nprocessor = "hsl"', "[ingest.bus] has no connector; add connector = ..."),
        ("[run", "millrace.toml: not a valid TOML file"),
    ],
)
def test_a_mistake_names_file_key_value_and_what_is_allowed(text: str, message: str) -> None:
    write(text)
    with pytest.raises(ConfigError) as raised:
        config.load(env={})
    assert message in str(raised.value)


def test_every_mistake_is_told_at_once() -> None:
    write('[run]\non = "flink"\ntick = "soon"')
    with pytest.raises(ConfigError) as raised:
        config.load(env={})
    assert len(str(raised.value).splitlines()) == 2


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (
            {"MILLRACE_RUN_ON": "flink"},
            "environment variable MILLRACE_RUN_ON: run.on = 'flink' is not allowed",
        ),
        (
            {"MILLRACE_LOG_PATH": "x"},
            "environment variable MILLRACE_LOG_PATH: unknown key log.path = 'x'; [log] takes url",
        ),
        (
            {"MILLRACE_RUN_JOBS": "a,b"},
            "environment variable MILLRACE_RUN_JOBS = 'a,b' is not allowed: write a JSON list",
        ),
    ],
)
def test_a_mistake_in_the_environment_names_the_variable(env: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        config.load(env=env)
    assert message in str(raised.value)


def test_a_mistake_in_an_option_names_the_option() -> None:
    with pytest.raises(ConfigError, match=r"option run_tick: run\.tick = 'soon' is not allowed"):
        Settings().with_options(run_tick="soon")
    with pytest.raises(ConfigError, match=r"option logs: unknown"):
        Settings().with_options(logs="x")


def test_a_named_file_must_be_there() -> None:
    with pytest.raises(
        ConfigError, match=r"absent\.toml: the settings file cannot be read \(No such file or directory\)"
    ):
        config.load(Path("absent.toml"))


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Settings().run.on = "spark"  # type: ignore[misc]  # that is what is refused


def test_every_key_is_documented() -> None:
    sections: list[type[BaseModel]] = [*config.SECTIONS.values(), config.IngestSettings]
    for section in sections:
        assert all(field.description for field in section.model_fields.values()), section


def test_the_documented_file_shows_every_key_and_is_valid() -> None:
    text = document_settings()
    commented = write(text)
    assert config.load(commented, env={}) == Settings()
    for section, model in config.SECTIONS.items():
        assert f"[{section}]" in text
        for key in model.model_fields:
            assert f"\n# {key} = " in text or f"\n# [{section}.{key}]" in text


def test_an_option_changes_nothing_but_its_own_setting() -> None:
    write(
        '[run]\nname = "file"\n[kafka.client]\n"sasl.password" = "secret"\n[spark.conf]\n"spark.x" = "1"\n'
        '[ingest.bus]\nconnector = "recording"\npath = "x.jsonl"\n[jobs.vehicle-distribution]\nresolution = 8'
    )
    loaded = config.load(env={})
    changed = loaded.with_options(run_tick="2s")
    assert (changed.run.tick, changed.run.name) == ("2s", "file")
    assert changed.with_options(run_tick=loaded.run.tick) == loaded
    assert changed.kafka.secret_variables() == {"MILLRACE_KAFKA_CLIENT_SASL_PASSWORD": "secret"}
    assert changed.ingest["bus"].options == {"path": "x.jsonl"}
