"""Answers in pieces."""

from ts.handler_utils.utils import send_intermediate_predict_response


def handle(data, context):
    if data is None:
        return None
    count = data[0]["body"]["pieces"]
    for index in range(count):
        pieces = [f"piece {index} of {row['body']['name']}\n" for row in data]
        send_intermediate_predict_response(pieces, context.request_ids, "Intermediate", 200, context)
    if data[0]["body"].get("fail"):
        raise ValueError("in the middle")
    return [f"end of {row['body']['name']}\n" for row in data]
