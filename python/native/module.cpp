// The table of what Python sees of the library: names, argument names, nothing else.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <string>
#include <utility>

#include "communicator.hpp"
#include "errors.hpp"
#include "stretto.h"
#include "text.hpp"
#include "watch.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace stretto::python {
namespace {

// The process that makes the id answers the ranks that join, and must live until they have.
nb::bytes makeUniqueId() {
  ncclUniqueId id;
  check(ncclGetUniqueId(&id));
  return nb::bytes(id.internal, sizeof id.internal);
}

std::string doctor(const std::string& target) {
  return readText([&](char* text, size_t capacity, size_t* needed) {
    return strettoDoctor(target.c_str(), text, capacity, needed);
  });
}

std::string explain(const std::string& collective, size_t bytes, int type, int op, int ranks, size_t hidden) {
  return readText([&](char* text, size_t capacity, size_t* needed) {
    const strettoQuestion_t question{collective.c_str(),
                                     bytes,
                                     static_cast<ncclDataType_t>(type),
                                     static_cast<ncclRedOp_t>(op),
                                     ranks,
                                     0,
                                     hidden};
    return strettoExplain(nullptr, &question, text, capacity, needed);
  });
}

int typeCode(const std::string& name) {
  const ncclDataType_t type = typeNamed(name.c_str());
  return type == ncclNumTypes ? -1 : type;
}

void defineCollectives(nb::class_<Communicator>& c) {
  c.def(
       "all_reduce",
       [](Communicator& comm, nb::handle send, nb::handle receive, int op, int type, Stream* stream) {
         comm.allReduce({send, receive, type, op, 0, stream});
       },
       "send"_a.none(), "receive"_a.none(), "op"_a, "type"_a, "stream"_a.none())
      .def(
          "reduce",
          [](Communicator& comm, nb::handle send, nb::handle receive, int op, int root, int type,
             Stream* stream) {
            comm.reduce({send, receive, type, op, root, stream});
          },
          "send"_a.none(), "receive"_a.none(), "op"_a, "root"_a, "type"_a, "stream"_a.none())
      .def(
          "reduce_scatter",
          [](Communicator& comm, nb::handle send, nb::handle receive, int op, int type, Stream* stream) {
            comm.reduceScatter({send, receive, type, op, 0, stream});
          },
          "send"_a.none(), "receive"_a.none(), "op"_a, "type"_a, "stream"_a.none());
  c.def(
      "all_reduce_add_rms_norm",
      [](Communicator& comm, nb::dict arrays, size_t hidden, double epsilon, int type,
         std::pair<int, int> quantisation, Stream* stream) {
        comm.allReduceAddRmsNorm(
            {std::move(arrays), hidden, epsilon, type, quantisation.first, quantisation.second, stream});
      },
      "arrays"_a, "hidden"_a, "epsilon"_a, "type"_a, "quantisation"_a, "stream"_a.none());
  // What moves without reducing: (send, receive, root or peer, type, stream).
  const auto move = [&c](const char* name, void (Communicator::*method)(const Call&)) {
    c.def(
        name,
        [method](Communicator& comm, nb::handle send, nb::handle receive, int root, int type,
                 Stream* stream) {
          (comm.*method)({send, receive, type, ncclSum, root, stream});
        },
        "send"_a.none(), "receive"_a.none(), "root"_a, "type"_a, "stream"_a.none());
  };
  move("broadcast", &Communicator::broadcast);
  move("all_gather", &Communicator::allGather);
  move("all_to_all", &Communicator::allToAll);
  move("gather", &Communicator::gather);
  move("scatter", &Communicator::scatter);
  move("send", &Communicator::send);
  move("recv", &Communicator::receive);
}

void defineCommunicator(nb::module_& m) {
  nb::class_<Communicator> c(m, "Communicator");
  c.def_prop_ro("rank", &Communicator::rank)
      .def_prop_ro("size", &Communicator::size)
      .def_prop_ro("closed", &Communicator::closed)
      .def_prop_ro("device", &Communicator::device)
      .def_prop_ro("inherited", &Communicator::inherited)
      .def("barrier", &Communicator::barrier)
      .def(
          "create_pre_mul_sum",
          [](Communicator& comm, nb::bytes scalar, int type) {
            return comm.createPreMulSum(std::string(scalar.c_str(), scalar.size()), type);
          },
          "scalar"_a, "type"_a)
      .def("destroy_op", &Communicator::destroyOp, "op"_a)
      .def("split", &Communicator::split, "color"_a.none(), "key"_a)
      .def("shrink", &Communicator::shrink, "exclude"_a, "abort"_a)
      .def("finalize", &Communicator::finalize)
      .def("destroy", &Communicator::destroy)
      .def("abort", &Communicator::abort)
      .def("revoke", &Communicator::revoke)
      .def("async_error", &Communicator::asyncError)
      .def("counters", &Communicator::counters)
      .def("explain", &Communicator::explain, "collective"_a, "bytes"_a, "type"_a, "op"_a, "hidden"_a = 0)
      .def("probe", &probe, "peer"_a)
      .def("force", &Communicator::force, "collective"_a, "algorithm"_a.none(), "protocol"_a.none(),
           "chunk_bytes"_a);
  defineCollectives(c);
}

}  // namespace

