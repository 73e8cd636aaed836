/* close_compare.pml: the end of an epoch: a writer is lost, the replicas are compared, and the next epoch begins. docs/array.md, rules 7, 8, 10,
 * 11, 12; docs/repair.md; docs/models.md.
 *
 * Modelled: one block with a replica on each of three SSDs. The writer of opening 1 sends changes 1 and 2, that of opening 2 sends change 3; each
 * change may arrive at some SSDs and not at others, at any time, and each writer may be lost at any time. SSD 1 restarts, and forgets the
 * writer's floor. FAR is silent for a while, is out, comes back with what it had, is filled, and is *in* again, also while the replicas are
 * compared or a writer is open. The daemon may crash between any two commands.
 * A version has an order: 16 * opening + sequence. Copies have stamps in place of sequences, from STAMP. The contents of a change are its number.
 * Left out: trims by the writer (rebuild_window.pml), map versions and grants (map_out.pml: changes are refused by an SSD that is out), how an
 * epoch comes into force (epochs.pml), several blocks and their marks, ranges that a drive refuses or cannot read.
 *
 * Properties
 *   decided       (rule 11, invariant 5) after a comparison has ended, each replica that is *in* has what was decided, until the next opening
 *                 changes it; no restart, crash or return of an SSD undoes that
 *   equal         (rule 11) when an opening begins, all replicas that are *in* are equal
 *   acknowledged  (rules 5 and 8, invariant 3) a replica that is *in* never has less than the newest acknowledged change
 *
 * Processes
 *   Daemon   src/daemon/decisions/manager_close.cpp, src/daemon/decisions/reconcile.hpp (survey, choose, write, floor),
 *            src/daemon/decisions/rebuild.cpp, src/daemon/decisions/manager_out.cpp
 *   Ssd      src/deengine/front/command_check.cpp, src/deengine/front/vendor_commands.cpp (floor), src/deengine/shard/copies.hpp (order_to_put,
 *            remove_resolved)
 *   Writer   src/client/floor_tracker.hpp, include/gnstor/gnor/detail/resources/resolved.hpp
 */
#define FAR     2
#define CLOSED  15  /* the floor of a comparison: nvme::kClosedFloor */
#define STAMP   4   /* the first order of a copy, above all sequences: nvme::kFirstStamp */
#define CRASHES 1
#define OUTS    1

#define HAS_WRITER(r)   ((r) & 1)
#define OPENING(r)      (((r) + 1) / 2)
#define ORDER(o, s)     (16 * (o) + (s))
#define OPENING_OF(c)   ((c) == 0 -> 0 : ((c) == 3 -> 2 : 1))   /* of a change */
#define ORDER_OF(c)     ((c) == 3 -> ORDER(2, 1) : ORDER(1, c))

/* The daemon's store: revisions of the record as in epochs.pml. The first opening has begun. */
mtype = { IN, OUT, REBUILDING };
byte stored = 1;
mtype slot = IN;         /* of FAR */

/* The daemon's memory. */
mtype = { survey, compare, floors };
mtype phase = survey;    /* of the comparison */
byte at = 0;             /* the SSD that it sends to next */
bool equal = false;      /* the comparison has ended */
byte newest = 0, chosen = 0;  /* order and contents of the newest replica */
byte filled = 0;         /* of the rebuild: 1: the window is open, 2: the donor is read, 3: FAR is written */
byte got_order = 0, got_content = 0, got_floor = 0, got_opening = 0;  /* what the donor told */

/* The SSDs. Content 0: the block is not there. */
byte have[3] = 1;
byte order[3], content[3];
byte floor[3];           /* of the opening that the SSD knows */
byte highest[3];         /* sequence that it has seen in it */

/* The writer. */
byte change = 0;         /* the newest that was sent; earlier ones may still arrive */
byte resolved = 0;       /* its floor: a sequence of its opening */
bool doubt = false;      /* a change before it ended without an answer of every replica */
bool under_way = false;
byte acknowledged = 0;

bool cut = false;        /* FAR is silent, and has no grant left */
byte outs = 0, crashes = 0, restarts = 0;

/* What was decided, as a reader would see it. */
byte decided = 0;
bool settled = false;    /* of the newest opening */

