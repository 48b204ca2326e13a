/* Launches a kernel that is wrong on purpose (or its right twin). */
#ifndef TESTS_SIMT_FAULTS_H
#define TESTS_SIMT_FAULTS_H
#include "models/base/err.h"
#ifdef __cplusplus
extern "C" {
#endif
enum fault { FAULT_NO_BARRIER, FAULT_NONE, FAULT_HALF_BARRIER, FAULT_HALF_WARP, FAULT_MIXED_WARP, FAULT_STALE, FAULT_EARLY_COPY };
enum err faults_run(int *out, enum fault which, int blocks, int threads, int shared_B);
#ifdef __cplusplus
}
#endif
#endif