NB_MODULE(_native, m) {
  // A communicator that lives as long as the program is no leak.
  nb::set_leak_warnings(false);
  nb::class_<Stream>(m, "Stream")
      .def(nb::init<>())
      .def(nb::init<uintptr_t>(), "cuda"_a)
      .def_prop_ro("inherited", &Stream::inherited)
      .def("synchronize", &Stream::synchronize)
      .def("idle", &Stream::idle)
      .def("close", &Stream::close);
  nb::class_<Memory>(m, "Memory")
      .def(
          "__init__",
          [](Memory* memory, uintptr_t address, size_t count, int type, nb::object owner) {
            if (type < 0 || type >= ncclNumTypes) refuse(ncclInvalidArgument, "Memory: type %d", type);
            new (memory) Memory{reinterpret_cast<void*>(address), count, static_cast<ncclDataType_t>(type),
                                std::move(owner)};
          },
          "address"_a, "count"_a, "type"_a, "owner"_a.none());
  defineCommunicator(m);
  m.def(
      "join",
      [](int ranks, nb::bytes id, int rank, const std::string& name, bool host) {
        return Communicator::join(ranks, std::string(id.c_str(), id.size()), rank, name, host);
      },
      "ranks"_a, "id"_a, "rank"_a, "name"_a, "host"_a = false);
  m.def("init_all", &initAll, "ranks"_a);
  m.def("make_unique_id", &makeUniqueId);
  m.def("group_start", &groupStart);
  m.def("group_end", &groupEnd);
  m.def("group_discard", &groupDiscard);
  m.def("version", [] { return std::string(strettoVersion()); });
  m.def("build", [] { return readText(strettoBuild); });
  m.def("nccl_version", [] {
    int version = 0;
    check(ncclGetVersion(&version));
    return version;
  });
  m.def("type_code", &typeCode, "name"_a);
  m.def(
      "type_name", [](int type) { return std::string(nameOf(static_cast<ncclDataType_t>(type))); }, "type"_a);
  m.def(
      "type_of",
      [](nb::handle array) {
        return static_cast<int>(Array(array, Access::kRead, ncclNumTypes, "array").type());
      },
      "array"_a.none());
  m.def("explain", &explain, "collective"_a, "bytes"_a, "type"_a, "op"_a, "ranks"_a, "hidden"_a = 0);
  m.def("doctor", &doctor, "target"_a);
  nb::class_<Watch>(m, "Watch").def(nb::init<const std::string&>(), "pids"_a).def("read", &Watch::read);
  m.def("parameters", [] { return readText(strettoParameters); });
  m.def("topology", [] { return readText(strettoTopology); });
}

}  // namespace stretto::python
