"""As TorchServe's DLRM example: numpy in between."""

import logging

import numpy as np
import torch
from ts.torch_handler.base_handler import BaseHandler

logger = logging.getLogger(__name__)


class DLRMHandler(BaseHandler):
    def preprocess(self, data):
        rows = [row.get("data") or row.get("body") for row in data]
        dense = torch.tensor(np.array([row["float_features"] for row in rows]), dtype=torch.float32)
        ids, offsets = [], []
        for place in range(3):
            lengths = [len(row["id"][place]) for row in rows]
            ids.append(torch.tensor([one for row in rows for one in row["id"][place]]))
            offsets.append(torch.tensor(np.cumsum([0, *lengths[:-1]])))
        return dense, ids, offsets

    def inference(self, data, *args, **kwargs):
        with torch.no_grad():
            return self.model(*data)

    def postprocess(self, data):
        logger.info("scored %d", len(data))
        return [{"score": score} for score in data.view(-1).tolist()]
