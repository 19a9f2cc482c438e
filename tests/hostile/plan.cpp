#include "plan.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <tuple>
#include <utility>

namespace hostile {
namespace {

// Roughly how many rounds in a hundred are about this.
struct Weight {
  Kind kind;
  const char* name;
  int weight;
  bool processes;  // needs ranks in several processes
};
constexpr std::array<Weight, kKinds> kWeights = {{
    {Kind::kNone, "none", 4, false},
    {Kind::kKill, "kill", 12, true},
    {Kind::kTwo, "two", 6, false},
    {Kind::kStop, "stop", 2, true},
    {Kind::kStopFault, "stop_fault", 4, true},
    {Kind::kAbort, "abort", 9, false},
    {Kind::kAbortThread, "abort_thread", 9, false},
    {Kind::kRevoke, "revoke", 6, false},
    {Kind::kDestroy, "destroy", 5, false},
    {Kind::kExit, "exit", 6, true},
    {Kind::kLate, "late", 3, false},
    {Kind::kFork, "fork", 6, false},
    {Kind::kDisagree, "disagree", 9, false},
    {Kind::kMaker, "maker", 5, false},
    {Kind::kStrangers, "strangers", 3, false},
    {Kind::kLeave, "leave", 4, true},
    {Kind::kInit, "init", 4, true},
    {Kind::kSplit, "split", 7, false},
    {Kind::kFinal, "final", 4, false},
    {Kind::kWindow, "window", 4, false},
    {Kind::kOneSided, "one_sided", 4, false},
    {Kind::kGrow, "grow", 4, false},
}};

struct Type {
  size_t size;
  const char* name;
};
constexpr Type kTypes[ncclNumTypes] = {{1, "int8"},    {1, "uint8"},    {4, "int32"},   {4, "uint32"},
                                       {8, "int64"},   {8, "uint64"},   {2, "float16"}, {4, "float32"},
                                       {8, "float64"}, {2, "bfloat16"}, {1, "e4m3"},    {1, "e5m2"}};
constexpr const char* kFunctionNames[kFunctions] = {"AllReduce", "Reduce",    "ReduceScatter", "AllGather",
                                                    "AlltoAll",  "Broadcast", "Bcast",         "Gather",
                                                    "Scatter",   "ring",      "pairs",         "puts"};
constexpr const char* kActNames[] = {"kill",    "stop", "abort", "abort_thread", "revoke",
                                     "destroy", "exit", "fork",  "late"};

bool isFloat(int type) {
  return type >= ncclFloat16;
}

bool named(const std::string& list, std::string_view name) {
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    if (std::string_view(list).substr(at, end - at) == name) return true;
    at = end + 1;
  }
  return false;
}

Kind drawKind(Draw& draw, const Options& options) {
  std::array<int, kKinds> weights{};
  int sum = 0;
  for (int i = 0; i < kKinds; ++i) {
    const Weight& row = kWeights[static_cast<size_t>(i)];
    const bool wanted = options.kinds.empty() ? row.weight > 0 : named(options.kinds, row.name);
    // A process that has used a GPU cannot fork, and between hosts windows are refused.
    const bool inWindows = row.kind == Kind::kWindow || row.kind == Kind::kOneSided;
    const bool possible = (options.layout != "threads" || !row.processes) &&
                          !(options.device && row.kind == Kind::kFork) && !(options.net && inWindows);
    weights[static_cast<size_t>(i)] = wanted && possible ? std::max(row.weight, 1) : 0;
    sum += weights[static_cast<size_t>(i)];
  }
  int at = draw.below(std::max(sum, 1));
  for (int i = 0; i < kKinds; ++i) {
    at -= weights[static_cast<size_t>(i)];
    if (at < 0) return static_cast<Kind>(i);
  }
  return Kind::kNone;
}

void drawRanks(Plan& plan, Draw& draw, const Options& options) {
  const bool processes = kWeights[static_cast<size_t>(plan.kind)].processes;
  const int at = draw.below(100);
  plan.ranks = at < 18 ? 2 : at < 45 ? 3 : at < 72 ? 4 : at < 97 ? draw.between(5, 8) : 12;
  const bool three = plan.kind == Kind::kTwo || plan.kind == Kind::kStopFault || plan.kind == Kind::kLeave;
  if (three) plan.ranks = std::max(plan.ranks, 3);
  if (options.device) plan.ranks = std::max(three ? 3 : 2, std::min(plan.ranks, 4));
  if (options.ranks > 0) plan.ranks = std::max(options.ranks, three ? 3 : 2);
  const int pick = draw.below(100);
  plan.layout = pick < 35 ? Layout::kThreads : pick < 75 ? Layout::kProcesses : Layout::kMixed;
  if (processes && plan.layout == Layout::kThreads) plan.layout = Layout::kProcesses;
  if (options.layout == "threads") plan.layout = Layout::kThreads;
  if (options.layout == "processes") plan.layout = Layout::kProcesses;
  if (options.layout == "mixed") plan.layout = Layout::kMixed;
  const int needed = three ? 3 : 2;
  if (plan.layout == Layout::kMixed && plan.ranks <= needed) plan.layout = Layout::kProcesses;
  const int mixed = draw.between(needed, std::max(needed, plan.ranks - 1));
  for (int rank = 0; rank < plan.ranks; ++rank) {
    const int mine = rank < mixed ? rank : draw.below(mixed);
    plan.processOf.push_back(plan.layout == Layout::kThreads     ? 0
                             : plan.layout == Layout::kProcesses ? rank
                                                                 : mine);
  }
}

// What a rank has in its larger buffer, in bytes: mostly little.
size_t drawBytes(Draw& draw, bool heavy) {
  const int at = draw.below(100);
  if (at < 4) return 0;
  if (at < 50) return static_cast<size_t>(draw.between(1, 2000));
  if (at < 85 || !heavy) return static_cast<size_t>(draw.between(1, 300000));
  if (at < 97) return static_cast<size_t>(draw.between(1 << 20, 8 << 20));
  return static_cast<size_t>(draw.between(32 << 20, 64 << 20));
}

Call drawCall(Draw& draw, const Plan& plan, uint32_t number, bool onChild, size_t bytes) {
  Call call;
  call.number = number;
  call.function = static_cast<Function>(draw.below(kWithoutWindows));
  call.type = draw.below(ncclNumTypes);
  call.op = draw.below(6);
  const bool powerOfTwo = (plan.ranks & (plan.ranks - 1)) == 0 && !onChild;
  if (call.op == ncclAvg && isFloat(call.type) && !powerOfTwo) call.op = ncclSum;
  call.root = onChild ? 0 : draw.below(plan.ranks);
  call.inPlace = draw.chance(30);
  const bool blocks = call.function == Function::kReduceScatter || call.function == Function::kAllGather ||
                      call.function == Function::kAllToAll || call.function == Function::kGather ||
                      call.function == Function::kScatter;
  const size_t parts = blocks ? static_cast<size_t>(plan.ranks) : 1;
  call.count = bytes / sizeOf(call.type) / parts;
  if (bytes > 0 && call.count == 0) call.count = 1;
  return call;
}

struct Drawer {
  Plan& plan;
  Draw& draw;
  bool heavy;
  uint32_t number = 1;