#define WRITTEN(d)     ((d) != FAR || slot != OUT)
#define COMPARED(d)    ((d) != FAR || slot == IN)
#define REACHED(d)     ((d) != FAR || !cut)
#define SAME(a, b)     (content[a] == content[b])
#define ALL_EQUAL      (SAME(0, 1) && (slot != IN || SAME(0, FAR)))
#ifdef MUTATION_COMPARE_EARLY
#define ALL_CLOSED     true
#else
#define ALL_CLOSED     (have[0] == stored && have[1] == stored && (slot == OUT || have[FAR] == stored))
#endif

/* What an SSD tells of its floors. */
#define IS_CLOSED(d)   (WRITTEN(d) && floor[d] == CLOSED)
#define ANY_CLOSED     (IS_CLOSED(0) || IS_CLOSED(1) || IS_CLOSED(FAR))
#define ANY_OPEN       (floor[0] != CLOSED || floor[1] != CLOSED || (slot != OUT && floor[FAR] != CLOSED))
#define MAX(a, b)      ((a) > (b) -> (a) : (b))
#define WRITERS(d)     (WRITTEN(d) && floor[d] != CLOSED -> floor[d] : 0)
#define SEEN(d)        (WRITTEN(d) -> highest[d] : 0)
#define MAX3(f)        (MAX(f(0), MAX(f(1), f(FAR))))
#ifdef MUTATION_SOME_CLOSED_COUNTS
#define RESOLVED       (ANY_CLOSED || MAX3(SEEN) <= MAX3(WRITERS))
#else
#define RESOLVED       ((ANY_CLOSED && !ANY_OPEN) || (!ANY_CLOSED && MAX3(SEEN) <= MAX3(WRITERS)))
#endif
#ifdef MUTATION_NO_FLOOR_FOR_WHO_IS_AWAY
#define ALL_HERE       true
#else
#define ALL_HERE       (slot == IN)
#endif

/* A record reaches an SSD; the sequences of a new opening begin again. */
inline take_record(d, r) {
  if
  :: OPENING(r) != OPENING(have[d]) -> floor[d] = 0; highest[d] = 0
  :: else
  fi;
  have[d] = r
}

/* A version takes effect if it is newer than what is there (rule 7). */
inline put(d, o, c) {
  if
  :: o > order[d] -> order[d] = o; content[d] = c
  :: else
  fi;
  if
  :: o / 16 == OPENING(have[d]) && o % 16 > highest[d] -> highest[d] = o % 16
  :: else
  fi
}

/* An order of opening o above all that SSD d has put in it. */
#define STAMPED(d, o)  (ORDER(o, 0) + (order[d] / 16 == (o) && order[d] % 16 >= STAMP -> order[d] % 16 + 1 : STAMP))
#ifdef MUTATION_COPY_KEEPS_ORDER
#define STAMP_OR(d, o, own) (own)
#else
#define STAMP_OR(d, o, own) STAMPED(d, o)
#endif

/* The donor's resolved changes, as COPY READ tells them. */
#define IS_RESOLVED(x) ((x) / 16 < got_opening || ((x) / 16 == got_opening && (x) % 16 <= got_floor))
#define MIN(a, b)      ((a) < (b) -> (a) : (b))

/* COPY WRITE of a rebuild: order_to_put() and remove_resolved(). `o`: the newest opening that has ended, as far as the donor knows. */
inline put_copy() {
  o = MIN(got_opening, OPENING(have[FAR]));
  o = (o < got_opening || got_floor == CLOSED -> o : o - 1);
  if
  :: got_content == content[FAR] -> n = 0  /* a reader finds what the donor has */
  :: got_content != content[FAR] && got_order == 0 ->  /* absent: what is resolved is removed */
       n = (got_floor == CLOSED -> STAMPED(FAR, got_opening) : ORDER(got_opening, got_floor))
  :: got_content != content[FAR] && got_order != 0 && got_order / 16 <= o && order[FAR] / 16 <= o -> n = STAMP_OR(FAR, o, got_order)
  :: got_content != content[FAR] && got_order != 0 && !(got_order / 16 <= o && order[FAR] / 16 <= o) ->
       n = (order[FAR] > got_order && IS_RESOLVED(order[FAR]) -> ORDER(MIN(got_opening, OPENING(have[FAR])), got_floor) : got_order)
  fi;
  put(FAR, n, got_content);
  n = 0;
  o = 0
}

inline forget_comparison() { phase = survey; at = 0; newest = 0; chosen = 0 }
inline forget_rebuild() { filled = 0; got_order = 0; got_content = 0; got_floor = 0; got_opening = 0 }

