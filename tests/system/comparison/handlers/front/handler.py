"""One handler that is served by a stock worker, as an ordinary archive in the pool, and packed."""

import os
import time

from ts.handler_utils.utils import send_intermediate_predict_response


class Front:
    def initialize(self, context):
        self.name = context.model_name
        self.batch_size = context.system_properties["batch_size"]

    def handle(self, data, context):
        wishes = [row.get("body") or row.get("data") for row in data]
        first = wishes[0] if isinstance(wishes[0], dict) else {}
        for index in range(first.get("pieces", 0)):
            pieces = [f"piece {index} "] * len(data)
            send_intermediate_predict_response(pieces, context.request_ids, "", 200, context)
        if "started" in first:
            with open(first["started"], "w"):
                pass
        while "until" in first and not os.path.exists(first["until"]):
            time.sleep(0.01)
        if "raise" in first:
            raise ValueError(first["raise"])
        context.set_response_header(0, "x-model", self.name)
        return [self.answer(wish) for wish in wishes]

    def answer(self, wish):
        if isinstance(wish, (bytes, bytearray)):
            return f"{self.name} read {bytes(wish).decode()}"
        return {"model": self.name, "batch size": self.batch_size, "wish": wish}
