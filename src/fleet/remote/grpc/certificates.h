// The learner process's certificates, which may be replaced while actors are connected.
#pragma once

#include <grpc/grpc_security.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <string>

#include "core/files.h"
#include "core/mutex.h"
#include "core/status.h"

namespace samara {

// Texts in PEM, from files that kNoInput says are missing.
// kBadData: there is no certificate in it.
Result<std::string> ReadAuthority(const Path& file);
struct KeyPair {
  std::string certificate, key;
};
// kNotPermitted: others may read the key; kBadData: no certificate, no key, the key of another
// certificate, or one that is not valid today.
Result<KeyPair> ReadKeyPair(const Path& certificate, const Path& key);

// Contents of three files, as they were when they were last valid. Thread safe.
class Certificates {
 public:
  // Fails as the functions above do.
  static Result<std::shared_ptr<Certificates>> Read(const Path& certificate, const Path& key,
                                                    const Path& client_ca);
  // Reads the files again; what they held before stays in use unless all of them are good.
  Status ReadAgain();

  // For gRPC, at each handshake: a configuration when there is a new one.
  grpc_ssl_certificate_config_reload_status Fetch(grpc_ssl_server_certificate_config** config);
  bool asks_actors() const { return !files_[2].empty(); }

 private:
  struct Pem {
    KeyPair pair;
    std::string client_ca;
  };
  explicit Certificates(Path certificate, Path key, Path client_ca)
      : files_{std::move(certificate), std::move(key), std::move(client_ca)} {}
  Result<Pem> ReadFiles() const;

  const Path files_[3];
  Mutex mu_;
  // guarded by mu_
  Pem pem_ GUARDED_BY(mu_);
  bool fetched_ GUARDED_BY(mu_) = false;
};

// Connections that are open stay as they are; every handshake uses what Certificates has then.
std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(
    std::shared_ptr<Certificates> certificates);

}  // namespace samara
