// The choice itself: a pure function from what is asked, where, what was measured and what is insisted on, to
// a plan. Every rank gives the same arguments and so gets the same plan. Called by the communicator, which
// keeps the plans; explain() tells people what choose() saw.
#pragma once

#include <string>
#include <vector>

#include "planner/forced.hpp"
#include "planner/plan.hpp"
#include "planner/table.hpp"

namespace stretto::planner {

// A measured row beats the model; what is forced beats both, and is kInvalidUsage when it cannot serve this
// request. One rank copies, whatever is forced. Does not allocate unless it fails.
Result<Plan> choose(const Request& request, const Machine& machine, const Table& table, const Forced& forced);

// Every algorithm of the collective: the possible ones first, fastest first by the model. At most one is
// chosen; none if choose() refuses.
std::vector<Candidate> explain(const Request& request, const Machine& machine, const Table& table,
                               const Forced& forced);

// {"schema": "stretto.explain/1", "request": {...}, "machine": {...}, "table": {..., "note": why the table
// says nothing, or null}, "candidates": [...], "chosen": {...} or null, "why": ..., "error": text or null}
std::string explainJson(const Request& request, const Machine& machine, const Table& table,
                        const Forced& forced);

}  // namespace stretto::planner
