// The explorer's definitions; included by explorer.hpp alone.
#pragma once

#include <cstdlib>
#include <initializer_list>
#include <utility>

namespace stretto::model {

inline Explorer::Explorer(const Model& model, Options options) : model_(model), options_(options), seen_(8) {
  collectItems();
  bitsAt_ = model_.actors.size();
  cellsAt_ = bitsAt_ + (items_.size() + 7) / 8;
  width_ = (cellsAt_ + static_cast<size_t>(model_.ranks * model_.cells) + 7) / 8 * 8;
  seen_ = StateSet(width_);
  scratch_.resize(width_);
}

// ---- what a program's steps leave for later

inline void Explorer::collectItems() {
  for (int actor = 0; actor < actors(); ++actor) {
    const auto& program = model_.actors[actor].program;
    if (program.size() > 255) std::abort();  // a program counter is one byte
    itemOfStep_.emplace_back(program.size(), -1);
    for (size_t index = 0; index < program.size(); ++index) {
      if (!isDeferred(program[index])) continue;
      itemOfStep_[actor][index] = static_cast<int>(items_.size());
      items_.push_back({actor, static_cast<int>(index), {}, {}});
      linkItem(static_cast<int>(items_.size()) - 1);
    }
  }
  if (items_.size() > 254) std::abort();  // so is a cell
  linkReaders();
}

// What has to land before this item may. Stores to one cell stay in program order; a released signal comes
// after everything to its peer and after every load; a signal that is not released only after the counter's
// earlier ones.
inline void Explorer::linkItem(int item) {
  const Step& step = stepOf(items_[item]);
  for (int other = 0; other < item; ++other) {
    if (items_[other].actor != items_[item].actor) continue;
    const Step& earlier = stepOf(items_[other]);
    bool sameCell = isWrite(earlier.verb) && earlier.rank == step.rank && earlier.cell == step.cell;
    bool sameCounter =
        earlier.verb == Verb::kSignal && earlier.rank == step.rank && earlier.cell == step.cell;
    bool samePeer = earlier.rank == step.rank || earlier.verb == Verb::kRead;
    bool first = step.verb == Verb::kSignal ? sameCounter || (step.ordered && samePeer) : sameCell;
    if (first) items_[item].before.push_back(other);
  }
}

inline void Explorer::linkReaders() {
  for (int actor = 0; actor < actors(); ++actor) {
    const auto& program = model_.actors[actor].program;
    for (int index = 0; index < static_cast<int>(program.size()); ++index) {
      const Step& read = program[index];
      if (!model::isRead(read.verb)) continue;
      touches_.push_back({actor, index, itemOfStep_[actor][index]});
      for (Item& item : items_) {
        const Step& write = stepOf(item);
        bool match = isWrite(write.verb) && write.verb != Verb::kClear && write.rank == read.rank &&
                     write.cell == read.cell && write.tag == read.tag;
        if (match) item.readers.push_back(static_cast<int>(touches_.size()) - 1);
      }
    }
  }
}

// ---- what may move

// What the counter holds. One actor moves it, and its signals to one counter land in order.
inline int Explorer::count(const uint8_t* s, const Step& wait) const {
  int value = 0;
  for (size_t item = 0; item < items_.size(); ++item) {
    const Step& step = stepOf(items_[item]);
    bool moved = step.verb == Verb::kSignal && step.rank == wait.rank && step.cell == wait.cell;
    if (moved && landed(s, static_cast<int>(item))) value = std::max(value, step.value);
  }
  return value;
}

// A cell never written holds flag 0. A word put without a flag may have any bits where a reader looks for
// one, so it may look ready.
inline bool Explorer::looksReady(const uint8_t* s, const Step& step) const {
  int content = cellOf(s, step);
  bool empty = content == 0 || stepOf(items_[content - 1]).verb == Verb::kClear;
  if (step.ready == Ready::kNotSentinel) return !empty;
  if (!empty && stepOf(items_[content - 1]).verb == Verb::kPut) return true;
  int flag = empty ? 0 : stepOf(items_[content - 1]).tag.epoch;
  return step.ready == Ready::kAtLeast ? flag >= step.value : flag != step.value;
}

inline bool Explorer::joined(const uint8_t* s, int actor) const {
  auto joinsBefore = [&](int other, int end) {
    const auto& program = model_.actors[other].program;
    return std::count_if(program.begin(), program.begin() + end,
                         [](const Step& step) { return step.verb == Verb::kJoin; });
  };
  auto mine = joinsBefore(actor, s[actor]);
  for (int other = 0; other < actors(); ++other) {
    if (model_.actors[other].rank != model_.actors[actor].rank) continue;
    const auto& program = model_.actors[other].program;
    bool at = s[other] < program.size() && program[s[other]].verb == Verb::kJoin;
    if (joinsBefore(other, s[other]) + at <= mine) return false;
  }
  return true;
}

// Everything the actor has issued has landed; with `touching`, only its stores to that cell are asked about.
inline bool Explorer::drained(const uint8_t* s, int actor, const Step* touching) const {
  for (size_t i = 0; i < items_.size(); ++i) {
    int item = static_cast<int>(i);
    if (items_[i].actor != actor || !issued(s, item) || landed(s, item)) continue;
    const Step& step = stepOf(items_[i]);
    if (!touching || (isWrite(step.verb) && step.rank == touching->rank && step.cell == touching->cell))
      return false;
  }
  return true;
}

inline bool Explorer::enabled(const uint8_t* s, int actor) const {
  const auto& program = model_.actors[actor].program;
  if (s[actor] >= program.size()) return false;
  const Step& step = program[s[actor]];
  switch (step.verb) {
    case Verb::kWait:
      return count(s, step) >= step.value;
    case Verb::kReadLine:  // one's own store that is still on its way is what one would read: not ready
      return looksReady(s, step) && drained(s, actor, &step);
    case Verb::kFence:
      return drained(s, actor, nullptr);
    case Verb::kJoin:
      return joined(s, actor);
    default:
      return true;
  }
}

inline bool Explorer::canLand(const uint8_t* s, int item) const {
  if (!issued(s, item) || landed(s, item)) return false;
  return std::all_of(items_[item].before.begin(), items_[item].before.end(),
                     [&](int other) { return landed(s, other); });
}

inline bool Explorer::touchesNoCell(int move, const uint8_t* s) const {
  if (move >= actors()) return stepOf(items_[move - actors()]).verb == Verb::kSignal;
  const Step& step = model_.actors[move].program[s[move]];
  return isDeferred(step) || !model::isRead(step.verb);
}

inline void Explorer::listMoves(const uint8_t* s, std::vector<int>& moves) const {
  moves.clear();
  for (int actor = 0; actor < actors(); ++actor) {
    if (enabled(s, actor)) moves.push_back(actor);
  }
  for (size_t item = 0; item < items_.size(); ++item) {
    if (canLand(s, static_cast<int>(item))) moves.push_back(actors() + static_cast<int>(item));
  }
  if (!options_.reduce) return;
  auto alone = std::find_if(moves.begin(), moves.end(), [&](int move) { return touchesNoCell(move, s); });
  if (alone != moves.end()) moves = {*alone};
}

// ---- what a move does

inline Explorer::Outcome Explorer::apply(uint8_t* s, int move) const {
  if (move >= actors()) return land(s, move - actors());
  const Step& step = model_.actors[move].program[s[move]];
  ++s[move];
  return model::isRead(step.verb) && !isDeferred(step) ? readAt(s, step) : Outcome::kFine;
}

inline Explorer::Outcome Explorer::readAt(const uint8_t* s, const Step& step) const {
  int content = cellOf(s, step);
  bool right = content != 0 && stepOf(items_[content - 1]).tag == step.tag;
  return right ? Outcome::kFine : Outcome::kWrongPayload;
}

inline bool Explorer::consumed(const uint8_t* s, const Touch& touch) const {
  return touch.item >= 0 ? landed(s, touch.item) : s[touch.actor] > touch.index;
}

inline Explorer::Outcome Explorer::land(uint8_t* s, int item) const {
  s[bitsAt_ + item / 8] |= static_cast<uint8_t>(1 << (item % 8));
  const Step& step = stepOf(items_[item]);
  if (step.verb == Verb::kSignal) return Outcome::kFine;
  if (step.verb == Verb::kRead) return readAt(s, step);
  int before = std::exchange(*cellOf(s, step), static_cast<uint8_t>(item + 1));
  if (before == 0) return Outcome::kFine;
  const auto& readers = items_[before - 1].readers;
  bool unread = std::any_of(readers.begin(), readers.end(), [&](int t) { return !consumed(s, touches_[t]); });
  return unread ? Outcome::kLostUpdate : Outcome::kFine;
}

inline bool Explorer::done(const uint8_t* s) const {
  for (int actor = 0; actor < actors(); ++actor) {
    if (s[actor] < model_.actors[actor].program.size()) return false;
  }
  for (size_t item = 0; item < items_.size(); ++item) {
    if (!landed(s, static_cast<int>(item))) return false;
  }
  return true;
}

// Operations are numbered by their payloads' epochs: the next step's is the one that the actor is in.
inline int Explorer::epochOf(const uint8_t* s, int actor) const {
  const auto& program = model_.actors[actor].program;
  if (program.empty()) return 1;
  return s[actor] < program.size() ? program[s[actor]].tag.epoch : program.back().tag.epoch + 1;
}

inline int Explorer::lead(const uint8_t* s) const {
  int least = epochOf(s, 0), most = least;
  for (int actor = 1; actor < actors(); ++actor) {
    least = std::min(least, epochOf(s, actor));
    most = std::max(most, epochOf(s, actor));
  }
  return most - least;
}

inline int Explorer::firstOf(int actor, int epoch) const {
  const auto& program = model_.actors[actor].program;
  auto first =
      std::find_if(program.begin(), program.end(), [&](const Step& step) { return step.tag.epoch >= epoch; });
  return static_cast<int>(first - program.begin());
}

inline std::string Explorer::shapeOf(const uint8_t* s, int base) const {
  std::string shape;
  auto write = [&](std::initializer_list<int> numbers) {
    for (int number : numbers) shape += static_cast<char>(number);
  };
  for (int actor = 0; actor < actors(); ++actor) {
    int epoch = epochOf(s, actor);
    write({epoch - base, s[actor] - firstOf(actor, epoch)});
  }
  for (int cell = 0; cell < model_.ranks * model_.cells; ++cell) {
    int content = s[cellsAt_ + cell];
    if (content == 0) continue;
    const Step& step = stepOf(items_[content - 1]);
    write({cell, static_cast<int>(step.verb), step.tag.source, step.tag.epoch - base, step.tag.sequence});
  }
  for (size_t i = 0; i < items_.size(); ++i) {
    const Item& item = items_[i];
    if (!issued(s, static_cast<int>(i)) || landed(s, static_cast<int>(i))) continue;
    int epoch = stepOf(item).tag.epoch;
    write({-1, item.actor, epoch - base, item.index - firstOf(item.actor, epoch)});
  }
  return shape;
}

inline std::set<std::string> Explorer::shapesAt(int base) const {
  std::set<std::string> shapes;
  for (size_t at = 0; at < seen_.size(); ++at) {
    const uint8_t* s = seen_.row(at);
    int slowest = epochOf(s, 0);
    for (int actor = 1; actor < actors(); ++actor) slowest = std::min(slowest, epochOf(s, actor));
    if (slowest == base) shapes.insert(shapeOf(s, base));
  }
  return shapes;
}

// ---- the search

inline Verdict Explorer::run() {
  Verdict verdict;
  std::fill(scratch_.begin(), scratch_.end(), 0);
  seen_.insert(scratch_.data());
  origins_.push_back({0, 0});
  for (uint32_t at = 0; at < seen_.size(); ++at) {
    if (!expand(at, verdict) || seen_.size() > options_.limit) break;
    verdict.complete = at + 1 == seen_.size();
  }
  verdict.states = seen_.size();
  return verdict;
}

// False when the search is over because something is wrong.
inline bool Explorer::expand(uint32_t from, Verdict& verdict) {
  listMoves(seen_.row(from), moves_);
  if (moves_.empty()) {
    if (done(seen_.row(from))) return ++verdict.ends;
    verdict.deadlock = trace(from, -1);
    return false;
  }
  verdict.largestLead = std::max(verdict.largestLead, lead(seen_.row(from)));
  for (int move : moves_) {
    ++verdict.moves;
    std::copy_n(seen_.row(from), width_, scratch_.data());
    Outcome outcome = apply(scratch_.data(), move);
    if (outcome == Outcome::kWrongPayload) {
      verdict.wrongPayload = trace(from, move);
      return false;
    }
    if (outcome == Outcome::kLostUpdate && verdict.lostUpdate.empty()) verdict.lostUpdate = trace(from, move);
    if (seen_.insert(scratch_.data()).second) origins_.push_back({from, static_cast<uint16_t>(move)});
  }
  return true;
}

// ---- in words

inline std::string Explorer::who(int actor) const {
  const Actor& a = model_.actors[actor];
  bool several =
      std::any_of(model_.actors.begin(), model_.actors.end(), [](const Actor& b) { return b.coop > 0; });
  return "rank " + std::to_string(a.rank) + (several ? " coop " + std::to_string(a.coop) : "");
}

inline std::string Explorer::what(const Step& step) const {
  if (step.verb == Verb::kClear) return "the sentinel";
  return "(" + model_.unit + " " + std::to_string(step.tag.epoch) + ", part " +
         std::to_string(step.tag.sequence) + ", from rank " + std::to_string(step.tag.source) + ")";
}

inline std::string Explorer::describeStep(const uint8_t* s, int actor) const {
  const Step& step = model_.actors[actor].program[s[actor]];
  std::string cell = "cell " + std::to_string(step.cell), to = " to rank " + std::to_string(step.rank);
  std::string mine =
      step.rank == model_.actors[actor].rank ? "its " : "rank " + std::to_string(step.rank) + "'s ";
  int content = model::isRead(step.verb) ? cellOf(s, step) : 0;
  std::string held = content ? what(stepOf(items_[content - 1])) : "nothing";
  switch (step.verb) {
    case Verb::kPut:
      return who(actor) + " puts word " + what(step) + to + ", " + cell;
    case Verb::kPutLine:
      return who(actor) + " puts line " + what(step) + to + ", " + cell;
    case Verb::kClear:
      return who(actor) + " clears its " + cell;
    case Verb::kSignal:
      return who(actor) + " signals" + to + " for " + model_.unit + " " + std::to_string(step.tag.epoch);
    case Verb::kWait:
      return who(actor) + " has waited for count " + std::to_string(step.value) + " of counter " +
             std::to_string(step.cell) + " (" + model_.unit + " " + std::to_string(step.tag.epoch) + ")";
    case Verb::kRead:
      if (!step.ordered) return who(actor) + " issues a load of " + mine + cell + ", to find " + what(step);
      return who(actor) + " reads " + mine + cell + " for " + what(step) + " and finds " + held;
    case Verb::kReadLine:
      return who(actor) + " takes its " + cell + " as ready for " + what(step) + " and finds " + held;
    case Verb::kFence:
      return who(actor) + " has seen all its stores land";
    case Verb::kJoin:
      return who(actor) + " has been joined by its rank's other coops";
  }
  return "";
}

inline std::string Explorer::describeLanding(const uint8_t* s, int item) const {
  const Step& step = stepOf(items_[item]);
  std::string place = "rank " + std::to_string(step.rank) + "'s cell " + std::to_string(step.cell);
  if (step.verb == Verb::kSignal) {
    return "  " + who(items_[item].actor) + "'s signal for " + model_.unit + " " +
           std::to_string(step.tag.epoch) + " lands at rank " + std::to_string(step.rank);
  }
  int content = cellOf(s, step);
  std::string held = content ? what(stepOf(items_[content - 1])) : "nothing";
  if (step.verb == Verb::kRead) {
    return "  the load of " + place + " is performed: looked for " + what(step) + ", found " + held;
  }
  return "  " + what(step) + " lands in " + place + (content ? " over " + held : "");
}

inline std::string Explorer::describeWaiting(const uint8_t* s) const {
  std::string text;
  for (int actor = 0; actor < actors(); ++actor) {
    const auto& program = model_.actors[actor].program;
    if (s[actor] >= program.size()) continue;
    const Step& step = program[s[actor]];
    text += "  stuck: " + who(actor) + " waits for " + what(step) + "\n";
  }
  return text;
}

// The run that leads to a state and then makes one more move (-1: none, it is stuck).
inline std::string Explorer::trace(uint32_t state, int move) const {
  std::vector<std::pair<uint32_t, int>> path;
  if (move >= 0) path.emplace_back(state, move);
  for (uint32_t at = state; at != 0; at = origins_[at].parent)
    path.emplace_back(origins_[at].parent, origins_[at].move);
  std::reverse(path.begin(), path.end());
  std::string text;
  for (auto [at, made] : path) {
    const uint8_t* s = seen_.row(at);
    text += "  " + (made < actors() ? describeStep(s, made) : describeLanding(s, made - actors())) + "\n";
  }
  return move >= 0 ? text : text + describeWaiting(seen_.row(state));
}

}  // namespace stretto::model
