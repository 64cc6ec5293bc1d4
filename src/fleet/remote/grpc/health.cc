#include "fleet/remote/grpc/health.h"

#include <optional>
#include <string>
#include <string_view>

#include "fleet/remote/grpc/settings.h"
#include "fleet/remote/wire.h"

namespace samara {
namespace {

// The protocol buffers of grpc.health.v1, by hand: a request has at most the field 1, the service's
// name; an answer has the field 1, a number.
constexpr char kNameTag = 0x0a, kStatusTag = 0x08;
constexpr char kServing = 1, kNotServing = 2;
constexpr size_t kNameMax = 127;  // its length is one byte

std::optional<std::string> ServiceOf(std::string_view request) {
  if (request.empty()) return "";
  if (request.size() < 2 || request[0] != kNameTag) return {};
  const auto length = static_cast<unsigned char>(request[1]);
  if (length > kNameMax || request.size() != size_t{2} + length) return {};
  return std::string(request.substr(2));
}

bool IsOurs(std::string_view service) {
  const std::string_view method = kRemoteMethod;  // "/service/method"
  return service.empty() || service == method.substr(1, method.rfind('/') - 1);
}

class HealthReactor : public grpc::ServerGenericBidiReactor {
 public:
  explicit HealthReactor(const std::function<bool()>& healthy) : healthy_(!healthy || healthy()) {
    StartRead(&buffer_);
  }
  void OnReadDone(bool ok) override {
    std::string request;
    // nothing at all is an empty request
    if (ok) {
      for (const auto piece : pieces_.Read(buffer_)) {
        if (request.size() > kNameMax) break;
        request.append(reinterpret_cast<const char*>(piece.data()), piece.size());
      }
    }
    const auto service = ServiceOf(request);
    if (!service) return Finish({grpc::StatusCode::INVALID_ARGUMENT, "not a health check"});
    if (!IsOurs(*service)) return Finish({grpc::StatusCode::NOT_FOUND, "another service"});
    const char answer[] = {kStatusTag, healthy_ ? kServing : kNotServing};
    const grpc::Slice slice(answer, sizeof answer);
    answer_ = grpc::ByteBuffer(&slice, 1);
    StartWriteAndFinish(&answer_, {}, grpc::Status::OK);
  }
  void OnDone() override { delete this; }

 private:
  const bool healthy_;
  grpc::ByteBuffer buffer_, answer_;
  ReceivedPieces pieces_;
};

}  // namespace

grpc::ServerGenericBidiReactor* MakeHealthReactor(const std::function<bool()>& healthy) {
  return new HealthReactor(healthy);
}

}  // namespace samara
