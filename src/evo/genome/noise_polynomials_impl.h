// SPDX-License-Identifier: Apache-2.0 OR MIT
// The polynomials of the normal noise, for vectors (noise_kernel_impl.h) and for devices
// (noise_element_impl.h). The including file defines SAMARA_NOISE_INLINE and an Arithmetic with the
// type F and Add and Mul, each rounded once.
// Compiled with instruction-set flags: no standard library code here.
#pragma once

namespace samara {
namespace {

template <typename Arithmetic>
struct NoisePolynomials {
  using F = typename Arithmetic::F;
  // x * y + z, rounded twice.
  template <typename Y, typename Z>
  SAMARA_NOISE_INLINE static F MulAdd(F x, Y y, Z z) {
    return Arithmetic::Add(Arithmetic::Mul(x, y), z);
  }

  // -2 ln(2^e (1 + f)), 1 + f in [sqrt(1/2), sqrt(2)): -2 ln(1 + f) = -2 f + f^2 + f^3 Q(f). Q:
  // minimax for the relative error of the sum (2^-27.9), fitted in float64, rounded to float32.
  SAMARA_NOISE_INLINE static F MinusTwoLog(F e, F f) {
    // Estrin's order: four short chains instead of a long one
    const F f2 = Arithmetic::Mul(f, f), f4 = Arithmetic::Mul(f2, f2);
    const F q01 = MulAdd(f, 0x1.0002b4p-1f, -0x1.55551ep-1f);
    const F q23 = MulAdd(f, 0x1.545e06p-2f, -0x1.99b43ap-2f);
    const F q45 = MulAdd(f, 0x1.0d2fb6p-2f, -0x1.219ab6p-2f);
    const F q67 = MulAdd(f, 0x1.483950p-3f, -0x1.0bee42p-2f);
    const F q = MulAdd(MulAdd(q67, f2, q45), f4, MulAdd(q23, f2, q01));
    // smallest terms first; 2 ln 2 = 0x1.62e430p0
    const F sum = Arithmetic::Add(MulAdd(Arithmetic::Mul(f2, f), q, f2), -Arithmetic::Add(f, f));
    return Arithmetic::Add(sum, -Arithmetic::Mul(e, 0x1.62e430p0f));
  }

  // Sine and cosine of (pi/2) t, |t| <= 1/2, of t and t^2: minimax polynomials (relative errors
  // 2^-28.2 and 2^-33.9), fitted and rounded like Q above.
  SAMARA_NOISE_INLINE static F Sine(F t, F t2) {
    const F inner = MulAdd(MulAdd(t2, -0x1.2d930ap-8f, 0x1.465e92p-4f), t2, -0x1.4abbbap-1f);
    return Arithmetic::Mul(t, MulAdd(inner, t2, 0x1.921fb6p0f));
  }
  SAMARA_NOISE_INLINE static F Cosine(F t2) {
    const F inner = MulAdd(MulAdd(t2, 0x1.d9d57ep-11f, -0x1.55c5e0p-6f), t2, 0x1.03c1dep-2f);
    return MulAdd(MulAdd(inner, t2, -0x1.3bd3ccp0f), t2, 1.0f);
  }
};

}  // namespace
}  // namespace samara
