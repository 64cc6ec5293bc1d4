// Nests: tensors in any nesting of tuples, pairs, vectors, arrays, ordered maps, optionals and
// plain structs. Collectives take and return them; what differs between replicas in structure is
// found, since the structure is part of the fingerprint (there is no dictionary whose order
// varies).
//
//   struct Batch { torch::Tensor image, label; };   // a nest as it is: no macro, no registration
//
// Packed returns the leaves of a nest with its structure, for ranks that do not know it.
//
// A plain struct is an aggregate of at most 12 members, all of them nests.
#pragma once

#include <torch/torch.h>

#include <array>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace samara {

// Flatten appends the leaves in order; Describe appends the structure, leaves as '*'; Unflatten
// makes a nest of the structure of `like` from the leaves, taking them from `next`. Pack appends
// sizes and keys too, as tensors, and Unpack makes the nest from these alone.
template <typename T>
struct Nest;

using Leaves = std::vector<torch::Tensor>;

template <typename T>
Leaves Flatten(const T& nest) {
  Leaves leaves;
  Nest<T>::Flatten(nest, leaves);
  return leaves;
}
template <typename T>
T Unflatten(const T& like, const Leaves& leaves) {
  auto next = leaves.begin();
  return Nest<T>::Unflatten(like, next);
}
template <typename T>
std::string Structure(const T& nest) {
  std::string text;
  Nest<T>::Describe(nest, text);
  return text;
}
template <typename T>
Leaves Packed(const T& nest) {
  Leaves leaves;
  Nest<T>::Pack(nest, leaves);
  return leaves;
}
template <typename T>
T Unpacked(const Leaves& leaves) {
  auto next = leaves.begin();
  return Nest<T>::Unpack(next);
}

namespace nest_internal {

inline torch::Tensor PackedSize(size_t size) { return torch::tensor(static_cast<int64_t>(size)); }
inline size_t UnpackedSize(Leaves::const_iterator& next) {
  return static_cast<size_t>((next++)->item<int64_t>());
}

struct Any {
  template <typename T>
  operator T() const;  // NOLINT: only named in unevaluated operands
};
template <typename T, typename... Args>
constexpr size_t CountMembers() {
  if constexpr (sizeof...(Args) > 12) {
    return 0;
  } else if constexpr (requires { T{Args{}..., Any{}}; }) {
    return CountMembers<T, Args..., Any>();
  } else {
    return sizeof...(Args);
  }
}

// The members of a plain struct as a tuple of references.
template <typename T>
auto Members(T& s) {
  constexpr size_t n = CountMembers<std::remove_const_t<T>>();
  static_assert(n >= 1 && n <= 12, "a nest's struct has 1 to 12 members");
  if constexpr (n == 1) {
    auto& [a] = s;
    return std::tie(a);
  } else if constexpr (n == 2) {
    auto& [a, b] = s;
    return std::tie(a, b);
  } else if constexpr (n == 3) {
    auto& [a, b, c] = s;
    return std::tie(a, b, c);
  } else if constexpr (n == 4) {
    auto& [a, b, c, d] = s;
    return std::tie(a, b, c, d);
  } else if constexpr (n == 5) {
    auto& [a, b, c, d, e] = s;
    return std::tie(a, b, c, d, e);
  } else if constexpr (n == 6) {
    auto& [a, b, c, d, e, f] = s;
    return std::tie(a, b, c, d, e, f);
  } else if constexpr (n == 7) {
    auto& [a, b, c, d, e, f, g] = s;
    return std::tie(a, b, c, d, e, f, g);
  } else if constexpr (n == 8) {
    auto& [a, b, c, d, e, f, g, h] = s;
    return std::tie(a, b, c, d, e, f, g, h);
  } else if constexpr (n == 9) {
    auto& [a, b, c, d, e, f, g, h, i] = s;
    return std::tie(a, b, c, d, e, f, g, h, i);
  } else if constexpr (n == 10) {
    auto& [a, b, c, d, e, f, g, h, i, j] = s;
    return std::tie(a, b, c, d, e, f, g, h, i, j);
  } else if constexpr (n == 11) {
    auto& [a, b, c, d, e, f, g, h, i, j, k] = s;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k);
  } else {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l] = s;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k, l);
  }
}

