// What the C++ servers share: command line, the busy loop, the answer, and waiting for the end.
#pragma once

#include <charconv>
#include <chrono>
#include <csignal>
#include <ctime>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

#include "camera_ai.pb.h"

namespace peer {

// Longest wait for calls in hand once the server is told to stop.
constexpr std::chrono::milliseconds kGrace{500};

struct Settings {
  unsigned port = 0;
  unsigned workers = std::thread::hardware_concurrency();
  unsigned work_ms = 5;
  clockid_t clock = CLOCK_THREAD_CPUTIME_ID;

  std::string address() const { return "127.0.0.1:" + std::to_string(port); }
};

inline unsigned number(std::string_view flag, std::string_view text) {
  unsigned value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value == 0) {
    throw std::invalid_argument(std::string(flag) + ": expected a number above 0");
  }
  return value;
}

inline Settings parse(int argc, char** argv) {
  Settings settings;
  for (int at = 1; at < argc; at += 2) {
    const std::string_view flag = argv[at];
    const std::string_view value = at + 1 < argc ? argv[at + 1] : "";
    if (flag == "--port") {
      settings.port = number(flag, value);
    } else if (flag == "--workers") {
      settings.workers = number(flag, value);
    } else if (flag == "--work-ms") {
      settings.work_ms = number(flag, value);
    } else if (flag == "--clock" && value == "cpu") {
      settings.clock = CLOCK_THREAD_CPUTIME_ID;
    } else if (flag == "--clock" && value == "wall") {
      settings.clock = CLOCK_MONOTONIC;
    } else {
      throw std::invalid_argument(
          "usage: --port N [--workers N] [--work-ms N] [--clock cpu|wall], not " +
          std::string(flag) + " " + std::string(value));
    }
  }
  if (settings.port == 0) throw std::invalid_argument("--port: needed");
  return settings;
}

inline std::int64_t nanoseconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// Keeps the calling thread busy for a frame's worth of time.
inline void spin(const Settings& settings) {
  const std::int64_t end = nanoseconds(settings.clock) + std::int64_t{settings.work_ms} * 1'000'000;
  while (nanoseconds(settings.clock) < end) {
  }
}

// Turns the answer into the one for this frame.
inline void answer(const camera_ai::DetectRequest& request, camera_ai::DetectResponse& response) {
  response.Clear();
  response.set_frame_id(request.frame_id());
  camera_ai::Object& object = *response.add_objects();
  object.set_label("object");
  object.set_confidence(0.9F);
  camera_ai::BoundingBox& box = *object.mutable_bbox();
  box.set_x(10);
  box.set_y(20);
  box.set_width(30);
  box.set_height(40);
}

// The signals that end the server, kept from every thread that is started later.
class EndSignals {
 public:
  EndSignals() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGTERM);
    sigaddset(&signals_, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  }

  void wait() const {
    int signal = 0;
    sigwait(&signals_, &signal);
  }

 private:
  sigset_t signals_{};
};

// Runs a server's `main` and turns its mistakes into one line.
template <typename Serve>
int run(int argc, char** argv, Serve serve) {
  try {
    const EndSignals end;
    serve(parse(argc, argv), end);
    return EXIT_SUCCESS;
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << '\n';
    return EXIT_FAILURE;
  }
}

inline void announce(const Settings& settings) {
  std::cout << "listening on " << settings.address() << std::endl;
}

}  // namespace peer
