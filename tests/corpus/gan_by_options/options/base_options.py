import argparse

import models


class TestOptions:
    def parse(self):
        parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
        parser.add_argument("--model", default="pix")
        parser.add_argument("--ngf", type=int, default=8, help="filters of the generator")
        parser.add_argument("--norm", default="instance", choices=["instance", "batch"])
        chosen, _ = parser.parse_known_args()
        parser = models.get_option_setter(chosen.model)(parser)
        return parser.parse_args()
