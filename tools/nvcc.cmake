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
