// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "core/resources.h"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <system_error>

namespace samara::resources_test {
namespace {

Status Of(const std::exception& error) { return StatusOf(error); }
Status OfTorch(const std::string& text) { return StatusOf(std::runtime_error(text)); }

TEST(StatusOfTest, MemoryAndThreadsThatAreRefusedSayWhatToLower) {
  for (const Status& status :
       {Of(std::bad_alloc()), Of(std::system_error(EAGAIN, std::generic_category(), "thread")),
        OfTorch("[enforce fail at alloc_cpu.cpp:1] DefaultCPUAllocator: can't allocate memory: you "
                "tried to allocate 8 bytes\nframe #0")}) {
    EXPECT_EQ(status.code(), Code::kNoResources) << status.message();
    EXPECT_NE(status.message().find("fleet.threads"), std::string::npos);
  }
}

// As torch writes them: its own memory, the driver's, that of cuBLAS and cuDNN.
TEST(StatusOfTest, AGpuWithoutMemoryIsUnavailableInOneLine) {
  for (const char* text :
       {"CUDA out of memory. Tried to allocate 2.00 GiB.\nException raised from malloc",
        "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED"}) {
    const Status status = OfTorch(text);
    EXPECT_EQ(status.code(), Code::kUnavailable) << status.message();
    EXPECT_NE(status.message().find("or choose run.device=cpu"), std::string::npos);
    EXPECT_EQ(status.message().find('\n'), std::string::npos);
  }
}

TEST(StatusOfTest, OursKeepTheirCodesAndOthersAreInternal) {
  EXPECT_EQ(Of(Error(Status(Code::kBadData, "damaged"))).code(), Code::kBadData);
  const Status other = OfTorch("mat1 and mat2 shapes cannot be multiplied\nframe #0");
  EXPECT_EQ(other.code(), Code::kInternal);
  EXPECT_EQ(other.message(), "internal error: mat1 and mat2 shapes cannot be multiplied");
}

}  // namespace
}  // namespace samara::resources_test
