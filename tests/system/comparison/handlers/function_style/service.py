"""A function as the entry point: called with no data to be initialized."""

import json
import logging

logger = logging.getLogger(__name__)
STATE = {}


def handle(data, context):
    if data is None:
        with open("labels.txt") as labels:
            STATE["labels"] = labels.read().split()
        logger.info("initialized with %s", STATE["labels"])
        return None
    return [json.dumps({"labels": STATE["labels"], "got": row["body"]}, sort_keys=True) for row in data]