inline may_crash() {
  if
  :: crashes < CRASHES -> crashes++; equal = false; forget_rebuild(); forget_comparison()
  :: true
  fi
}

/* Every option is atomic: it is one command to one SSD, or one change of the store, and what the daemon concludes from it at once. After each,
 * the daemon may crash. */
active proctype Daemon() {
  byte o, n;
end:
  do
  /* close_epoch(), at a release or the end of the lease: no writer, in the same epoch. */
  :: atomic { HAS_WRITER(stored) -> stored++; equal = false; under_way = false; forget_comparison(); may_crash() }

  /* activate(), catch_up(): SSDs take the newest record in any order. */
  :: atomic { have[0] != stored -> take_record(0, stored); may_crash() }
  :: atomic { have[1] != stored -> take_record(1, stored); may_crash() }
  :: atomic { have[FAR] != stored && slot != OUT && !cut -> take_record(FAR, stored); may_crash() }

  /* survey() of all SSDs, end_survey(). Atomic although it is one command an SSD: nothing but the daemon changes a closed volume. */
  :: atomic { !HAS_WRITER(stored) && !equal && phase == survey && ALL_CLOSED && (slot == OUT || !cut) ->
#ifdef MUTATION_NO_COMPARISON
       phase = floors;
#else
       if
       :: RESOLVED && (ALL_HERE || ANY_CLOSED) -> equal = true; settled = true; decided = content[0]
       :: RESOLVED && !(ALL_HERE || ANY_CLOSED) -> phase = floors
       :: !RESOLVED -> phase = compare;
            /* read(), choose(): the newest of all that are in. Absence is of the floor, but for that of a comparison. */
            for (at : 0 .. 2) {
              if
              :: COMPARED(at) ->
                   o = (order[at] != 0 -> order[at] : ORDER(OPENING(stored), (floor[at] == CLOSED -> 0 : floor[at])));
                   if
                   :: at == 0 || o > newest || (o == newest && content[at] > chosen) -> newest = o; chosen = content[at]
                   :: else
                   fi
              :: else
              fi
            }
            at = 0; o = 0
       fi;
#endif
       may_crash() }

  /* write(): what is missing, SSD by SSD, as a copy with a stamp. */
  :: atomic { phase == compare && REACHED(at) ->
       if
       :: COMPARED(at) && content[at] != chosen -> n = STAMP_OR(at, OPENING(stored), newest); put(at, n, chosen); n = 0
       :: else
       fi;
       at++;
       if
       :: at > 2 -> phase = floors; at = 0; newest = 0; chosen = 0
       :: else
       fi;
       may_crash() }

  /* floor(): first those that are in, FAR last, and what was copied to a slot that is rebuilding is copied again. The SSD stores it. */
  :: atomic { phase == floors && (REACHED(at) || slot == OUT) ->
       if
       :: WRITTEN(at) -> floor[at] = CLOSED
       :: else
       fi;
       at++;
#ifndef MUTATION_KEEPS_COPIED
       if
       :: at == FAR && slot != IN -> forget_rebuild()
       :: else
       fi;
#endif
       if
       :: at > 2 -> equal = true; settled = true; decided = content[0]; forget_comparison()
       :: else
       fi;
       may_crash() }

  /* open_volume() */
#ifdef MUTATION_OPEN_BEFORE_EQUAL
  :: atomic { !HAS_WRITER(stored) && OPENING(stored) < 3 ->
#else
  :: atomic { !HAS_WRITER(stored) && OPENING(stored) < 3 && equal ->
#endif
       assert(ALL_EQUAL);  /* equal */
       stored++; equal = false; settled = false; resolved = 0; doubt = false; may_crash() }

  /* take_out_silent(), take_back() with the newest record. The comparison begins again with the new map. */
  :: atomic { slot != OUT && cut -> slot = OUT; forget_rebuild(); forget_comparison(); may_crash() }
  :: atomic { slot == OUT && !cut -> take_record(FAR, stored); slot = REBUILDING; forget_rebuild(); forget_comparison(); may_crash() }

  /* rebuild.cpp: the target takes the donors' floor, and opens its window; a donor is read; FAR is written. */
  :: atomic { slot == REBUILDING && !cut && filled == 0 && have[FAR] == stored ->
       o = MAX((have[0] == stored -> floor[0] : 0), (have[1] == stored -> floor[1] : 0));
       if
       :: o == CLOSED && (floor[0] != CLOSED || floor[1] != CLOSED) -> o = 0
       :: else
       fi;
       if
       :: floor[FAR] < o -> floor[FAR] = o
       :: else
       fi;
       o = 0; filled = 1; may_crash() }
  :: atomic { slot == REBUILDING && filled == 1 && OPENING(have[0]) >= OPENING(have[FAR]) ->
       got_order = order[0]; got_content = content[0]; got_floor = floor[0]; got_opening = OPENING(have[0]); filled = 2 }
  :: atomic { slot == REBUILDING && filled == 1 && OPENING(have[1]) >= OPENING(have[FAR]) ->
       got_order = order[1]; got_content = content[1]; got_floor = floor[1]; got_opening = OPENING(have[1]); filled = 2 }
  :: atomic { slot == REBUILDING && !cut && filled == 2 && got_order / 16 <= OPENING(have[FAR]) ->
       put_copy(); forget_rebuild(); filled = 3; may_crash() }
  :: atomic { slot == REBUILDING && filled == 3 -> slot = IN; forget_rebuild(); forget_comparison(); may_crash() }
  od
}

#define SEQUENCE(c) ((c) == 3 -> 1 : (c))

#define IS_READ(d)        (COMPARED(d) && !((d) == FAR && cut))
#define IS_DECIDED(d)     (content[d] == decided || (!settled && OPENING_OF(content[d]) == OPENING(stored)))

/* Whether SSD d takes a change of opening o. */
#define ACCEPTS(d, o, sequence) (((d) != FAR || (slot != OUT && !cut)) && HAS_WRITER(have[d]) && OPENING(have[d]) == (o) && (sequence) > floor[d])

proctype Ssd(byte d) {
end:
  do
  /* A change arrives. Atomic: nothing lies between its check and its effect (rule 7). */
  :: atomic { change >= 1 && ACCEPTS(d, 1, 1) -> put(d, 17, 1) }
  :: atomic { change >= 2 && ACCEPTS(d, 1, 2) -> put(d, 18, 2) }
  :: atomic { change >= 3 && ACCEPTS(d, 2, 1) -> put(d, 33, 3) }
  /* FLOOR of the writer. */
  :: atomic { HAS_WRITER(have[d]) && have[d] == stored && (d != FAR || !cut) && floor[d] < resolved -> floor[d] = resolved }
  /* It restarts. The floor of a comparison is stored, that of the writer is not. */
  :: atomic { d == 1 && restarts < 1 -> restarts++;
       if
       :: floor[d] != CLOSED -> floor[d] = 0
       :: else
       fi;
       highest[d] = (order[d] / 16 == OPENING(have[d]) -> order[d] % 16 : 0) }
  /* A read: a step only where it would find what it must not, so that it costs no states. */
  :: atomic { IS_READ(d) && content[d] < acknowledged -> assert(!IS_READ(d) || content[d] >= acknowledged) }  /* acknowledged */
  :: atomic { IS_READ(d) && !IS_DECIDED(d) -> assert(!IS_READ(d) || IS_DECIDED(d)) }  /* decided */
  od
}

#define TAKEN(d) (!WRITTEN(d) || order[d] >= ORDER_OF(change))

active proctype Writer() {
end:
  do
  :: atomic { HAS_WRITER(stored) && !under_way && (OPENING(stored) == 1 && change < 2 || OPENING(stored) == 2 && change < 3) ->
       change = (OPENING(stored) == 2 -> 3 : change + 1); under_way = true }
  :: atomic { under_way && TAKEN(0) && TAKEN(1) && TAKEN(FAR) ->
       acknowledged = change; under_way = false;
       if
       :: !doubt -> resolved = SEQUENCE(change)
       :: else
       fi }
  /* It gives up: some replicas may have the change and others not, so the floor stays below it to the end of the opening. */
  :: atomic { under_way -> under_way = false; doubt = true;
#ifdef MUTATION_FLOOR_BEYOND_DOUBT
       resolved = SEQUENCE(change)
#endif
     }
  od
}

active proctype Partition() {
end:
  do
  :: atomic { !cut && outs < OUTS -> outs++; cut = true }
  :: atomic { cut -> cut = false }
  od
}

init {
  atomic { run Ssd(0); run Ssd(1); run Ssd(2) }
}