  Step calls(bool onChild) {
    Step step;
    step.onChild = onChild;
    const int many = draw.chance(20) ? draw.between(2, 4) : 1;
    // Twelve ranks or a group of large ones would take the time of many rounds.
    const size_t share = static_cast<size_t>(many * std::max(1, plan.ranks / 4));
    for (int i = 0; i < many; ++i) {
      step.calls.push_back(drawCall(draw, plan, number++, onChild, drawBytes(draw, heavy) / share));
    }
    step.memory = draw.below(4);
    step.synchronise = draw.chance(60);
    return step;
  }

  Split split() {
    Split made;
    const int colours = draw.between(1, 2);
    for (int rank = 0; rank < plan.ranks; ++rank) {
      made.colours.push_back(draw.chance(8) ? kNobody : draw.below(colours));
      made.keys.push_back(draw.between(-3, 3));
    }
    return made;
  }

  Step child() {
    Step step;
    if (plan.ranks > 2 && draw.chance(40)) {
      step.what = Step::Do::kShrink;
      step.child.colours.assign(static_cast<size_t>(plan.ranks), 0);
      step.child.keys = step.child.colours;
      step.child.colours[static_cast<size_t>(draw.below(plan.ranks))] = kNobody;
      return step;
    }
    step.what = Step::Do::kSplit;
    step.child = split();
    if (!draw.chance(40)) return step;
    for (int more = draw.between(1, 3); more > 0; --more) step.further.push_back(split());
    return step;
  }

