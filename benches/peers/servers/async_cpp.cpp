// Asynchronous C++: one thread serves a completion queue, a pool of threads does the work.
//
// A stream is a state machine (`Call`) with one operation or one piece of work in hand at a time.
// It belongs to whoever has it in hand: the completion queue (as a tag), the pool, or the thread
// that moves it on. So it needs no lock.

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <utility>
#include <vector>

#include "camera_ai.grpc.pb.h"
#include "peer.hpp"

namespace {

using camera_ai::DetectRequest;
using camera_ai::DetectResponse;

struct Call {
  enum class State { kAccepting, kReading, kWriting, kFinishing };

  State state = State::kAccepting;
  grpc::ServerContext context;
  grpc::ServerAsyncReaderWriter<DetectResponse, DetectRequest> stream{&context};
  DetectRequest request;
  DetectResponse response;
};

using CallPtr = std::unique_ptr<Call>;

// Threads that take calls in the order in which their frames came.
class Pool {
 public:
  template <typename Work>
  Pool(unsigned threads, Work work) {
    for (unsigned at = 0; at < threads; ++at) {
      threads_.emplace_back([this, work] {
        while (CallPtr call = take()) work(std::move(call));
      });
    }
  }

  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  ~Pool() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    filled_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  // The queue holds at most one frame per stream, since a call is in one place at a time.
  void put(CallPtr call) {
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(std::move(call));
    }
    filled_.notify_one();
  }

 private:
  // Nothing once the pool is stopping.
  CallPtr take() {
    std::unique_lock lock(mutex_);
    filled_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (stopping_) return nullptr;
    CallPtr call = std::move(waiting_.front());
    waiting_.pop_front();
    return call;
  }

  std::mutex mutex_;
  std::condition_variable filled_;
  std::deque<CallPtr> waiting_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

class Server {
 public:
  explicit Server(const peer::Settings& settings) : settings_(settings) {
    grpc::ServerBuilder builder;
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddListeningPort(settings.address(), grpc::InsecureServerCredentials());
    builder.RegisterService(&service_);
    queue_ = builder.AddCompletionQueue();
    server_ = builder.BuildAndStart();
    if (!server_) throw std::runtime_error("cannot listen on " + settings.address());
  }

  // Serves until one of the signals; returns when every call is gone.
  void run(const peer::EndSignals& end) {
    accept();
    auto pool = std::make_unique<Pool>(settings_.workers, [this](CallPtr call) {
      peer::spin(settings_);
      peer::answer(call->request, call->response);
      write(std::move(call));
    });
    std::thread events([this, &pool] { serve_events(*pool); });
    peer::announce(settings_);
    end.wait();
    {
      const std::unique_lock lock(operations_);
      stopping_ = true;
    }
    server_->Shutdown(std::chrono::system_clock::now() + peer::kGrace);
    queue_->Shutdown();
    events.join();
    pool.reset();
  }

 private:
  void serve_events(Pool& pool) {
    void* tag = nullptr;
    bool ok = false;
    while (queue_->Next(&tag, &ok)) {
      CallPtr call(static_cast<Call*>(tag));
      switch (call->state) {
        case Call::State::kAccepting:
          if (!ok) break;
          accept();
          read(std::move(call));
          break;
        case Call::State::kReading:
          if (ok) {
            pool.put(std::move(call));
          } else {
            finish(std::move(call));
          }
          break;
        case Call::State::kWriting:
          if (ok) read(std::move(call));
          break;
        case Call::State::kFinishing:
          break;
      }
    }
  }

  void accept() {
    begin(std::make_unique<Call>(), Call::State::kAccepting, [this](Call& call) {
      service_.RequestDetectStream(&call.context, &call.stream, queue_.get(), queue_.get(), &call);
    });
  }

  void read(CallPtr call) {
    begin(std::move(call), Call::State::kReading,
          [](Call& waiting) { waiting.stream.Read(&waiting.request, &waiting); });
  }

  void write(CallPtr call) {
    begin(std::move(call), Call::State::kWriting,
          [](Call& waiting) { waiting.stream.Write(waiting.response, &waiting); });
  }

  void finish(CallPtr call) {
    begin(std::move(call), Call::State::kFinishing,
          [](Call& waiting) { waiting.stream.Finish(grpc::Status::OK, &waiting); });
  }

  // Gives the call to the completion queue, or drops it when the server is stopping: a queue that
  // is shut down takes no more operations. Shared, so that operations do not wait for each other.
  template <typename Operation>
  void begin(CallPtr call, Call::State state, Operation operation) {
    const std::shared_lock lock(operations_);
    if (stopping_) return;
    call->state = state;
    operation(*call.release());
  }

  const peer::Settings& settings_;
  camera_ai::ObjectDetection::AsyncService service_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::unique_ptr<grpc::Server> server_;
  std::shared_mutex operations_;
  bool stopping_ = false;
};

void serve(const peer::Settings& settings, const peer::EndSignals& end) {
  Server(settings).run(end);
}

}  // namespace

int main(int argc, char** argv) { return peer::run(argc, argv, serve); }
