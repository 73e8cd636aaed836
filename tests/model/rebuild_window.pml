/* rebuild_window.pml: a block is copied to a slot that is rebuilding while it is written and trimmed. docs/array.md, rules 7, 8, 9, 12;
 * docs/repair.md, "Rebuild"; docs/models.md.
 *
 * Modelled: one block, a donor and a target. One opening, whose writer has up to two changes under way at once; each is a write or a trim. The
 * target was *in*, is out, rebuilding, and *in* again. Changes arrive in any order, any number of times. A trim leaves a tombstone that tells its
 * order, and each SSD drops it when the floor has passed it; an older write would take effect then, were it not refused for the floor.
 * The contents of the block are the sequence of the write that made them; 0: it is not there.
 * Left out: lost writers and the ends of epochs (close_compare.pml), map versions and grants (map_out.pml), full tables of tombstones, pages that
 * cannot be read, restarts (the window is lost, and the range begins again).
 *
 * Properties
 *   read   (rules 5, 9, 12) an SSD that is *in* has the newest acknowledged change or a newer one: contents of no older write, and no block missing
 *          but for a trim that is as new
 *   equal  (rules 8, 12) when all changes are acknowledged, and the target is *in*, both have the same
 *
 * Processes
 *   Daemon   src/daemon/decisions/rebuild.hpp (survey, floor, open, read, write)
 *   Ssd      src/deengine/shard/copies.hpp, src/deengine/shard/copy_windows.hpp, src/deengine/shard/changes.cpp,
 *            src/deengine/shard/tombstone_pruner.cpp
 *   Writer   src/client/floor_tracker.hpp
 */
#define DONOR   0
#define TARGET  1
#define CHANGES 3
#define AHEAD   2  /* changes under way at once */

mtype = { IN, OUT, REBUILDING };
mtype slot = IN;             /* of the target */
bool was_out = false;

/* The SSDs. */
byte data[2];                /* the write that is stored; 0: the block is not there */
byte tombstone[2];           /* the trim that is remembered; 0: none */
byte floor[2];
bool window = false;         /* the target's is open */
byte trimmed = 0;            /* the newest trim that it knows of */

/* The writer. A bit each of a change. */
byte sent = 0;               /* changes so far */
byte trims = 0, acknowledged = 0;
byte live = 0;               /* may still arrive, under the present map */
byte taken[2];               /* SSDs have answered it, under the present map */

/* The rebuild. */
mtype = { floor_step, survey_step, open_step, read_step, write_step, done };
mtype step = floor_step;
bool anything = false;
byte copy_data = 0, copy_trim = 0, copy_floor = 0;  /* what the donor told; data and trim 0: the block is not there */

#define BIT(s)         (1 << ((s) - 1))
#define NEWEST(mask)   ((mask) & 4 -> 3 : ((mask) & 2 -> 2 : (mask) & 1))
#define RESOLVED       ((acknowledged & 1) == 0 -> 0 : ((acknowledged & 2) == 0 -> 1 : ((acknowledged & 4) == 0 -> 2 : 3)))
#define STORED(d)      (data[d] != 0 -> data[d] : tombstone[d])
#define MAX(a, b)      ((a) > (b) -> (a) : (b))

/* What a reader finds is as new as the newest acknowledged change. */
#define IS_NEW(d)      (data[d] != 0 -> data[d] >= NEWEST(acknowledged) : NEWEST(trims) >= NEWEST(acknowledged))

/* A change of order s takes effect if it is newer than what is there. A tombstone below the floor is dropped at once. */
inline put_trim(d, s) {
  if
  :: d == TARGET && window && trimmed < s -> trimmed = s
  :: else
  fi;
  if
  :: s > STORED(d) -> data[d] = 0; tombstone[d] = (s <= floor[d] -> 0 : s)
  :: else
  fi
}

inline put_write(d, s, w) {
  if
  :: s > STORED(d) -> data[d] = w; tombstone[d] = 0
  :: else
  fi
}

inline take_change(d, s) {
  if
  :: trims & BIT(s) -> put_trim(d, s)
  :: else -> put_write(d, s, s)
  fi;
  taken[d] = taken[d] | BIT(s)
}

inline raise_floor(d, f) {
  if
  :: floor[d] < f -> floor[d] = f
  :: else
  fi;
  if
  :: tombstone[d] <= floor[d] -> tombstone[d] = 0
  :: else
  fi
}

/* Whether the block was trimmed in the window, or before, by what the donor had not seen. */
#ifdef MUTATION_COPY_OVER_TRIM
#define TRIMMED_SINCE false
#else
#ifdef MUTATION_WINDOW_WITHOUT_ORDERS
#define TRIMMED_SINCE (trimmed != 0)
#else
#define TRIMMED_SINCE (MAX(copy_data, copy_trim) <= trimmed && trimmed > copy_floor)
#endif
#endif

