"""Settings that are passed through to librdkafka and Spark: dotted keys, text values, hidden secrets."""

import re

from millrace.values.secrets import Secret, is_secret

VARIABLE_PREFIX = "MILLRACE_KAFKA_CLIENT_"
"""Environment variables that begin with this hold one client setting of Kafka each."""


def to_setting_text(value: object) -> object:
    """A boolean or number as text: `true`, not `True`. Other types are refused later."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def flatten_client_settings(settings: object) -> object:
    """Flattens dotted keys, which TOML parses as nested tables, and hides secrets."""
    if not isinstance(settings, dict):
        return settings
    flat: dict[str, object] = {}
    for key, value in settings.items():
        if isinstance(value, dict):
            nested = flatten_client_settings(value)
            assert isinstance(nested, dict)
            flat |= {f"{key}.{name}": nested_value for name, nested_value in nested.items()}
        else:
            flat[key] = to_setting_text(value)
    return {
        key: Secret(_variable_of_key(key), value) if is_secret(key) and isinstance(value, str) else value
        for key, value in flat.items()
    }


def merge_client_settings(earlier: object, later: object) -> object:
    """The client settings of two sources together; the later one wins."""
    earlier, later = flatten_client_settings(earlier), flatten_client_settings(later)
    return {**earlier, **later} if isinstance(earlier, dict) and isinstance(later, dict) else later


def key_of_variable(name: str) -> str:
    """`sasl.password` for MILLRACE_KAFKA_CLIENT_SASL_PASSWORD."""
    return name.removeprefix(VARIABLE_PREFIX).lower().replace("_", ".")


def _variable_of_key(key: str) -> str:
    return VARIABLE_PREFIX + re.sub(r"\W", "_", key).upper()
