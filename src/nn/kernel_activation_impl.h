// SPDX-License-Identifier: Apache-2.0 OR MIT
// Activations, once for each instruction set (kernel_impl.h) and for devices (nn/device/). The
// including file defines, in samara::kernel's unnamed namespace: Vec, Broadcast, Fma, Add, Mul,
// Div, Min, Max as kernel_impl.h describes them, and how functions are declared
// (SAMARA_KERNEL_INLINE, SAMARA_KERNEL_APART).
#pragma once

#include "nn/kernel_ops.h"

namespace samara::kernel {
namespace {

// tanh(x) = x P(x^2) / Q(x^2) on |x| <= 9.02, where tanh rounds to 1 beyond; a minimax fit of the
// relative error (2.1e-8 before rounding, at most 4.6 ulp after it).
SAMARA_KERNEL_INLINE Vec Tanh(Vec x) {
  constexpr float kP[] = {1.0f, 0.13379716873168945f, 0.0034940324258059263f,
                          2.0583445802913047e-05f, 1.3319017888591134e-08f};
  constexpr float kQ[] = {1.0f, 0.46713030338287354f, 0.025871066376566887f,
                          0.00032830893178470433f, 7.761997835586953e-07f};
  // the bound comes first, so that NaN passes
  const Vec bounded = Max(Broadcast(-9.02f), Min(Broadcast(9.02f), x));
  const Vec z = Mul(bounded, bounded);
  Vec p = Broadcast(kP[4]), q = Broadcast(kQ[4]);
  for (int i = 3; i >= 0; --i) {
    p = Fma(p, z, Broadcast(kP[i]));
    q = Fma(q, z, Broadcast(kQ[i]));
  }
  const Vec y = Div(Mul(bounded, p), q);
  return Max(Broadcast(-1.0f), Min(Broadcast(1.0f), y));
}

// 1 / (1 + e^-x), within 1.8e-7 of it.
SAMARA_KERNEL_INLINE Vec Sigmoid(Vec x) {
  const Vec half = Broadcast(0.5f);
  return Fma(half, Tanh(Mul(half, x)), half);
}

// e^x - 1 = 2 t / (1 - t) with t = tanh(x / 2), for x <= 0, where nothing cancels.
SAMARA_KERNEL_INLINE Vec ExpMinusOne(Vec x) {
  const Vec t = Tanh(Mul(Broadcast(0.5f), x));
  return Div(Add(t, t), Fma(Broadcast(-1.0f), t, Broadcast(1.0f)));
}

// The activations that few networks have, apart from the others' loops.
SAMARA_KERNEL_APART Vec RareActivation(Vec x, Act activation) {
  // NaN passes all of them
  const Vec above = Max(Broadcast(0.0f), x), below = Min(Broadcast(0.0f), x);
  switch (activation) {
    case Act::kSigmoid:
      return Sigmoid(x);
    case Act::kElu:
      return Add(above, ExpMinusOne(below));
    case Act::kSelu:
      return Fma(Broadcast(1.0507009873554805f), above,
                 Mul(Broadcast(1.0507009873554805f * 1.6732632423543772f), ExpMinusOne(below)));
    case Act::kSilu:
      return Mul(x, Sigmoid(x));
    case Act::kLrelu:
      return Fma(Broadcast(0.01f), below, above);
    case Act::kLrelu0p2:
      return Fma(Broadcast(0.2f), below, above);
    case Act::kGelu: {  // x (1 + tanh u) / 2, u = sqrt(2 / pi) (x + 0.044715 x^3)
      const Vec u = Mul(x, Fma(Broadcast(0.7978845608028654f * 0.044715f), Mul(x, x),
                               Broadcast(0.7978845608028654f)));
      return Mul(x, Sigmoid(Add(u, u)));
    }
    case Act::kNone:
    case Act::kRelu:
    case Act::kTanh:
      break;
  }
  return x;
}

SAMARA_KERNEL_INLINE Vec Activate(Vec x, Act activation) {
  if (activation == Act::kRelu) {
    x = Max(Broadcast(0.0f), x);  // NaN passes
  } else if (activation == Act::kTanh) {
    x = Tanh(x);
  } else if (activation != Act::kNone) {
    x = RareActivation(x, activation);
  }
  return Add(x, Broadcast(0.0f));
}

}  // namespace
}  // namespace samara::kernel
