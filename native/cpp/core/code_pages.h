// Pages of private copies that are the same in all of them, held once.
#pragma once

namespace interpool {

// `handle`: a library's, from dlopen. If it is a slot's copy, maps the template's file over those of its
// pages that no code writes to and that are the same there. They hold code, constants and unwinding tables.
// So all interpreters, of any process, share them. Addresses, symbols and the loader's list of libraries stay
// as they were, as the template has the same sections.
//
// If a page cannot be shared, the copy keeps its own, at the cost of its memory. Any thread, also while other
// threads run the library's code; holds no lock but the kernel's.
void share_code_pages(void* handle) noexcept;

}  // namespace interpool
