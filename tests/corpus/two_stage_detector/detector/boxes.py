import torch


def iou(boxes, others):
    top = torch.maximum(boxes[:, None, :2], others[None, :, :2])
    bottom = torch.minimum(boxes[:, None, 2:], others[None, :, 2:])
    common = (bottom - top).clamp(min=0).prod(dim=2)
    areas = [(each[:, 2:] - each[:, :2]).prod(dim=1) for each in (boxes, others)]
    return common / (areas[0][:, None] + areas[1][None, :] - common)


def nms(boxes, scores, threshold):
    order, kept = scores.argsort(descending=True).tolist(), []
    while order:
        best = order.pop(0)
        kept.append(best)
        if order:
            far = iou(boxes[best : best + 1], boxes[order])[0] <= threshold
            order = [each for each, keep in zip(order, far.tolist(), strict=True) if keep]
    return torch.tensor(kept, dtype=torch.int64)