  // A child of some ranks, which grows by the others.
  void growth() {
    Step part, whole;
    part.what = Step::Do::kSplit;
    whole.what = Step::Do::kGrow;
    const int sure = draw.below(plan.ranks), out = otherRank(sure);
    for (int rank = 0; rank < plan.ranks; ++rank) {
      const bool joins = rank == out || (rank != sure && draw.chance(30));
      part.child.colours.push_back(joins ? kNobody : 0);
      part.child.keys.push_back(draw.between(-3, 3));
      whole.joins.push_back(joins);
    }
    const std::vector<int> members = membersOf(part.child, sure);
    int behind = static_cast<int>(members.size());
    for (int rank = 0; rank < plan.ranks; ++rank) {
      const auto at = std::find(members.begin(), members.end(), rank);
      whole.child.colours.push_back(0);
      whole.child.keys.push_back(at == members.end() ? behind++ : static_cast<int>(at - members.begin()));
    }
    plan.steps.push_back(part);
    if (draw.chance(50)) plan.steps.push_back(calls(true));
    plan.steps.push_back(whole);
    plan.steps.push_back(calls(true));
  }

  int otherRank(int rank) { return (rank + draw.between(1, plan.ranks - 1)) % plan.ranks; }

  void all() {
    const int many = draw.between(3, 7);
    const bool grows = plan.kind == Kind::kGrow;
    const bool mustSplit = plan.kind == Kind::kSplit || grows;
    const int splitAt = mustSplit || draw.chance(25) ? draw.below(many) : -1;
    for (int i = 0; i < many; ++i) {
      if (i == splitAt) {
        if (grows) {
          growth();
        } else {
          plan.steps.push_back(child());
        }
        for (int more = draw.between(0, 2); more > 0; --more) plan.steps.push_back(calls(true));
        if (draw.chance(70)) {
          plan.steps.emplace_back().what = Step::Do::kDrop;
        }
      }
      plan.steps.push_back(calls(false));
    }
    for (Step& step : plan.steps) {
      if (!draw.chance(15)) continue;
      step.laggard = draw.below(plan.ranks);
      step.lag = draw.between(0, 3000);
    }
  }
};

int otherProcess(Draw& draw, const Plan& plan, int rank) {
  for (int tries = 0; tries < 100; ++tries) {
    const int other = draw.below(plan.ranks);
    const bool apart = plan.layout == Layout::kThreads || plan.processOf[other] != plan.processOf[rank];
    if (other != rank && apart) return other;
  }
  return (rank + 1) % plan.ranks;
}

// One that takes a rank from the others for good, as far as the layout allows.
Act drawLoss(Draw& draw, const Plan& plan) {
  constexpr Act kAny[] = {Act::kKill,  Act::kKill,        Act::kExit,
                          Act::kAbort, Act::kAbortThread, Act::kAbortThread};
  const int from = plan.layout == Layout::kThreads ? 3 : 0;
  return kAny[draw.between(from, 5)];
}

Event eventAt(Draw& draw, Act act, int rank, int step) {
  Event event;
  event.act = act;
  event.rank = rank;
  event.step = step;
  event.delay = draw.chance(70) ? draw.below(2000) : draw.below(20000);
  event.variant = draw.below(8);
  return event;
}

// Others wait for one rank while it happens.
void letWait(Plan& plan, Draw& draw, const Event& event, int percent) {
  if (!draw.chance(percent) || event.step < 0 || event.step >= plan.finalStep()) return;
  Step& step = plan.steps[static_cast<size_t>(event.step)];
  step.laggard = otherProcess(draw, plan, event.rank);
  step.lag = event.delay + draw.between(1000, 60000);
}

int callStep(Draw& draw, const Plan& plan) {
  return draw.below(plan.finalStep());
}

void drawSingle(Plan& plan, Draw& draw, Act act) {
  Event event = eventAt(draw, act, draw.below(plan.ranks), callStep(draw, plan));
  letWait(plan, draw, event, 30);
  plan.events.push_back(event);
}

void drawTwo(Plan& plan, Draw& draw, Act first) {
  const int step = callStep(draw, plan);
  Event one = eventAt(draw, first, draw.below(plan.ranks), step);
  Event two = eventAt(draw, plan.layout == Layout::kThreads ? Act::kAbortThread : drawLoss(draw, plan),
                      otherProcess(draw, plan, one.rank), step);
  two.follows = true;
  if (first == Act::kStop) two.delay += 20000;
  letWait(plan, draw, one, 20);
  plan.events = {one, two};
}

void drawFork(Plan& plan, Draw& draw) {
  drawSingle(plan, draw, Act::kFork);
  if (plan.layout == Layout::kThreads || !draw.chance(40)) return;
  Event kill = eventAt(draw, Act::kKill, plan.events[0].rank, plan.events[0].step);
  kill.follows = true;
  kill.delay += 5000;
  plan.events.push_back(kill);
}

void drawLeave(Plan& plan, Draw& draw) {
  plan.tail = plan.finalStep();
  plan.inTail.assign(static_cast<size_t>(plan.ranks), true);
  // By whole processes; who made the id goes first.
  const int gone = plan.makerRank;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    plan.inTail[static_cast<size_t>(rank)] = plan.processOf[rank] != plan.processOf[gone];
  }
  uint32_t number = 900;
  for (int i = draw.between(3, 5); i > 0; --i) {
    Step step;
    step.calls.push_back(drawCall(draw, plan, number++, false, drawBytes(draw, false)));
    step.calls[0].function = Function::kRing;
    if (i == 1) step.lag = 20000;
    plan.steps.push_back(step);
  }
  int victim = draw.below(plan.ranks);
  while (!plan.inTail[static_cast<size_t>(victim)]) victim = (victim + 1) % plan.ranks;
  plan.events.push_back(eventAt(draw, drawLoss(draw, plan), victim, plan.finalStep() - draw.between(1, 2)));
}