template <typename... T>
void FlattenAll(Leaves& out, const T&... members) {
  (Nest<T>::Flatten(members, out), ...);
}
template <typename... T>
void DescribeAll(std::string& out, const T&... members) {
  out += '(';
  ((Nest<T>::Describe(members, out), out += ' '), ...);
  out.back() = ')';
}
template <typename... T>
void PackAll(Leaves& out, const T&... members) {
  (Nest<T>::Pack(members, out), ...);
}
// A struct from its members' types, those of a tuple of references.
template <typename T, typename... M>
T UnpackAll(Leaves::const_iterator& next, const std::tuple<M&...>*) {
  return T{Nest<std::remove_cv_t<M>>::Unpack(next)...};
}

}  // namespace nest_internal

template <>
struct Nest<torch::Tensor> {
  static void Flatten(const torch::Tensor& t, Leaves& out) { out.push_back(t); }
  static void Describe(const torch::Tensor&, std::string& out) { out += '*'; }
  static torch::Tensor Unflatten(const torch::Tensor&, Leaves::const_iterator& next) {
    return *next++;
  }
  static void Pack(const torch::Tensor& t, Leaves& out) { out.push_back(t); }
  static torch::Tensor Unpack(Leaves::const_iterator& next) { return *next++; }
};

template <typename T>
struct Nest<std::vector<T>> {
  static void Flatten(const std::vector<T>& v, Leaves& out) {
    for (const T& x : v) Nest<T>::Flatten(x, out);
  }
  static void Describe(const std::vector<T>& v, std::string& out) {
    out += '[';
    for (const T& x : v) Nest<T>::Describe(x, out);
    out += ']';
  }
  static std::vector<T> Unflatten(const std::vector<T>& like, Leaves::const_iterator& next) {
    std::vector<T> v;
    v.reserve(like.size());
    for (const T& x : like) v.push_back(Nest<T>::Unflatten(x, next));
    return v;
  }
  static void Pack(const std::vector<T>& v, Leaves& out) {
    out.push_back(nest_internal::PackedSize(v.size()));
    for (const T& x : v) Nest<T>::Pack(x, out);
  }
  static std::vector<T> Unpack(Leaves::const_iterator& next) {
    std::vector<T> v;
    for (size_t n = nest_internal::UnpackedSize(next); n > 0; --n)
      v.push_back(Nest<T>::Unpack(next));
    return v;
  }
};

template <typename T, size_t n>
struct Nest<std::array<T, n>> {
  static void Flatten(const std::array<T, n>& v, Leaves& out) {
    for (const T& x : v) Nest<T>::Flatten(x, out);
  }
  static void Describe(const std::array<T, n>& v, std::string& out) {
    out += '[';
    for (const T& x : v) Nest<T>::Describe(x, out);
    out += ']';
  }
  static std::array<T, n> Unflatten(const std::array<T, n>& like, Leaves::const_iterator& next) {
    std::array<T, n> v = like;
    for (size_t i = 0; i < n; ++i) v[i] = Nest<T>::Unflatten(like[i], next);
    return v;
  }
  static void Pack(const std::array<T, n>& v, Leaves& out) {
    for (const T& x : v) Nest<T>::Pack(x, out);
  }
  static std::array<T, n> Unpack(Leaves::const_iterator& next) {
    std::array<T, n> v;
    for (T& x : v) x = Nest<T>::Unpack(next);
    return v;
  }
};

template <typename T>
struct Nest<std::optional<T>> {
  static void Flatten(const std::optional<T>& v, Leaves& out) {
    if (v) Nest<T>::Flatten(*v, out);
  }
  static void Describe(const std::optional<T>& v, std::string& out) {
    out += '?';
    if (v) Nest<T>::Describe(*v, out);
  }
  static std::optional<T> Unflatten(const std::optional<T>& like, Leaves::const_iterator& next) {
    if (!like) return std::nullopt;
    return Nest<T>::Unflatten(*like, next);
  }
  static void Pack(const std::optional<T>& v, Leaves& out) {
    out.push_back(nest_internal::PackedSize(v ? 1 : 0));
    if (v) Nest<T>::Pack(*v, out);
  }
  static std::optional<T> Unpack(Leaves::const_iterator& next) {
    if (nest_internal::UnpackedSize(next) == 0) return std::nullopt;
    return Nest<T>::Unpack(next);
  }
};

