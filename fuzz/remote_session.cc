// Effects of a peer's bytes on the learner process's sessions: the input is a script of what up to
// four streams and the caller do, with messages that are right, spoilt, or nothing but bytes.
//
// With clang's libFuzzer where there is one (-DSAMARA_FUZZER=ON), else fuzz/driver.cc throws random
// scripts at it. It fails by crashing: a CHECK, a sanitizer, or one of the invariants at the end.
#include <cmath>
#include <cstring>

#include "core/log.h"
#include "fleet/remote/hub.h"

namespace samara {
namespace {

constexpr uint32_t kSlots = 3;

EnvironmentSpec Spec() {
  EnvironmentSpec spec;
  spec.id = "fuzz";
  spec.version = "1";
  spec.observation.shape = {3};
  spec.action.discrete = false;
  spec.action.n = 2;
  spec.action.low = {-1, -1};
  spec.action.high = {1, 1};
  return spec;
}

// Reads the script; zeros after its end.
class Script {
 public:
  Script(const uint8_t* data, size_t size) : data_(data), left_(size) {}
  bool empty() const { return left_ == 0; }
  uint8_t Byte() {
    if (left_ == 0) return 0;
    --left_;
    return *data_++;
  }
  std::string Bytes(size_t n) {
    std::string bytes;
    for (size_t i = 0; i < n; ++i) bytes += static_cast<char>(Byte());
    return bytes;
  }

 private:
  const uint8_t* data_;
  size_t left_;
};

class Recorder : public RemoteStream {
 public:
  void Send(Message head, Message body) override {
    CHECK(!writing) << "two messages at once";
    writing = true;
    last = head->bytes;
    if (body != nullptr) last += body->bytes;
  }
  void End(const RemoteEnd&, bool) override { ended = true; }
  std::string last;
  bool writing = false, ended = false;
};

struct Peer {
  std::shared_ptr<Recorder> stream;
  std::shared_ptr<RemoteHub::Session> session;
  uint64_t incarnation = 0;
  std::vector<CommandRow> commands;  // as last received
};

class Machine {
 public:
  explicit Machine(bool token)
      : hub_({.spec = Spec(), .slots = kSlots, .offences_max = 3, .quarantine = 0.001},
             token ? std::vector<std::string>{std::string(40, 't')} : std::vector<std::string>(),
             false) {}
  ~Machine() {
    for (Peer& peer : peers_) Close(peer);
  }

  void Step(Script& script) {
    Peer& peer = peers_[script.Byte() % std::size(peers_)];
    switch (script.Byte() % 12) {
      case 0:
        Open(peer, script);
        break;
      case 1:
        Close(peer);
        break;
      case 2:
        Hear(peer);
        break;
      case 3:
        Say(peer, Hello(script), script);
        break;
      case 4:
      case 5:
        Say(peer, Events(peer, script), script);
        break;
      case 6:
        Say(peer, script.Bytes(script.Byte()), script);
        break;
      case 7:
        Begin(script.Byte() % kSlots, script);
        break;
      case 8:
        Act();
        break;
      case 9:
        Take();
        break;
      case 10:
        hub_.TEST_Tick(now_ += std::chrono::milliseconds(100 * script.Byte()));
        break;
      case 11:
        if (script.Byte() == 7) hub_.NotifyShutdown();
        break;
    }
  }

  // Whatever happened: with the actors gone each slot owes at most what was begun and not posted.
  void Finish() {
    for (Peer& peer : peers_) Close(peer);
    Take();
    Act();
    Take();
    CHECK(hub_.live() == 0);
    for (const bool owes : owes_) waiting_ += owes ? 1 : 0;
    CHECK(waiting_ <= kSlots);
  }

