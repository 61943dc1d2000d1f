# interpool::interpool, the pool of private interpreters. torch, which <interpool/torch.h>
# needs, is found by find_package(Torch) as usual.
include("${CMAKE_CURRENT_LIST_DIR}/interpool-targets.cmake")
