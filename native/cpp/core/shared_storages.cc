#include "shared_storages.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace interpool {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kAlignment = 64;           // what torch's own allocator gives
constexpr size_t kLarge = size_t{2} << 20;  // from here on, pages of its own
constexpr size_t kWrite = size_t{64} << 20;

size_t rounded(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

[[noreturn]] void refuse(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

// By write, not through a mapping: if there is no memory, a write fails, but a store is a signal.
void write_all(int fd, const char* data, size_t bytes, size_t offset) {
  while (bytes > 0) {
    const ssize_t count = ::pwrite(fd, data, std::min(bytes, kWrite), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count <= 0) {
      refuse("the weights cannot be copied into memory that interpreters share");
    }
    data += count;
    bytes -= static_cast<size_t>(count);
    offset += static_cast<size_t>(count);
  }
}

std::shared_ptr<const SharedPart> make_part(const std::vector<Piece>& pieces,
                                            const std::vector<size_t>& which,
                                            std::vector<Placement>& placements) {
  const int fd = ::memfd_create("interpool-weights", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) {
    refuse("a file in memory cannot be made");
  }
  const auto part = std::make_shared<SharedPart>(fd);
  size_t end = 0;
  for (const size_t i : which) {
    const Piece& piece = pieces[i];
    const size_t offset = rounded(end, piece.content.bytes >= kLarge ? kPage : kAlignment);
    end = offset + piece.content.bytes;
    part->offsets[piece.content].push_back(offset);
    placements[i].offset = offset;
  }
  part->bytes = rounded(end, kPage);
  if (::ftruncate(fd, static_cast<off_t>(part->bytes)) != 0) {
    refuse("a file in memory cannot be made large enough");
  }
  for (const size_t i : which) {
    write_all(fd, static_cast<const char*>(pieces[i].data), pieces[i].content.bytes, placements[i].offset);
  }
  // It is mapped copy-on-write, which seals allow. Without them it would work as well.
  static_cast<void>(::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL));
  for (const size_t i : which) {
    placements[i].part = part;
  }
  return part;
}

}  // namespace

// A group that no other caller places in, from begin() on.
class SharedStorages::Turn {
 public:
  Turn(SharedStorages& owner, std::shared_ptr<Group> group) : owner_(owner), group_(std::move(group)) {}
  ~Turn() {
    {
      const std::lock_guard lock(owner_.mutex_);
      group_->busy = false;
      if (made_) {
        group_->parts.emplace_back(made_);
      }
    }
    owner_.changed_.notify_all();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  void add(std::shared_ptr<const SharedPart> part) { made_ = std::move(part); }

 private:
  SharedStorages& owner_;
  const std::shared_ptr<Group> group_;
  std::shared_ptr<const SharedPart> made_;
};

std::optional<std::vector<Placement>> SharedStorages::place(const std::string& key,
                                                            const std::vector<Piece>& pieces,
                                                            std::chrono::milliseconds patience) {
  std::vector<Placement> placements(pieces.size());
  std::shared_ptr<Group> group;
  std::vector<std::shared_ptr<const SharedPart>> parts;
  {
    std::unique_lock lock(mutex_);
    auto& known = groups_[key];
    if (!known) {
      known = std::make_shared<Group>();
    }
    group = known;
    if (!changed_.wait_for(lock, patience, [&] { return !group->busy; })) {
      return std::nullopt;
    }
    if (pieces.empty()) {
      return placements;
    }
    purge();
    for (const auto& part : group->parts) {
      if (auto alive = part.lock()) {
        parts.push_back(std::move(alive));
      }
    }
    group->busy = true;
  }
  Turn turn(*this, group);

  // Each place once: two storages of one interpreter must not become one.
  std::map<std::pair<const SharedPart*, Content>, size_t> used;
  std::vector<size_t> missing;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Content& content = pieces[i].content;
    for (const auto& part : parts) {
      const auto found = part->offsets.find(content);
      if (found == part->offsets.end()) {
        continue;
      }
      size_t& next = used[{part.get(), content}];
      if (next < found->second.size()) {
        placements[i] = {part, found->second[next++]};
        break;
      }
    }
    if (!placements[i].part) {
      missing.push_back(i);
    }
  }
  if (!missing.empty()) {
    turn.add(make_part(pieces, missing, placements));
  }
  return placements;
}

void SharedStorages::forget(const std::string& model) {
  const std::lock_guard lock(mutex_);
  std::erase_if(groups_, [&](const auto& item) {
    const std::string& key = item.first;
    return !model.empty() && (key == model || key.starts_with(model + "/") || key.starts_with(model + "#"));
  });
  purge();
}

void SharedStorages::purge() {
  std::erase_if(groups_, [](const auto& item) {
    const std::shared_ptr<Group>& group = item.second;
    std::erase_if(group->parts, [](const auto& part) { return part.expired(); });
    return group->parts.empty() && group.use_count() == 1;  // no caller places in it, or waits to
  });
}

}  // namespace interpool
