// What libinterpool.so exports.
#pragma once

#define INTERPOOL_PUBLIC __attribute__((visibility("default")))
