"""Says how large its batch is, and what the batch's other requests are."""


class Batching:
    def initialize(self, context):
        self.limit = context.system_properties["batch_size"]

    def handle(self, data, context):
        together = sorted(row["body"]["n"] for row in data)
        for index, row in enumerate(data):
            context.set_response_header(index, "x-n", str(row["body"]["n"]))
            if row["body"].get("bad"):
                context.set_response_status(418, "a teapot", index)
        return [{"n": row["body"]["n"], "together": together, "limit": self.limit} for row in data]
