// SPDX-License-Identifier: Apache-2.0 OR MIT
// Double-precision sine, cosine, logarithm and exponential with the same bits on every machine.
//
// libm's versions differ between library releases, and within one release between CPUs with and
// without fused multiply-add, so they may not decide anything that ends in a population hash.
// These use a fixed sequence of additions, multiplications and divisions only. Square root,
// std::fmod, rounding and comparison are exact or correctly rounded by IEEE 754 and need no
// replacement. Errors measured against 80-bit arithmetic: see math_test.cc.
#pragma once

namespace samara {

// Within 1 ulp while |x| <= 2^20; beyond, x is first reduced modulo the double nearest 2 pi, which
// keeps the result in [-1, 1] and the same everywhere but not accurate. NaN for NaN and infinities.
double Sin(double x);
double Cos(double x);

// Natural logarithm, within 2 ulp, of a finite normal x > 0; NaN for negative and subnormal x,
// -infinity for 0.
double Log(double x);

// e^x, within 1 ulp where the result is normal; 0 and infinity beyond the range, NaN for NaN.
double Exp(double x);

}  // namespace samara