void drawInit(Plan& plan, Draw& draw) {
  const int victim = otherProcess(draw, plan, plan.makerRank);
  const int pick = draw.below(3);
  Event event = eventAt(draw,
                        pick == 0   ? Act::kKill
                        : pick == 1 ? Act::kExit
                                    : Act::kAbort,
                        victim, kInitStep);
  event.delay = 100000;
  if (event.act == Act::kAbort) plan.blocking = false;
  plan.events.push_back(event);
}

// The two names of a broadcast are one operation.
bool areOne(Function a, Function b) {
  const auto plain = [](Function one) { return one == Function::kBcast ? Function::kBroadcast : one; };
  return plain(a) == plain(b);
}

Quirk drawQuirk(Draw& draw, const Call& call) {
  constexpr Quirk kAll[] = {Quirk::kCount,   Quirk::kType, Quirk::kFunction, Quirk::kMissing,
                            Quirk::kSwapped, Quirk::kOp,   Quirk::kRoot};
  const Quirk quirk = kAll[draw.below(7)];
  const bool rooted = call.function == Function::kReduce || call.function == Function::kBroadcast ||
                      call.function == Function::kBcast || call.function == Function::kGather ||
                      call.function == Function::kScatter;
  if (quirk == Quirk::kOp && !isReduction(call.function)) return Quirk::kCount;
  if (quirk == Quirk::kRoot && !rooted) return Quirk::kType;
  return quirk;
}

// All of a disagreement's steps are single calls of the whole communicator, and no two in a row are the same
// function, so that whoever is a call ahead differs from the others. Between hosts nobody finds out that a
// transfer meets a collective, so there are none.
void drawDisagreement(Plan& plan, Draw& draw, bool net) {
  const int functions = net ? kCollectives : kWithoutWindows;
  std::erase_if(plan.steps, [](const Step& step) { return step.what != Step::Do::kCalls || step.onChild; });
  const Call* before = nullptr;
  for (Step& step : plan.steps) {
    step.calls.resize(1);
    Call& call = step.calls[0];
    call.count = std::max<size_t>(call.count, 3);
    step.synchronise = true;
    while (functions <= static_cast<int>(call.function) ||
           (before != nullptr && areOne(call.function, before->function))) {
      call.function = static_cast<Function>(draw.below(functions));
    }
    before = &call;
  }
  plan.odd = draw.below(plan.ranks);
  plan.quirkStep = draw.below(plan.finalStep() - 1);
  const Call& call = plan.steps[static_cast<size_t>(plan.quirkStep)].calls[0];
  plan.quirk = drawQuirk(draw, call);
  plan.quirkCall = call;
  Call& odd = plan.quirkCall;
  const Function next = plan.steps[static_cast<size_t>(plan.quirkStep) + 1].calls[0].function;
  switch (plan.quirk) {
    case Quirk::kCount:
      odd.count += static_cast<size_t>(draw.between(1, 3));
      break;
    case Quirk::kType:
      odd.type = (odd.type + 1) % ncclNumTypes;
      if (odd.op == ncclAvg) odd.op = ncclSum;
      break;
    case Quirk::kOp:
      odd.op = odd.op == ncclMax ? ncclMin : ncclMax;
      break;
    case Quirk::kRoot:
      odd.root = (odd.root + 1) % plan.ranks;
      break;
    case Quirk::kFunction:
      while (areOne(odd.function, call.function) || areOne(odd.function, next)) {
        odd.function = static_cast<Function>(draw.below(functions));
      }
      break;
    default:
      break;
  }
  odd.inPlace = false;
  plan.waits = draw.chance(60);
}

