"""Says things in every way there is, and measures them."""

import logging
import sys
import threading
import time
import warnings

from ts.metrics.metric_type_enum import MetricTypes

logger = logging.getLogger(__name__)
print("printed while it is imported")


class Talkative:
    def initialize(self, context):
        logger.info("initialize %s", context.model_name)
        logger.debug("this is not shown")
        print("no newline", end="")
        print(" until here", file=sys.stdout, flush=True)
        context.metrics.add_counter("Initialized", 1)
        self.custom = context.metrics.add_metric_to_cache(
            metric_name="Custom",
            unit="ms",
            dimension_names=["ModelName", "Kind"],
            metric_type=MetricTypes.HISTOGRAM,
        )

    def handle(self, data, context):
        words = data[0]["body"]
        self.say(words, context)
        if "measure" in words:
            self.measure(words["measure"], context)
        if "raise" in words:
            raise ValueError(words["raise"])
        return [len(str(words))] * len(data)

    def say(self, words, context):
        for level in words.get("levels", []):
            logging.getLogger("of.its.own").log(level, "level %s", level)
        for word in words.get("print", []):
            print(word)
        for word in words.get("stderr", []):
            print(word, file=sys.stderr)
        if "write" in words:
            sys.stdout.write(words["write"])
            sys.stdout.flush()
        for word in words.get("warn", []):
            warnings.warn(word, UserWarning, stacklevel=1)
        if "thread" in words:
            thread = threading.Thread(target=logger.info, args=("from a thread: %s", words["thread"]))
            thread.start()
            thread.join()
        if "exception" in words:
            try:
                raise KeyError(words["exception"])
            except KeyError:
                logger.exception("caught")

    def measure(self, number, context):
        metrics = context.metrics
        metrics.add_counter("Counted", number)
        metrics.add_counter("Counted", number, 0)
        metrics.add_time("Took", number * 1.5)
        metrics.add_time("TookSeconds", number, unit="s")
        metrics.add_size("Size", number, None, "GB")
        metrics.add_percent("Share", number)
        metrics.add_error("Failed", number)
        metrics.add_metric("Any", number, "ms", 0)
        metrics.get_metric("HandlerTime", MetricTypes.GAUGE).add_or_update(number, ["m", "Level"])
        self.custom.add_or_update(number, [context.model_name, "kind"])
        time.sleep(0)
