// A diagnosis written down, for people and for programs. Only doctor.cpp and watch.cpp include this.
#pragma once

#include <string>
#include <vector>

#include "base/json.hpp"
#include "observe/doctor.hpp"

namespace stretto::observe {

std::string reportText(const Diagnosis& diagnosis, const FlightReading& reading);
// Needs diagnosis.text.
std::string reportJson(const Diagnosis& diagnosis, const FlightReading& reading);

// Keys of a communicator, or of a member, that all documents of ours have.
void writeFacts(json::Writer& out, const CommunicatorDiagnosis& one);
void writeFacts(json::Writer& out, const FlightSnapshot& flight);
void writeTexts(json::Writer& out, const char* key, const std::vector<std::string>& texts);

}  // namespace stretto::observe
