// The threads of one parallel region, which go through several steps of work together.
//
// A region of its own for every step would put the threads to sleep and wake them hundreds of times a pass: with
// passive waiting, which processes that share cores need, each time costs tens of microseconds.

#pragma once

#include <omp.h>
#include <sched.h>
#include <stdint.h>

enum { SPINS = 1000 };  // some 20 microseconds of hope, then others may have the core

typedef struct {
  int64_t next;  // first piece of the step that nobody has taken
  int32_t arrived, round;
} Meeting;

typedef struct {
  Meeting *meeting;  // one for all
  int32_t size;
} Team;

static inline Team join(Meeting *meeting) { return (Team){meeting, omp_get_num_threads()}; }

// The first of `count` pieces that are the caller's now. Which thread does what changes no result.
static inline int64_t take(Team team, int64_t count) {
  return __atomic_fetch_add(&team.meeting->next, count, __ATOMIC_RELAXED);
}

// Ends a step: returns when all threads have come, with no piece of the next step taken.
static inline void meet(Team team) {
  Meeting *meeting = team.meeting;
  int32_t round = __atomic_load_n(&meeting->round, __ATOMIC_RELAXED);
  if (__atomic_add_fetch(&meeting->arrived, 1, __ATOMIC_ACQ_REL) == team.size) {
    meeting->arrived = 0;
    meeting->next = 0;
    __atomic_store_n(&meeting->round, round + 1, __ATOMIC_RELEASE);
    return;
  }
  for (int spins = 0; __atomic_load_n(&meeting->round, __ATOMIC_ACQUIRE) == round; spins++) {
#ifdef __x86_64__
    if (spins < SPINS) __builtin_ia32_pause();
#endif
    if (spins >= SPINS) sched_yield();
  }
}

// Pieces to take at a time, so that a thread which is late holds up little.
static inline int64_t share_of(Team team, int64_t pieces) {
  int64_t share = pieces / (4 * team.size);
  return team.size == 1 ? pieces : (share > 1 ? share : 1);
}