 private:
  void Open(Peer& peer, Script& script) {
    Close(peer);
    peer.stream = std::make_shared<Recorder>();
    peer.session =
        hub_.Open(peer.stream, "fuzz",
                  script.Byte() % 4 == 0 ? script.Bytes(50) : "Bearer " + std::string(40, 't'));
  }
  void Close(Peer& peer) {
    if (peer.session) hub_.Close(*peer.session);
    peer = {};
  }
  // The peer reads what was sent to it.
  void Hear(Peer& peer) {
    if (!peer.session || !peer.stream->writing) return;
    MessageHeader header;
    std::memcpy(&header, peer.stream->last.data(), sizeof header);
    if (header.kind == RemoteKind::kWelcome) peer.incarnation = header.incarnation;
    if (header.kind == RemoteKind::kCommands) {
      const size_t row_bytes = RemoteLayout(Spec()).command_bytes();
      for (uint32_t i = 0; i < header.rows; ++i) {
        CommandRow row;
        std::memcpy(&row, peer.stream->last.data() + sizeof header + i * row_bytes, sizeof row);
        peer.commands.push_back(row);
      }
    }
    peer.stream->writing = false;
    hub_.Sent(*peer.session);
  }
  void Say(Peer& peer, std::string message, Script& script) {
    if (!peer.session || peer.stream->ended) return;
    if (const uint8_t spoil = script.Byte(); spoil % 4 == 0 && !message.empty()) {
      message[script.Byte() % message.size()] ^= static_cast<char>(script.Byte());
      if (spoil % 8 == 0) message.resize(message.size() - script.Byte() % message.size());
    }
    // in pieces
    const size_t cut = message.empty() ? 0 : script.Byte() % message.size();
    const auto bytes = std::as_bytes(std::span(message));
    const std::span<const std::byte> pieces[] = {bytes.first(cut), bytes.subspan(cut)};
    hub_.Receive(*peer.session, pieces);
  }
  static std::string Hello(Script& script) {
    EnvironmentSpec spec = Spec();
    if (script.Byte() % 8 == 0) spec.action.n = script.Byte();
    return WriteHello({.minor = script.Byte() % 8 == 0 ? script.Byte() : kRemoteMinor,
                       .actor = script.Bytes(1),
                       .slots = script.Byte() % 5U,
                       .spec = spec});
  }
  static std::string Events(Peer& peer, Script& script) {
    std::vector<EventRow> rows;
    for (int i = script.Byte() % 5; i > 0; --i) {
      EventRow row{};
      if (!peer.commands.empty()) {
        const CommandRow& c = peer.commands[script.Byte() % peer.commands.size()];
        row = {c.sequence, c.episode, 1.0, c.slot, c.step, 1, script.Byte() % 3U};
      }
      if (script.Byte() % 8 == 0)
        reinterpret_cast<char*>(&row)[script.Byte() % sizeof row] =
            static_cast<char>(script.Byte());
      rows.push_back(row);
    }
    const MessageHeader header{RemoteKind::kEvents, static_cast<uint32_t>(rows.size()),
                               peer.incarnation};
    std::string message(reinterpret_cast<const char*>(&header), sizeof header);
    message.append(reinterpret_cast<const char*>(rows.data()), rows.size() * sizeof(EventRow));
    return message + (script.Byte() % 4 == 0 ? script.Bytes(rows.size() * 12)
                                             : std::string(rows.size() * 12, '\0'));
  }

  void Begin(uint32_t slot, Script& script) {
    if (owes_[slot]) return;
    owes_[slot] = true;
    answered_[slot] = false;
    episode_[slot] = script.Byte();
    hub_.Begin(slot, episode_[slot], {.seed = script.Byte(), .noops = 0, .frames_max = 0});
  }
  void Act() {
    const float values[] = {0.5F, -0.5F};
    for (uint32_t slot = 0; slot < kSlots; ++slot) {
      if (!answered_[slot]) continue;
      answered_[slot] = false;
      owes_[slot] = true;
      hub_.Act(slot, {0, values});
    }
  }
  // Every event answers something that was asked, of the episode that runs, with finite numbers.
  void Take() {
    SlotEvent events[kSlots + 1];
    const size_t n = hub_.Wait(events, std::chrono::milliseconds(0));
    for (size_t i = 0; i < n; ++i) {
      const SlotEvent& e = events[i];
      CHECK(e.slot < kSlots && owes_[e.slot]) << "an event that nobody asked for";
      CHECK(e.episode == episode_[e.slot]);
      owes_[e.slot] = false;
      answered_[e.slot] = e.kind == SlotEvent::Kind::kObservation;
      if (e.kind == SlotEvent::Kind::kLost) continue;
      CHECK(std::isfinite(e.result.reward));
      CHECK(!(e.result.terminated && e.result.truncated));
      for (const std::byte b : hub_.observation(e.slot)) sum_ += static_cast<uint64_t>(b);
      float values[3];
      std::memcpy(values, hub_.observation(e.slot).data(), sizeof values);
      for (const float v : values) CHECK(std::isfinite(v));
    }
  }

  RemoteHub hub_;
  Peer peers_[4];
  SteadyTime now_ = Now();
  bool owes_[kSlots] = {}, answered_[kSlots] = {};
  uint64_t episode_[kSlots] = {}, sum_ = 0;
  uint32_t waiting_ = 0;
};

}  // namespace
}  // namespace samara

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  samara::SetLogLevel(samara::LogLevel::kError);
  samara::Script script(data, size);
  samara::Machine machine(script.Byte() % 4 == 0);
  for (int steps = 0; steps < 1000 && !script.empty(); ++steps) machine.Step(script);
  machine.Finish();
  return 0;
}
