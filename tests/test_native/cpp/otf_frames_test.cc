// Where a message of TorchServe's protocol ends, however it arrives.
#include "core/otf_frames.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <interpool/errors.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/resource.h>

#include <csignal>
#include <vector>

#include "otf.h"
#include "sockets.h"

namespace interpool::testing {
namespace {

// What a reader makes of `bytes`, followed by the end of the stream.
struct Read {
  std::vector<std::string> frames;
  std::string error;  // empty: it ended between messages
};

Read read_all(const std::string& bytes) {
  SocketPair pair;
  std::thread writer([&] {
    pair.write(bytes);
    pair.hang_up();
  });
  Read read;
  FrameReader reader(pair.theirs());
  try {
    while (const auto frame = reader.next()) read.frames.emplace_back(*frame);
  } catch (const Error& error) {
    read.error = error.what();
    ::close(pair.give_away());  // the writer may have more to say
  }
  writer.join();
  return read;
}

TEST(Frames, StayWhereTheyAreAsLongAsTheirMemoryIsHeld) {
  SocketPair pair;
  FrameReader reader(pair.theirs());
  const std::string sent[] = {otf::predict("1", "first"), otf::predict("2", "other"),
                              otf::predict("3", "third")};
  pair.write(sent[0] + sent[1].substr(0, 10));
  const std::string_view first = reader.next().value();
  std::shared_ptr<const void> memory = reader.memory();
  pair.write(sent[1].substr(10) + sent[2]);
  const std::string_view other = reader.next().value();
  EXPECT_EQ(first, sent[0]);
  EXPECT_EQ(other, sent[1]);
  memory.reset();
  EXPECT_EQ(reader.next().value(), sent[2]);
}

TEST(Frames, NameTheirRequests) {
  SocketPair pair;
  FrameReader reader(pair.theirs());
  const std::string one = otf::predict("first", "body");
  // A batch of two: the second one, without its command, follows the first one without its end.
  const std::string batch = one.substr(0, one.size() - 4) + otf::predict("", "x").substr(1);
  pair.write(batch + otf::load("m") + one);
  ASSERT_EQ(reader.next(), batch);
  EXPECT_EQ(reader.request_ids(), (std::vector<std::string_view>{"first", ""}));
  ASSERT_TRUE(reader.next().has_value());
  EXPECT_TRUE(reader.request_ids().empty());
  ASSERT_EQ(reader.next(), one);
  EXPECT_EQ(reader.request_ids(), std::vector<std::string_view>{"first"});
}

TEST(Frames, AreTheSameHoweverTheyAreCutUp) {
  const uint64_t seed = random_seed();
  for (uint64_t round = 0; round < 60; ++round) {
    Chance chance(seed + round);
    std::vector<std::string> sent(static_cast<size_t>(chance.number(1, 12)));
    std::string stream;
    for (std::string& message : sent) {
      message = otf::random_message(chance);
      stream += message;
    }
    SocketPair pair;
    std::thread writer([&] {
      pair.write_in_pieces(stream, chance);
      pair.hang_up();
    });
    FrameReader reader(pair.theirs());
    for (const std::string& message : sent) {
      ASSERT_EQ(reader.next(), message) << "round " << round;
    }
    EXPECT_EQ(reader.next(), std::nullopt);
    writer.join();
  }
}

TEST(Frames, CutShortAnywhereAreAnError) {
  const std::string message = otf::predict("id", "body");
  EXPECT_EQ(read_all("").error, "");
  for (size_t length = 1; length < message.size(); ++length) {
    const Read read = read_all(otf::load("m") + message.substr(0, length));
    EXPECT_EQ(read.frames.size(), 1U);
    EXPECT_EQ(read.error, "the connection ended inside a message") << "after " << length << " bytes";
  }
}

TEST(Frames, MadeOfNoiseNeverYieldWhatWasNotSent) {
  const uint64_t seed = random_seed();
  for (uint64_t round = 0; round < 300; ++round) {
    Chance chance(seed + round);
    // A message with some bytes changed: most of it makes sense.
    std::string noise = otf::random_message(chance);
    for (int64_t changes = chance.number(1, 4); changes > 0; --changes) {
      noise[static_cast<size_t>(chance.number(0, static_cast<int64_t>(noise.size()) - 1))] =
          static_cast<char>(chance.number(-128, 127));
    }
    std::string got;
    for (const std::string& frame : read_all(noise).frames) got += frame;
    ASSERT_EQ(got, noise.substr(0, got.size())) << "round " << round;
  }
}

TEST(Frames, LargerThanTheLimitAreRefusedByNumber) {
  const std::string message = otf::predict("1", "body");
  SocketPair pair;
  FrameReader reader(pair.theirs(), message.size());
  pair.write(message + message + otf::predict("1", "bodies"));
  EXPECT_EQ(reader.next(), message);
  EXPECT_EQ(reader.next(), message);  // of each message anew
  try {
    reader.next();
    FAIL() << "it was read";
  } catch (const Error& error) {
    const std::string size = std::to_string(message.size());
    EXPECT_NE(std::string(error.what()).find("at most " + size + " are taken"), std::string::npos)
        << error.what();
  }
}

TEST(Frames, ArePatientlyReadFromADescriptorThatDoesNotBlock) {
  SocketPair pair;
  ASSERT_EQ(::fcntl(pair.theirs(), F_SETFL, O_NONBLOCK), 0);
  FrameReader reader(pair.theirs());
  const std::string message = otf::predict("1", "body");
  std::thread writer([&] {
    for (const size_t half : {size_t{0}, message.size() / 2}) {
      std::this_thread::sleep_for(50ms);
      pair.write(message.substr(half, half == 0 ? message.size() / 2 : message.npos));
    }
    std::this_thread::sleep_for(50ms);
    pair.hang_up();
  });
  EXPECT_EQ(reader.next(), message);
  EXPECT_EQ(reader.next(), std::nullopt);
  writer.join();
}

TEST(Frames, DoNotCostTheMemoryThatALengthPromises) {
  const auto peak_kib = [] {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
  };
  const auto before = peak_kib();
  for (int i = 0; i < 8; ++i) {
    EXPECT_NE(read_all("L" + otf::integer(0x7fffffff) + "short").error, "");
  }
  EXPECT_LT(peak_kib() - before, 200 * 1024);
}

TEST(Frames, ThatWereLargeAreNotKeptInMemory) {
  const auto mapped = [] { return ::mallinfo2().hblkhd; };  // blocks that are mapped for themselves
  SocketPair pair;
  FrameReader reader(pair.theirs());
  const std::string large = otf::predict("1", std::string(64 << 20, 'x'));
  const size_t before = mapped();
  std::thread writer([&] { pair.write(large); });
  ASSERT_TRUE(reader.next() == large);
  writer.join();
  const std::string small = otf::predict("2", "y");
  pair.write(small);
  ASSERT_EQ(reader.next(), small);
  EXPECT_LT(mapped(), before + (size_t{32} << 20));
}

TEST(Frames, SurviveSignals) {
  // A handler without SA_RESTART: a blocked recv() returns EINTR.
  struct sigaction action{};
  struct sigaction before{};
  action.sa_handler = [](int) {};
  ASSERT_EQ(::sigaction(SIGUSR1, &action, &before), 0);
  SocketPair pair;
  std::string frame;
  std::atomic<bool> begun{false};
  std::atomic<bool> done{false};
  const std::string message = otf::predict("id", std::string(100, 'x'));
  std::thread reader([&] {
    FrameReader frames(pair.theirs());
    begun = true;
    frame = frames.next().value_or("");
    done = true;
  });
  ASSERT_TRUE(eventually([&] { return begun.load(); }));
  for (const char byte : message) {
    ::pthread_kill(reader.native_handle(), SIGUSR1);
    std::this_thread::sleep_for(100us);
    pair.write(std::string(1, byte));
  }
  reader.join();
  EXPECT_TRUE(done);
  EXPECT_EQ(frame, message);
  ::sigaction(SIGUSR1, &before, nullptr);
}

TEST(SendAll, WritesAllToADescriptorThatDoesNotBlock) {
  SocketPair pair;
  ASSERT_EQ(::fcntl(pair.theirs(), F_SETFL, O_NONBLOCK), 0);
  Chance chance(1);
  const std::string bytes = chance.bytes(8 << 20);
  std::thread writer([&] { EXPECT_TRUE(send_all(pair.theirs(), bytes)); });
  std::this_thread::sleep_for(50ms);
  EXPECT_TRUE(pair.read(bytes.size()) == bytes);
  writer.join();
}

TEST(SendAll, SaysWhenThePeerIsGoneAndRaisesNoSignal) {
  SocketPair pair;
  pair.hang_up();
  EXPECT_FALSE(send_all(pair.theirs(), "anything"));  // SIGPIPE would end this program
  EXPECT_TRUE(send_all(pair.theirs(), ""));
}

}  // namespace
}  // namespace interpool::testing
