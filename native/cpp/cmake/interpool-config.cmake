# interpool::interpool, the pool of private interpreters; and interpool::torch, which <interpool/torch.h> needs. The
# latter has headers and libraries of the torch beside it in site-packages, which is the one that interpreters share.
# Unlike find_package(Torch) it asks for no CUDA toolkit if that torch is a CUDA build. A program that compiles
# kernels of its own takes that one.
include("${CMAKE_CURRENT_LIST_DIR}/interpool-targets.cmake")

get_filename_component(interpool_site_packages "${CMAKE_CURRENT_LIST_DIR}/../../../../.." ABSOLUTE)
set(INTERPOOL_TORCH_DIR "${interpool_site_packages}/torch" CACHE PATH "The torch package that interpool::torch is")
if(NOT TARGET interpool::torch AND EXISTS "${INTERPOOL_TORCH_DIR}/lib/libtorch_cpu.so")
  add_library(interpool::torch INTERFACE IMPORTED)
  set_target_properties(interpool::torch PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES
      "${INTERPOOL_TORCH_DIR}/include;${INTERPOOL_TORCH_DIR}/include/torch/csrc/api/include"
    INTERFACE_COMPILE_DEFINITIONS _GLIBCXX_USE_CXX11_ABI=1
    INTERFACE_COMPILE_FEATURES cxx_std_20
    # What a CUDA build's libraries need is found when they are loaded.
    INTERFACE_LINK_OPTIONS LINKER:--allow-shlib-undefined
    INTERFACE_LINK_LIBRARIES "${INTERPOOL_TORCH_DIR}/lib/libtorch_cpu.so;${INTERPOOL_TORCH_DIR}/lib/libc10.so")
endif()
