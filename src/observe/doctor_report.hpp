// A diagnosis written down, for people and for programs. Only doctor.cpp includes this.
#pragma once

#include <string>

#include "observe/doctor.hpp"

namespace stretto::observe {

std::string reportText(const Diagnosis& diagnosis, const FlightReading& reading);
// Needs diagnosis.text.
std::string reportJson(const Diagnosis& diagnosis, const FlightReading& reading);

}  // namespace stretto::observe
