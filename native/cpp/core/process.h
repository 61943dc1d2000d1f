// The process that hosts the interpreters: loads what they share, opens slots.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "../seam/interpreter.h"
#include "pool.h"
#include "shared_storages.h"
#include "snapshots.h"

namespace interpool {

// Where things are; found by Python's side of provisioning.
struct Installation {
  std::string executable;  // sys.executable
  std::string symbol_prefix;
  std::string torch_lib;                 // folder of libtorch_cpu.so
  std::string interposer;                // libinterpool_interpose.so
  std::string slot_library;              // libinterpool_slot.so
  std::string loader;                    // interpool/native/inside/loader.py
  std::vector<std::string> search_path;  // sys.path, for pools that name no other
  std::string notes;                     // folder of notes on imports, or ""
  std::string home = {};                 // of a bundle's Python; "" if the executable leads to it
};

// Makes private copies; takes the host's GIL itself when it is Python.
struct Provisioner {
  std::function<std::vector<std::string>(const std::string& path, int slot)> private_copy;
  std::function<std::string(int slot)> libpython_copy;
  size_t slots = SIZE_MAX;  // for how many interpreters it can make them
};

// One per process, never destroyed. Any thread, no GIL held. `mutex_` guards the slot count, the memos of
// copies, of what was loaded and imported, the list of pools and what is said of leaving. It is never held
// while something is loaded.
class INTERPOOL_PUBLIC Process final : public Services {
 public:
  static Process& get();

  // Loads libtorch and the interposer. The arguments of the first call that succeeds
  // stand, for good: true for that one, false for every later one, which does nothing.
  // Throws InterpreterStartError, and the process is as unprepared as before, but that
  // libraries which were loaded stay so. Any thread: callers wait for one another.
  bool prepare(Installation installation, Provisioner provisioner);
  // The same in a process without a Python: from the file that `interpool prepare`
  // wrote. Throws ProvisioningError. Nothing is done in a process that is prepared.
  void prepare_from(const std::string& file);
  // Throws InterpreterStartError before prepare() has succeeded.
  const Installation& installation() const { return prepared().installation; }

  // Was this process forked off from the one that was prepared? It has none of its threads, and what these
  // had locked stays so.
  bool is_forked() const;

  // How many further interpreters there can be copies for. Throws as installation().
  size_t startable();
  // What an interpreter would be made of that is started now.
  static Origin origin(const std::vector<std::string>& search_path, const std::vector<std::string>& preload);
  // That many interpreters for a pool: those that closed pools give up, then new ones, which are started at
  // the same time. When one fails, its error is thrown, and a later pool gets the others. Each imports
  // `preload` first.
  std::vector<Interpreter*> start(size_t count, const std::vector<std::string>& search_path,
                                  const std::vector<std::string>& preload = {});

  void remember(const std::shared_ptr<Pool>& pool);
  // For the process's end. Closes what is left of the pools, and lets interpreters flush what they hold.
  // Waits for what the provisioner is doing, which needs the host's Python. Sees to it that nothing is torn
  // down under threads that are still at work. In a child that was forked off it does only the last. Nothing
  // when called again.
  void prepare_end();
  std::vector<std::shared_ptr<Pool>> pools();

  // The host program's own Python behind the seam; its GIL is held by the caller.
  Interpreter& host();

  std::vector<std::string> private_copy(const std::string& path, int slot) override;
  void loaded(void* handle) override;
  std::shared_ptr<const Snapshot> open_archive(const std::string& path, uint64_t number) override;
  std::optional<ModuleSource> module_source(const std::string& name, int slot) override;
  std::string import_note() override;
  void keep_import_note(const std::string& note) override;
  std::string notes_folder() override;
  std::optional<std::vector<Placement>> place_storages(const std::string& key,
                                                       const std::vector<Piece>& pieces,
                                                       std::chrono::milliseconds patience) override;
  void forget_storages(const std::string& model) override;
  // The archive's file as it is now.
  std::shared_ptr<const Snapshot> take_archive(const std::string& path);

  using Copies = std::map<std::pair<std::string, int>, std::vector<std::string>>;
  // All private copies so far, by the path that was wanted and the slot.
  Copies copies();

 private:
  Process() = default;
  class Counted;
  // Asks the provisioner; never returns once the process is leaving.
  template <typename Work>
  auto provision(const Work& work);
  // For a later pool: the others of a start that failed.
  void keep(std::vector<Interpreter*> interpreters, const Origin& origin);
  Interpreter* start_one(int slot, const std::vector<std::string>& search_path);

  struct Prepared {
    Installation installation;
    Provisioner provisioner;
    pid_t process;
  };
  const Prepared& prepared() const;
  void end_interpreters();
  bool close_if_idle();
  static void end(int status);

  std::mutex preparing_;  // held while libraries are loaded, and no other lock with it
  std::atomic<const Prepared*> prepared_{nullptr};  // written once, never freed
  std::atomic<bool> left_{false};
  Snapshots snapshots_;
  SharedStorages shared_storages_;
  std::mutex mutex_;
  std::condition_variable provisioned_;
  int provisioning_ = 0;             // questions to the provisioner under way
  int starting_ = 0;                 // calls of start() under way
  bool leaving_ = false;             // for good
  std::condition_variable forever_;  // never notified
  int slots_ = 0;
  Copies copies_;
  std::set<void*> loaded_;
  std::string import_note_;
  std::vector<std::shared_ptr<Pool>> pools_;  // for ever, as their interpreters are
  Interpreter* host_ = nullptr;
};

}  // namespace interpool