template <typename T>
struct Nest<std::map<std::string, T>> {
  static void Flatten(const std::map<std::string, T>& v, Leaves& out) {
    for (const auto& [key, x] : v) Nest<T>::Flatten(x, out);
  }
  static void Describe(const std::map<std::string, T>& v, std::string& out) {
    out += '{';
    for (const auto& [key, x] : v) {
      out += key + ':';
      Nest<T>::Describe(x, out);
    }
    out += '}';
  }
  static std::map<std::string, T> Unflatten(const std::map<std::string, T>& like,
                                            Leaves::const_iterator& next) {
    std::map<std::string, T> v;
    for (const auto& [key, x] : like) v.emplace(key, Nest<T>::Unflatten(x, next));
    return v;
  }
  static void Pack(const std::map<std::string, T>& v, Leaves& out) {
    out.push_back(nest_internal::PackedSize(v.size()));
    for (const auto& [key, x] : v) {
      out.push_back(torch::tensor(std::vector<uint8_t>(key.begin(), key.end()), torch::kUInt8));
      Nest<T>::Pack(x, out);
    }
  }
  static std::map<std::string, T> Unpack(Leaves::const_iterator& next) {
    std::map<std::string, T> v;
    for (size_t n = nest_internal::UnpackedSize(next); n > 0; --n) {
      const torch::Tensor key = *next++;
      const auto* text = static_cast<const char*>(key.const_data_ptr());
      v.emplace(std::string(text, text + key.numel()), Nest<T>::Unpack(next));
    }
    return v;
  }
};

template <typename... T>
struct Nest<std::tuple<T...>> {
  static void Flatten(const std::tuple<T...>& v, Leaves& out) {
    std::apply([&](const T&... x) { nest_internal::FlattenAll(out, x...); }, v);
  }
  static void Describe(const std::tuple<T...>& v, std::string& out) {
    std::apply([&](const T&... x) { nest_internal::DescribeAll(out, x...); }, v);
  }
  static std::tuple<T...> Unflatten(const std::tuple<T...>& like, Leaves::const_iterator& next) {
    // braces: evaluated from left to right
    return std::apply(
        [&](const T&... x) { return std::tuple<T...>{Nest<T>::Unflatten(x, next)...}; }, like);
  }
  static void Pack(const std::tuple<T...>& v, Leaves& out) {
    std::apply([&](const T&... x) { nest_internal::PackAll(out, x...); }, v);
  }
  static std::tuple<T...> Unpack(Leaves::const_iterator& next) {
    return std::tuple<T...>{Nest<T>::Unpack(next)...};
  }
};

template <typename A, typename B>
struct Nest<std::pair<A, B>> {
  static void Flatten(const std::pair<A, B>& v, Leaves& out) {
    nest_internal::FlattenAll(out, v.first, v.second);
  }
  static void Describe(const std::pair<A, B>& v, std::string& out) {
    nest_internal::DescribeAll(out, v.first, v.second);
  }
  static std::pair<A, B> Unflatten(const std::pair<A, B>& like, Leaves::const_iterator& next) {
    A a = Nest<A>::Unflatten(like.first, next);
    return {std::move(a), Nest<B>::Unflatten(like.second, next)};
  }
  static void Pack(const std::pair<A, B>& v, Leaves& out) {
    nest_internal::PackAll(out, v.first, v.second);
  }
  static std::pair<A, B> Unpack(Leaves::const_iterator& next) {
    A a = Nest<A>::Unpack(next);
    return {std::move(a), Nest<B>::Unpack(next)};
  }
};

// Plain structs.
template <typename T>
requires std::is_aggregate_v<T> && std::is_class_v<T>
struct Nest<T> {
  static void Flatten(const T& s, Leaves& out) {
    std::apply([&](const auto&... x) { nest_internal::FlattenAll(out, x...); },
               nest_internal::Members(s));
  }
  static void Describe(const T& s, std::string& out) {
    std::apply([&](const auto&... x) { nest_internal::DescribeAll(out, x...); },
               nest_internal::Members(s));
  }
  static T Unflatten(const T& like, Leaves::const_iterator& next) {
    return std::apply(
        [&](const auto&... x) {
          return T{Nest<std::remove_cvref_t<decltype(x)>>::Unflatten(x, next)...};
        },
        nest_internal::Members(like));
  }
  static void Pack(const T& s, Leaves& out) {
    std::apply([&](const auto&... x) { nest_internal::PackAll(out, x...); },
               nest_internal::Members(s));
  }
  static T Unpack(Leaves::const_iterator& next) {
    using Members = decltype(nest_internal::Members(std::declval<T&>()));
    return nest_internal::UnpackAll<T>(next, static_cast<const Members*>(nullptr));
  }
};

}  // namespace samara
