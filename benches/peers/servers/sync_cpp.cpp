// Synchronous C++: a thread per stream, and the work is done in that thread.

#include <grpcpp/grpcpp.h>

#include <memory>

#include "camera_ai.grpc.pb.h"
#include "peer.hpp"

namespace {

class Detection final : public camera_ai::ObjectDetection::Service {
 public:
  explicit Detection(const peer::Settings& settings) : settings_(settings) {}

  grpc::Status DetectStream(
      grpc::ServerContext* /*context*/,
      grpc::ServerReaderWriter<camera_ai::DetectResponse, camera_ai::DetectRequest>* stream)
      override {
    camera_ai::DetectRequest request;
    camera_ai::DetectResponse response;
    while (stream->Read(&request)) {
      peer::spin(settings_);
      peer::answer(request, response);
      if (!stream->Write(response)) break;
    }
    return grpc::Status::OK;
  }

 private:
  const peer::Settings& settings_;
};

void serve(const peer::Settings& settings, const peer::EndSignals& end) {
  Detection service(settings);
  grpc::ServerBuilder builder;
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddListeningPort(settings.address(), grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (!server) throw std::runtime_error("cannot listen on " + settings.address());
  peer::announce(settings);
  end.wait();
  server->Shutdown(std::chrono::system_clock::now() + peer::kGrace);
}

}  // namespace

int main(int argc, char** argv) { return peer::run(argc, argv, serve); }
