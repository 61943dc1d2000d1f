// The process's one PyInterpreter, as the installed interposer provides it: synthetic interpreters
// stand behind it, real tensors before it.
#include <c10/core/impl/PyInterpreterHooks.h>
#include <gtest/gtest.h>

#include <deque>
#include <mutex>

#include "interpose/interpreters.h"
#include "synthetic_torch_python.h"
#include "threads.h"

namespace interpool::testing {
namespace {

using c10::impl::PyInterpreter;

constexpr int kCount = 4;  // interpreters 1 to 4, and 5, which has not imported torch

thread_local InterpreterId entered = kNone;

// Decrefs that were put off, as a main thread's queue keeps them.
struct Later {
  std::mutex mutex;
  std::deque<PyObject*> queue;

  void push(PyObject* object) {
    const std::lock_guard lock(mutex);
    queue.push_back(object);
  }
  size_t run() {
    const std::lock_guard lock(mutex);
    for (PyObject* object : queue) --Object::of(object).references;
    const size_t count = queue.size();
    queue.clear();
    return count;
  }
};

struct World {
  Types types[kCount + 2];
  TorchPython torch[kCount + 1];
  PyInterpreter* interpreters[kCount + 1] = {};
  Later later[kCount + 2];
};

World& world() {
  static auto* const made = new World;
  return *made;
}

template <InterpreterId id>
void announce() {
  Route route;
  route.id = id;
  route.type_type = &world().types[id].type;
  route.holds_gil = [] { return false; };
  route.knows_thread = [] { return false; };
  route.defer_decref = [](PyObject* object) { world().later[id].push(object); };
  add_route(route);
}

template <InterpreterId id>
void start() {
  announce<id>();
  // What a real decref does first: take this interpreter's GIL.
  world().torch[id].may_take_gil = [] { return entered == kNone || entered == id; };
  world().interpreters[id] = new PyInterpreter(&world().torch[id]);
  adopt_torch(id, world().interpreters[id], nullptr);
}

void enter(InterpreterId id) {
  entered = id;
  enter_interpreter(id);
}

const c10::impl::PyInterpreterVTable& router() {
  return **c10::impl::getGlobalPyInterpreter();
}

class RouterTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    install_router();
    install_router();
    start<1>();
    start<2>();
    start<3>();
    start<4>();
    announce<5>();
  }
  ~RouterTest() override {
    enter(kNone);
    for (int id = 1; id <= kCount; ++id) {
      EXPECT_EQ(world().later[id].run(), 0U) << "left behind for interpreter " << id;
      EXPECT_EQ(world().torch[id].refused, 0) << "a decref took a second GIL";
      EXPECT_EQ(references(id), 1);
    }
  }

  static PyObject* object(int id) { return world().types[id].object.as_python(); }
  static intptr_t references(int id) { return world().types[id].object.references; }
};

TEST_F(RouterTest, IsWhatC10Finds) {
  EXPECT_EQ(router().name(), "interpool");
  for (int id = 1; id <= kCount; ++id) {
    EXPECT_EQ(world().interpreters[id]->vtable_, &router())
        << "interpreter " << id << " goes past the router";
  }
}

TEST_F(RouterTest, TriesOnlyWhatIsAlive) {
  c10::impl::PyObjectSlot slot;
  EXPECT_FALSE(router().try_incref(slot));
  slot.store_pyobj(object(1));
  EXPECT_TRUE(router().try_incref(slot));
  EXPECT_EQ(references(1), 2);
  router().decref(object(1));
  world().types[1].object.references = 0;
  EXPECT_FALSE(router().try_incref(slot));
  world().types[1].object.references = 1;
}

TEST_F(RouterTest, LeavesAloneWhatNoInterpreterOwns) {
  Types stranger;
  for (PyObject* object :
       {stranger.object.as_python(), world().types[5].object.as_python(), static_cast<PyObject*>(nullptr)}) {
    router().incref(object);
    router().decref(object);
    EXPECT_EQ(router().refcnt(object), 0U);
  }
  EXPECT_EQ(stranger.object.references, 1);
  EXPECT_EQ(world().types[5].object.references, 1);
}

