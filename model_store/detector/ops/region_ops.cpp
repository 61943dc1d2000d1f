// The detector's operators on regions, for the CPU. What they compute stands in
// project/reference.py as well, in Python.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace {

struct Box {
  float left, top, right, bottom;

  float area() const { return std::max(0.f, right - left) * std::max(0.f, bottom - top); }
};

float overlap(const Box& a, const Box& b) {
  const Box both{std::max(a.left, b.left), std::max(a.top, b.top), std::min(a.right, b.right),
                 std::min(a.bottom, b.bottom)};
  const float shared = both.area();
  const float covered = a.area() + b.area() - shared;
  return covered > 0 ? shared / covered : 0;
}

void check_boxes(const at::Tensor& boxes) {
  TORCH_CHECK(boxes.dim() == 2 && boxes.size(1) == 4, "boxes must be (boxes, 4), not ", boxes.sizes());
  TORCH_CHECK(boxes.scalar_type() == at::kFloat, "boxes must be float32, not ", boxes.scalar_type());
}

// Non-maximum suppression: which boxes, best first, overlap no better one by more than `threshold`.
at::Tensor suppress(const at::Tensor& boxes, const at::Tensor& scores, double threshold) {
  check_boxes(boxes);
  TORCH_CHECK(scores.dim() == 1 && scores.size(0) == boxes.size(0), "scores must be (", boxes.size(0), ",)");
  const at::Tensor order = scores.argsort(/*stable=*/true, /*dim=*/0, /*descending=*/true);
  const at::Tensor plain = boxes.contiguous();
  const auto* box = reinterpret_cast<const Box*>(plain.const_data_ptr<float>());
  const auto* candidate = order.const_data_ptr<int64_t>();
  std::vector<int64_t> kept;
  for (int64_t i = 0; i < order.numel(); ++i) {
    const bool is_best = std::none_of(kept.begin(), kept.end(), [&](int64_t better) {
      return overlap(box[better], box[candidate[i]]) > threshold;
    });
    if (is_best) {
      kept.push_back(candidate[i]);
    }
  }
  at::Tensor made = at::empty({static_cast<int64_t>(kept.size())}, order.options());
  std::copy(kept.begin(), kept.end(), made.mutable_data_ptr<int64_t>());
  return made;
}

// The feature at a point between pixels' centres; 0 beyond one pixel outside.
float bilinear(const float* plane, int64_t height, int64_t width, float y, float x) {
  if (y < -1 || y > height || x < -1 || x > width) {
    return 0;
  }
  y = std::clamp(y, 0.f, static_cast<float>(height - 1));
  x = std::clamp(x, 0.f, static_cast<float>(width - 1));
  const auto top = static_cast<int64_t>(y);
  const auto left = static_cast<int64_t>(x);
  const int64_t bottom = std::min(top + 1, height - 1);
  const int64_t right = std::min(left + 1, width - 1);
  const float down = y - top;
  const float along = x - left;
  const float above = plane[top * width + left] * (1 - along) + plane[top * width + right] * along;
  const float below = plane[bottom * width + left] * (1 - along) + plane[bottom * width + right] * along;
  return above * (1 - down) + below * down;
}

// RoIAlign (He et al., 2017) with two by two points in each of `side` by `side` cells.
at::Tensor align(const at::Tensor& features, const at::Tensor& boxes, double scale, int64_t side) {
  check_boxes(boxes);
  TORCH_CHECK(features.dim() == 3, "features must be (channels, height, width), not ", features.sizes());
  TORCH_CHECK(features.scalar_type() == at::kFloat, "features must be float32, not ", features.scalar_type());
  TORCH_CHECK(side > 0, "side must be positive, not ", side);
  const int64_t channels = features.size(0), height = features.size(1), width = features.size(2);
  const at::Tensor maps = features.contiguous();
  const at::Tensor plain = boxes.contiguous();
  const auto* box = reinterpret_cast<const Box*>(plain.const_data_ptr<float>());
  at::Tensor made = at::empty({boxes.size(0), channels, side, side}, features.options());
  auto* out = made.mutable_data_ptr<float>();
  constexpr int points = 2;
  for (int64_t i = 0; i < boxes.size(0); ++i) {
    const auto s = static_cast<float>(scale);
    const float left = box[i].left * s - .5f, top = box[i].top * s - .5f;
    const float step_x = (box[i].right - box[i].left) * s / static_cast<float>(side * points);
    const float step_y = (box[i].bottom - box[i].top) * s / static_cast<float>(side * points);
    for (int64_t channel = 0; channel < channels; ++channel) {
      const float* plane = maps.const_data_ptr<float>() + channel * height * width;
      for (int64_t cell_y = 0; cell_y < side; ++cell_y) {
        for (int64_t cell_x = 0; cell_x < side; ++cell_x) {
          float sum = 0;
          for (int64_t point_y = 0; point_y < points; ++point_y) {
            for (int64_t point_x = 0; point_x < points; ++point_x) {
              const float y = top + (static_cast<float>(cell_y * points + point_y) + .5f) * step_y;
              const float x = left + (static_cast<float>(cell_x * points + point_x) + .5f) * step_x;
              sum += bilinear(plane, height, width, y, x);
            }
          }
          *out++ = sum / (points * points);
        }
      }
    }
  }
  return made;
}

}  // namespace

TORCH_LIBRARY(region_ops, library) {
  library.def("suppress(Tensor boxes, Tensor scores, float threshold) -> Tensor");
  library.def("align(Tensor features, Tensor boxes, float scale, int side) -> Tensor");
}

TORCH_LIBRARY_IMPL(region_ops, CPU, library) {
  library.impl("suppress", suppress);
  library.impl("align", align);
}