// Single calls that are awaited, since there is room for one; never in place, as all ranks must have the same
// in windows.
void moveIntoWindows(Plan& plan) {
  plan.windows = true;
  plan.finalise = false;
  std::erase_if(plan.steps, [](const Step& step) { return step.what != Step::Do::kCalls || step.onChild; });
  for (Step& step : plan.steps) {
    step.calls.resize(1);
    Call& call = step.calls[0];
    call.inPlace = false;
    if (call.function == Function::kBcast) call.function = Function::kBroadcast;
    call.count = std::min<size_t>(call.count, 100000 / sizeOf(call.type));
    step.synchronise = true;
  }
}

void drawOneSided(Plan& plan, Draw& draw) {
  moveIntoWindows(plan);
  for (Step& step : plan.steps) {
    if (draw.chance(70)) step.calls[0].function = Function::kPuts;
  }
  drawSingle(plan, draw, drawLoss(draw, plan));
}

void drawFault(Plan& plan, Draw& draw, const Options& options) {
  switch (plan.kind) {
    case Kind::kKill:
      return drawSingle(plan, draw, Act::kKill);
    case Kind::kTwo:
      return drawTwo(plan, draw, drawLoss(draw, plan));
    case Kind::kStop:
      return drawSingle(plan, draw, Act::kStop);
    case Kind::kStopFault:
      return drawTwo(plan, draw, Act::kStop);
    case Kind::kAbort:
      return drawSingle(plan, draw, Act::kAbort);
    case Kind::kAbortThread:
      return drawSingle(plan, draw, Act::kAbortThread);
    case Kind::kRevoke:
      return drawSingle(plan, draw, Act::kRevoke);
    case Kind::kDestroy:
      return drawSingle(plan, draw, Act::kDestroy);
    case Kind::kExit:
      return drawSingle(plan, draw, Act::kExit);
    case Kind::kFork:
      return drawFork(plan, draw);
    case Kind::kDisagree:
      return drawDisagreement(plan, draw, options.net);
    case Kind::kLeave:
      return drawLeave(plan, draw);
    case Kind::kInit:
      return drawInit(plan, draw);
    case Kind::kMaker:
    case Kind::kStrangers:
      if (!draw.chance(75)) return;
      drawSingle(plan, draw, drawLoss(draw, plan));
      plan.events[0].follows = plan.kind == Kind::kMaker;
      return;
    case Kind::kWindow:
      moveIntoWindows(plan);
      return drawSingle(plan, draw, drawLoss(draw, plan));
    case Kind::kOneSided:
      return drawOneSided(plan, draw);
    default:
      return;
  }
}

void drawPlaced(Plan& plan, Draw& draw) {
  Event event = eventAt(draw, drawLoss(draw, plan), draw.below(plan.ranks), plan.finalStep());
  if (plan.kind == Kind::kFinal) {
    if (event.act == Act::kAbort) event.act = Act::kAbortThread;
  } else {
    for (size_t i = 0; i < plan.steps.size(); ++i) {
      const Step::Do what = plan.steps[i].what;
      if (what == Step::Do::kSplit || what == Step::Do::kShrink) event.step = static_cast<int>(i);
    }
    if (draw.chance(15)) event.act = Act::kRevoke;
    letWait(plan, draw, event, 70);
  }
  plan.events.push_back(event);
}

// Of what serves every size and place; two-shot wants more than two ranks. Ranks that share a GPU neither
// pull nor use copy engines.
void drawDeviceAlgorithm(Plan& plan, Draw& draw) {
  static constexpr std::pair<const char*, const char*> kChoices[] = {
      {"ring", "simple"},      {"chain", "simple"},         {"flat", "simple"},
      {"push", "warp_chunks"}, {"one_shot", "warp_chunks"}, {"two_shot", "warp_chunks"}};
  const int fit = static_cast<int>(std::size(kChoices)) - (plan.ranks > 2 ? 0 : 1);
  std::tie(plan.algorithm, plan.protocol) = kChoices[draw.below(fit)];
}