TEST_F(RouterTest, AsksTheTensorsOwnerOnEachThread) {
  auto tensor = c10::make_intrusive<c10::TensorImpl>(c10::DispatchKeySet(c10::DispatchKey::Meta),
                                                     c10::scalarTypeToTypeMeta(c10::kFloat), c10::kMeta);
  tensor->pyobj_slot()->store_pyobj(object(2));
  enter(1);
  const int before = world().torch[2].asked;
  EXPECT_EQ(router().dim(tensor.get()), 3);
  EXPECT_EQ(router().numel(tensor.get()), 60);
  EXPECT_EQ(world().torch[2].asked, before + 2);
  EXPECT_EQ(world().torch[1].asked, 0);
  tensor->pyobj_slot()->clear();
}

TEST_F(RouterTest, AsksTheThreadsInterpreterIfThereIsNoObject) {
  const auto tensor = c10::make_intrusive<c10::TensorImpl>(
      c10::DispatchKeySet(c10::DispatchKey::Meta), c10::scalarTypeToTypeMeta(c10::kFloat), c10::kMeta);
  enter(4);
  const int before = world().torch[4].asked;
  router().trace_gpu_device_synchronization(c10::kCUDA);
  EXPECT_EQ(router().dim(tensor.get()), 3);
  EXPECT_EQ(world().torch[4].asked, before + 2);
}

TEST_F(RouterTest, SaysWhatIsWrongOnAThreadOfNoInterpreter) {
  for (const InterpreterId here : {kNone, 5}) {
    enter(here);
    try {
      router().trace_gpu_device_synchronization(c10::kCUDA);
      FAIL() << "an interpreter answered";
    } catch (const c10::Error& error) {
      EXPECT_NE(std::string(error.what()).find("a thread that belongs to no interpreter"), std::string::npos);
    }
  }
}

TEST_F(RouterTest, CallsBackOnlyTheInterpreterThatLeftTheCallback) {
  const int before = world().torch[3].asked;
  enter(1);
  router().reportErrorCallback(object(3), c10::DispatchKey::CPU);
  EXPECT_EQ(world().torch[3].asked, before);
  enter(3);
  router().reportErrorCallback(object(3), c10::DispatchKey::CPU);
  EXPECT_EQ(world().torch[3].asked, before + 1);
}

TEST_F(RouterTest, AdoptsAnAnnouncedInterpreterOnce) {
  const auto* vtable = world().interpreters[1]->vtable_;
  adopt_torch(1, world().interpreters[1], nullptr);
  EXPECT_EQ(world().interpreters[1]->vtable_, vtable);
  router().incref(object(1));  // would go round in circles, were the router its own route
  router().decref(object(1));
  PyInterpreter other(&world().torch[1]);
  EXPECT_THROW(adopt_torch(99, &other, nullptr), c10::Error);
}

// The real thing: a tensor with a Python face dies wherever its last user is.
TEST_F(RouterTest, ReleasesATensorsPythonFaceByItsOwner) {
  for (const InterpreterId here : {kNone, 1, 2}) {
    const auto die = [here] {
      auto tensor = c10::make_intrusive<c10::TensorImpl>(c10::DispatchKeySet(c10::DispatchKey::Meta),
                                                         c10::scalarTypeToTypeMeta(c10::kFloat), c10::kMeta);
      tensor->pyobj_slot()->store_pyobj(object(2));
      tensor->pyobj_slot()->incref();
      enter(here);
      tensor->pyobj_slot()->decref();
      tensor->pyobj_slot()->clear();
    };
    std::thread(die).join();
    EXPECT_EQ(world().later[2].run(), here == 1 ? 1U : 0U);
    EXPECT_EQ(references(2), 1);
  }
}

TEST_F(RouterTest, KeepsEveryReferenceAmongThreadsThatReleaseEachOthers) {
  constexpr int kThreads = 8;
  constexpr int kRounds = 2000;
  const uint64_t seed = random_seed();
  together(kThreads, [&](int me) {
    Chance chance(seed + static_cast<uint64_t>(me));
    const InterpreterId own = me % 5;  // some are in none
    enter(own == 0 ? kNone : own);
    for (int i = 0; i < kRounds; ++i) {
      const auto id = static_cast<int>(chance.number(1, kCount));
      router().incref(object(id));
      router().decref(object(id));
      if (own != 0 && i % 16 == 0) world().later[own].run();
    }
    enter(kNone);
  });
  for (int id = 1; id <= kCount; ++id) {
    world().later[id].run();
    EXPECT_EQ(references(id), 1);
  }
}

}  // namespace
}  // namespace interpool::testing
