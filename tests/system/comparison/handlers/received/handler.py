"""Answers with what it was given: each field's type and content, and the headers that a front end adds."""

ADDED = ("explain", "url_path", "x-asked")


def _shown(value):
    if isinstance(value, (bytes, bytearray)):
        return {"bytes": bytes(value).decode("latin-1")}
    return {type(value).__name__: value}


class Handler:
    def initialize(self, context):
        self.context = context

    def handle(self, data, context):
        return [self.answer(row, index, context) for index, row in enumerate(data)]

    def answer(self, row, index, context):
        headers = {name: context.get_request_header(index, name) for name in ADDED}
        types = {name: context.get_request_header(index, name) for name in row}
        return {
            "fields": {name: _shown(value) for name, value in row.items()},
            "headers": headers,
            "types": types,
        }
