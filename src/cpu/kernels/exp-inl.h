// exp.h in vectors, for the instruction set that is being compiled (Highway's foreach_target).
#if defined(REDLITE_CPU_KERNELS_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REDLITE_CPU_KERNELS_EXP_INL_H_
#undef REDLITE_CPU_KERNELS_EXP_INL_H_
#else
#define REDLITE_CPU_KERNELS_EXP_INL_H_
#endif

#include <hwy/highway.h>

#include "cpu/kernels/exp.h"

HWY_BEFORE_NAMESPACE();
namespace redlite::cpu::HWY_NAMESPACE {

using redlite::cpu::exp;  // of a float

/// The bits of exp(float), without its care for NaN.
template <typename D>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> exp(D d, hwy::HWY_NAMESPACE::Vec<D> x) {
  namespace hn = hwy::HWY_NAMESPACE;
  using C = ExpConstants;
  const hn::Rebind<int32_t, D> di;
  x = hn::Min(hn::Max(x, hn::Set(d, C::kMin)), hn::Set(d, C::kMax));
  const auto round = hn::Set(d, C::kRound);
  const auto shifted = hn::Add(hn::Mul(x, hn::Set(d, C::kLog2E)), round);
  const auto n = hn::Sub(hn::BitCast(di, shifted), hn::BitCast(di, round));
  const auto nf = hn::Sub(shifted, round);
  auto r = hn::NegMulAdd(nf, hn::Set(d, C::kLn2High), x);
  r = hn::NegMulAdd(nf, hn::Set(d, C::kLn2Low), r);
  auto p = hn::Set(d, C::kPolynomial[0]);
  for (int i = 1; i < 8; ++i) p = hn::MulAdd(p, r, hn::Set(d, C::kPolynomial[i]));
  const auto half = hn::ShiftRight<1>(n);
  const auto bias = hn::Set(di, 127);
  const auto a = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(half, bias)));
  const auto b = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::Sub(n, half), bias)));
  return hn::Mul(hn::Mul(p, a), b);
}

}  // namespace redlite::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // REDLITE_CPU_KERNELS_EXP_INL_H_
