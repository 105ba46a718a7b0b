"""What the processes that tests start would otherwise load each for itself."""

import pyarrow as pa

from millrace.log.kafka import log

array = pa.array([b""])  # pyarrow looks for pandas when it makes its first
loaded = log