// Mostly one that joins, while it does: a rank that is lost before anybody knows it is one that never comes.
void drawGrowth(Plan& plan, Draw& draw) {
  if (draw.chance(10)) return;
  int step = 0;
  while (plan.steps[static_cast<size_t>(step)].what != Step::Do::kGrow) ++step;
  if (draw.chance(15)) ++step;
  int victim = draw.below(plan.ranks);
  for (int tries = 0; tries < 3 && !plan.joinsAt(victim, step); ++tries) victim = draw.below(plan.ranks);
  Event event = eventAt(draw, drawLoss(draw, plan), victim, step);
  if (event.act == Act::kAbortThread) event.act = Act::kAbort;  // of all that it has
  if (plan.joinsAt(victim, step)) {
    event.delay = 100000;
    if (event.act == Act::kAbort) plan.blocking = false;
  } else {
    letWait(plan, draw, event, 50);
  }
  plan.events.push_back(event);
}

}  // namespace

const char* nameOf(Kind kind) {
  return kWeights[static_cast<size_t>(kind)].name;
}
const char* nameOf(Act act) {
  return kActNames[static_cast<size_t>(act)];
}
const char* nameOf(Function function) {
  return kFunctionNames[static_cast<size_t>(function)];
}
bool isReduction(Function function) {
  return function <= Function::kReduceScatter;
}
bool isTransfer(Function function) {
  return function >= Function::kRing;
}
size_t sizeOf(int type) {
  return kTypes[type].size;
}
const char* nameOfType(int type) {
  return kTypes[type].name;
}

uint64_t Draw::next() {
  state_ += 0x9e3779b97f4a7c15u;
  uint64_t x = state_;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

Plan makePlan(uint64_t seed, const Options& options) {
  Draw draw(seed);
  Plan plan;
  plan.seed = seed;
  plan.device = options.device;
  plan.kind = drawKind(draw, options);
  drawRanks(plan, draw, options);
  plan.blocking = draw.chance(70);
  plan.streams = draw.chance(35) || options.device;
  plan.finalise = draw.chance(30) || plan.kind == Kind::kLate;
  plan.makerRank = draw.chance(60) ? 0 : draw.below(plan.ranks);
  const bool byProcess = plan.kind != Kind::kLeave && plan.kind != Kind::kInit && draw.chance(15);
  plan.maker = plan.kind == Kind::kMaker || byProcess ? Maker::kProcess : Maker::kRank;
  plan.makerActs = draw.below(3);
  if (!options.device && draw.chance(30)) {
    const bool direct = draw.chance(70) && !options.net;  // which is for memory that ranks share
    plan.algorithm = direct ? "direct" : draw.chance(50) ? "ring" : "tree";
  }
  Drawer drawer{plan, draw, draw.chance(15)};
  drawer.all();
  if (plan.kind == Kind::kGrow) {
    drawGrowth(plan, draw);
  } else if (plan.kind == Kind::kSplit || plan.kind == Kind::kFinal) {
    drawPlaced(plan, draw);
  } else {
    drawFault(plan, draw, options);
  }
  const bool shrinks = plan.kind == Kind::kKill || plan.kind == Kind::kExit || plan.kind == Kind::kAbort ||
                       plan.kind == Kind::kAbortThread || plan.kind == Kind::kMaker ||
                       plan.kind == Kind::kSplit;
  const int at = draw.below(100);
  plan.aftermath = at < 25 && shrinks && plan.expectsErrors() ? Aftermath::kShrink
                   : at < 75                                  ? Aftermath::kAbort
                                                              : Aftermath::kDestroy;
  // Two shrinks without the same ranks are one to the library: some would recover, some still be at the
  // first.
  const bool planned = std::any_of(plan.steps.begin(), plan.steps.end(),
                                   [](const Step& step) { return step.what == Step::Do::kShrink; });
  if (planned && plan.aftermath == Aftermath::kShrink) plan.aftermath = Aftermath::kAbort;
  if (options.device && draw.chance(50)) drawDeviceAlgorithm(plan, draw);
  return plan;
}

}  // namespace hostile
