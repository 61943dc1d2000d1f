// What malloc keeps of the memory that models free.
#pragma once

namespace interpool {

// A network asks for its activations in every call, and frees them. glibc maps blocks above a threshold anew
// each time, and gives an arena's end back to the system above another one. Each page of that is a page fault
// in the next call: up to a fifth of a network's CPU time. Both thresholds rise with the largest block that
// was ever freed, up to 32 MiB and twice that. A process that reads its weights from a file frees such blocks
// on the way; a pool maps them, and would stay at 128 KiB.
//
// Any thread, any time. A program that sets its own parameters (mallopt, MALLOC_*_, GLIBC_TUNABLES) has
// turned that off, and keeps what they said; another malloc takes no notice.
void keep_freed_memory();

}  // namespace interpool
