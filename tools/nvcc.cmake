# Every kernels/*.cu by nvcc for Hopper and Blackwell, warnings as errors; beside each object stands what ptxas said of its
# registers, spills and shared memory, which tests/ptxas.sh holds to limits. NVCC_OBJECTS: the objects.
set(NVCC_FLAGS -std=c++17 -O3 -I${CMAKE_SOURCE_DIR} -gencode arch=compute_90a,code=sm_90a -gencode arch=compute_100a,code=sm_100a
    -Werror all-warnings -Xcompiler=-Wall,-Wextra,-fPIC,-fvisibility=hidden -Xptxas=-v)
set(NVCC_DIR ${CMAKE_BINARY_DIR}/nvcc)
file(MAKE_DIRECTORY ${NVCC_DIR})
foreach(source IN LISTS CU_SOURCES)
    get_filename_component(stem ${source} NAME_WE)
    set(object ${NVCC_DIR}/${stem}.o)
    string(JOIN " " command ${CMAKE_C_COMPILER_LAUNCHER} ${NVCC} ${NVCC_FLAGS} -MD -MF ${stem}.d -c ${source} -o ${object})
    add_custom_command(OUTPUT ${object} COMMAND sh -c "${command} 2>${stem}.ptxas || { cat ${stem}.ptxas >&2; exit 1; }"
        DEPENDS ${source} DEPFILE ${NVCC_DIR}/${stem}.d WORKING_DIRECTORY ${NVCC_DIR} COMMENT "nvcc ${stem}.cu" VERBATIM)
    list(APPEND NVCC_OBJECTS ${object})
endforeach()
add_custom_target(nvcc_objects ALL DEPENDS ${NVCC_OBJECTS})

# The backend's module. What it needs of the executor is the program's own, which lends its symbols.
get_filename_component(NVCC_REAL ${NVCC} REALPATH)
get_filename_component(CUDA_ROOT ${NVCC_REAL}/../.. ABSOLUTE)
find_library(CUDART NAMES cudart_static HINTS ${CUDA_ROOT}/lib64 ${CUDA_ROOT}/lib ${CUDA_ROOT}/targets/x86_64-linux/lib)
if(CUDART)
    enable_language(CXX)
    add_library(moefold_cuda MODULE ${CUDA_SOURCES} ${NVCC_OBJECTS})
    set_source_files_properties(${NVCC_OBJECTS} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
    set_target_properties(moefold_cuda PROPERTIES PREFIX "" C_VISIBILITY_PRESET hidden LINKER_LANGUAGE CXX)
    target_include_directories(moefold_cuda PRIVATE ${CMAKE_SOURCE_DIR})
    target_include_directories(moefold_cuda SYSTEM PRIVATE ${CUDA_ROOT}/include)
    target_link_libraries(moefold_cuda PRIVATE ${CUDART} ${CMAKE_DL_LIBS} rt Threads::Threads)
    set_target_properties(moefold PROPERTIES ENABLE_EXPORTS ON)

    # On a machine with a GPU (tools/gpu_check): the tests of the kernels, on what nvcc made of them, and their times.
    add_custom_target(gpu_programs)
    file(GLOB GPU_TESTS CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/test_cu_*.c)
    foreach(source IN LISTS GPU_TESTS)
        get_filename_component(name ${source} NAME_WE)
        add_executable(gpu_${name} ${source} tests/simt/device_cuda.c ${CUDA_SOURCES} ${NVCC_OBJECTS})
        list(APPEND GPU_PROGRAMS gpu_${name})
    endforeach()
    add_executable(bench_gpu tools/bench/bench_gpu.c ${NVCC_OBJECTS})
    foreach(name IN LISTS GPU_PROGRAMS ITEMS bench_gpu)
        set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/gpu)
        target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
        target_include_directories(${name} SYSTEM PRIVATE ${CUDA_ROOT}/include)
        target_link_libraries(${name} PRIVATE moefold_exec moefold_kernels PkgConfig::CHECK PkgConfig::JANSSON ${CUDART}
            ${CMAKE_DL_LIBS} rt Threads::Threads)
        add_dependencies(gpu_programs ${name})
    endforeach()

    # NCCL is opened when asked for, so its header is enough; not yet a choice of `run`.
    find_path(NCCL_INCLUDE nccl.h HINTS ${CUDA_ROOT}/include)
    if(NCCL_INCLUDE)
        add_executable(nccl_one tools/bench/nccl_one.c exec/comm_nccl.c)
        set_target_properties(nccl_one PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/gpu)
        target_include_directories(nccl_one PRIVATE ${CMAKE_SOURCE_DIR})
        target_include_directories(nccl_one SYSTEM PRIVATE ${CUDA_ROOT}/include ${NCCL_INCLUDE})
        target_link_libraries(nccl_one PRIVATE moefold_base ${CUDART} ${CMAKE_DL_LIBS} rt Threads::Threads)
        add_dependencies(gpu_programs nccl_one)
    endif()
endif()
