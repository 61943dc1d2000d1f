from models import networks
from models.base_model import BaseModel


class PixModel(BaseModel):
    @staticmethod
    def modify_commandline_options(parser):
        parser.set_defaults(norm="batch")
        parser.add_argument("--lambda_L1", type=float, default=100.0)
        return parser

    def __init__(self, opt):
        super().__init__()
        self.opt = opt
        self.netG = networks.define_generator(opt.ngf, opt.norm)

    def forward(self, image):
        return self.netG(image)

    def set_up_training(self):
        from util.visualizer import Visualizer  # of a repository that is not here

        self.netD = networks.define_discriminator(self.opt.ngf)
        self.visualizer = Visualizer(self.opt)
