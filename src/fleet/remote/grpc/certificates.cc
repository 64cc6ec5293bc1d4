#include "fleet/remote/grpc/certificates.h"

#include <grpc/grpc.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/stat.h>

#include "core/check.h"

namespace samara {
namespace {

constexpr size_t kPemMax = 1 << 20;

struct Free {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

// The first certificate of a PEM text, or null.
Owned<X509> ParseCertificate(const std::string& pem) {
  const Owned<BIO> bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  Owned<X509> certificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  return certificate;
}

Owned<EVP_PKEY> ParseKey(const std::string& pem) {
  const Owned<BIO> bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  // no password can be entered
  const auto nobody = [](char*, int, int, void*) { return 0; };
  Owned<EVP_PKEY> key(PEM_read_bio_PrivateKey(bio.get(), nullptr, nobody, nullptr));
  ERR_clear_error();
  return key;
}

Status CheckPair(const Path& certificate_file, const std::string& certificate_pem,
                 const Path& key_file, const std::string& key_pem) {
  const Owned<X509> certificate = ParseCertificate(certificate_pem);
  if (certificate == nullptr)
    return {Code::kBadData, certificate_file.string() + ": no certificate in it; expected PEM"};
  const Owned<EVP_PKEY> key = ParseKey(key_pem);
  if (key == nullptr)
    return {Code::kBadData, key_file.string() + ": no key without a password in it; expected PEM"};
  const bool pair = X509_check_private_key(certificate.get(), key.get()) == 1;
  ERR_clear_error();
  if (!pair)
    return {Code::kBadData, key_file.string() + ": not the key of " + certificate_file.string()};
  if (X509_cmp_current_time(X509_get0_notBefore(certificate.get())) >= 0)
    return {Code::kBadData,
            certificate_file.string() + ": not yet valid; is this machine's clock right?"};
  if (X509_cmp_current_time(X509_get0_notAfter(certificate.get())) <= 0)
    return {Code::kBadData, certificate_file.string() +
                                ": no longer valid: make another one (`samara certificates`); is "
                                "this machine's clock right?"};
  return {};
}

// gRPC's own credentials read their certificates once; its core can ask again.
grpc_server_credentials* CoreCredentials(Certificates& certificates) {
  const auto fetch = [](void* from, grpc_ssl_server_certificate_config** config) {
    return static_cast<Certificates*>(from)->Fetch(config);
  };
  const auto ask = certificates.asks_actors()
                       ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                       : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE;
  grpc_server_credentials* core = grpc_ssl_server_credentials_create_with_options(
      grpc_ssl_server_credentials_create_options_using_config_fetcher(ask, fetch, &certificates));
  CHECK(core != nullptr);
  return core;
}

// Whether gRPC's own class holds the core's credentials, as in newer releases.
struct Probe : grpc::ServerCredentials {
  template <typename P>
  static constexpr bool kHoldsCore = requires(P& probe) {
    probe.c_creds();
  };
};

template <typename Base, bool kHoldsCore>
class ReloadingCredentials : public Base {
 public:
  explicit ReloadingCredentials(std::shared_ptr<Certificates> certificates)
      : Base(CoreCredentials(*certificates)), certificates_(std::move(certificates)) {}

 private:
  const std::shared_ptr<Certificates> certificates_;
};

template <typename Base>
class ReloadingCredentials<Base, false> : public Base {
 public:
  explicit ReloadingCredentials(std::shared_ptr<Certificates> certificates)
      : certificates_(std::move(certificates)), core_(CoreCredentials(*certificates_)) {}
  ~ReloadingCredentials() override { grpc_server_credentials_release(core_); }
  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {
  }  // tokens: RemoteHub

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), core_);
  }

  const std::shared_ptr<Certificates> certificates_;
  grpc_server_credentials* const core_;
};

}  // namespace

Result<std::string> ReadAuthority(const Path& file) {
  ASSIGN_OR_RETURN(std::string pem, ReadFile(file, kPemMax));
  if (ParseCertificate(pem) == nullptr)
    return Status(Code::kBadData, file.string() + ": no certificate in it; expected PEM");
  return pem;
}

Result<KeyPair> ReadKeyPair(const Path& certificate, const Path& key) {
  KeyPair pair;
  ASSIGN_OR_RETURN(pair.certificate, ReadFile(certificate, kPemMax));
  ASSIGN_OR_RETURN(pair.key, ReadFile(key, kPemMax));
  struct stat info {};
  if (::stat(key.c_str(), &info) == 0 && (info.st_mode & 077) != 0)
    return Status(Code::kNotPermitted,
                  key.string() + ": others may read this key: chmod 600 " + key.string());
  RETURN_IF_ERROR(CheckPair(certificate, pair.certificate, key, pair.key));
  return pair;
}

Result<Certificates::Pem> Certificates::ReadFiles() const {
  const auto& [certificate, key, client_ca] = files_;
  Pem pem;
  ASSIGN_OR_RETURN(pem.pair, ReadKeyPair(certificate, key));
  if (!client_ca.empty()) {
    ASSIGN_OR_RETURN(pem.client_ca, ReadAuthority(client_ca));
  }
  return pem;
}

Result<std::shared_ptr<Certificates>> Certificates::Read(const Path& certificate, const Path& key,
                                                         const Path& client_ca) {
  std::shared_ptr<Certificates> made(new Certificates(certificate, key, client_ca));
  RETURN_IF_ERROR(made->ReadAgain());
  return made;
}

Status Certificates::ReadAgain() {
  ASSIGN_OR_RETURN(Pem pem, ReadFiles());
  MutexLock lock(mu_);
  pem_ = std::move(pem);
  fetched_ = false;
  return {};
}

grpc_ssl_certificate_config_reload_status Certificates::Fetch(
    grpc_ssl_server_certificate_config** config) {
  MutexLock lock(mu_);
  if (fetched_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
  const grpc_ssl_pem_key_cert_pair pair{pem_.pair.key.c_str(), pem_.pair.certificate.c_str()};
  // gRPC 1.51 aborts without an authority here, though no certificate is required then
  const std::string& authority = pem_.client_ca.empty() ? pem_.pair.certificate : pem_.client_ca;
  *config = grpc_ssl_server_certificate_config_create(authority.c_str(), &pair, 1);
  fetched_ = true;
  return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
}

std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(
    std::shared_ptr<Certificates> certificates) {
  using Credentials = ReloadingCredentials<grpc::ServerCredentials, Probe::kHoldsCore<Probe>>;
  return std::make_shared<Credentials>(std::move(certificates));
}

}  // namespace samara