/* COPY WRITE. In the writer's own epoch nothing gets a stamp (close_compare.pml). */
inline put_copy() {
  if
  /* remove_resolved(): the donor has no block, and its floor tells of what is gone. */
  :: copy_data == 0 && copy_trim == 0 ->
       raise_floor(TARGET, copy_floor);
#ifndef MUTATION_KEEPS_RESOLVED
       if
       :: data[TARGET] != 0 -> put_trim(TARGET, copy_floor)
       :: else
       fi
#endif
  :: (copy_data != 0 || copy_trim != 0) && !TRIMMED_SINCE ->
       /* order_to_put(): a version that the target alone has, and that was resolved where the donor was read, gives way. */
       o = MAX(copy_data, copy_trim);
       n = MAX(STORED(TARGET), trimmed);
       o = (data[TARGET] != copy_data && n > o && n <= copy_floor -> copy_floor : o);
       if
       :: copy_data != 0 -> put_write(TARGET, o, copy_data)
       :: copy_data == 0 -> put_trim(TARGET, o)
       fi;
       o = 0; n = 0
  :: (copy_data != 0 || copy_trim != 0) && TRIMMED_SINCE
  fi
}

/* Every option is atomic: one command to one SSD. */
active proctype Daemon() {
  byte o, n;
end:
  do
  /* The map. What was answered under the older one does not count, and what is not acknowledged is sent again. */
  :: atomic { slot == IN && !was_out -> was_out = true; slot = OUT; live = live & ~acknowledged; taken[0] = 0; taken[1] = 0 }
  :: atomic { slot == OUT -> slot = REBUILDING; live = live & ~acknowledged; taken[0] = 0; taken[1] = 0 }
  :: atomic { slot == REBUILDING && step == done -> slot = IN; step = floor_step; window = false; trimmed = 0;
       live = live & ~acknowledged; taken[0] = 0; taken[1] = 0 }

  /* The donor is asked what it has; the target takes its floor, and then tells what it has itself. */
  :: atomic { slot == REBUILDING && step == floor_step ->
       anything = data[DONOR] != 0 || tombstone[DONOR] != 0; copy_floor = floor[DONOR]; step = survey_step }
  :: atomic { slot == REBUILDING && step == survey_step ->
       raise_floor(TARGET, copy_floor);
       copy_floor = 0; step = open_step }
  :: atomic { slot == REBUILDING && step == open_step ->
#ifndef MUTATION_TARGET_NOT_ASKED
       anything = anything || data[TARGET] != 0 || tombstone[TARGET] != 0;
#endif
       if
#ifdef MUTATION_READ_BEFORE_WINDOW
       :: anything -> copy_data = data[DONOR]; copy_trim = tombstone[DONOR]; copy_floor = floor[DONOR]; step = read_step
#else
       :: anything -> window = true; trimmed = tombstone[TARGET]; step = read_step
#endif
       :: !anything -> step = done  /* the range is empty on every SSD */
       fi;
       anything = false }
  :: atomic { step == read_step ->
#ifdef MUTATION_READ_BEFORE_WINDOW
       window = true; trimmed = tombstone[TARGET];
#else
       copy_data = data[DONOR]; copy_trim = tombstone[DONOR]; copy_floor = floor[DONOR];
#endif
       step = write_step }
  :: atomic { step == write_step -> put_copy(); copy_data = 0; copy_trim = 0; copy_floor = 0; step = done }
  od
}

#define SERVES(d)      ((d) == DONOR || slot != OUT)
#define ARRIVES(d, s)  (SERVES(d) && (live & BIT(s)) && (s) > floor[d])

proctype Ssd(byte d) {
end:
  do
  /* A change arrives. Atomic: nothing lies between its check and its effect (rule 7). */
  :: atomic { ARRIVES(d, 1) -> take_change(d, 1) }
  :: atomic { ARRIVES(d, 2) -> take_change(d, 2) }
  :: atomic { ARRIVES(d, 3) -> take_change(d, 3) }
  :: atomic { SERVES(d) && floor[d] < RESOLVED -> raise_floor(d, RESOLVED) }
  /* A step only where a reader finds what it must not, so that it costs no states. */
  :: atomic { (d == DONOR || slot == IN) && !IS_NEW(d) -> assert((d == TARGET && slot != IN) || IS_NEW(d)) }  /* read */
  od
}

#define IS_TAKEN(s)    ((taken[DONOR] & BIT(s)) && (slot == OUT || (taken[TARGET] & BIT(s))))

active proctype Writer() {
end:
  do
  :: atomic { sent < CHANGES && sent < RESOLVED + AHEAD ->
       sent++; live = live | BIT(sent);
       if
       :: trims = trims | BIT(sent)
       :: true
       fi }
  :: atomic { (live & 1) && !(acknowledged & 1) && IS_TAKEN(1) -> acknowledged = acknowledged | 1 }
  :: atomic { (live & 2) && !(acknowledged & 2) && IS_TAKEN(2) -> acknowledged = acknowledged | 2 }
  :: atomic { (live & 4) && !(acknowledged & 4) && IS_TAKEN(3) -> acknowledged = acknowledged | 4 }
  :: atomic { RESOLVED == sent && slot == IN && data[DONOR] != data[TARGET] -> assert(data[DONOR] == data[TARGET]) }  /* equal */
  od
}

init {
  atomic { run Ssd(DONOR); run Ssd(TARGET) }
}
