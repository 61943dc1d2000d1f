import torch


class SmallNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.features = torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 7, stride=8), torch.nn.BatchNorm2d(4), torch.nn.ReLU(inplace=True)
        )
        self.classifier = torch.nn.Linear(4, 6)

    def forward(self, images):
        return self.classifier(self.features(images).mean(dim=(2, 3)))
