/* map_out.pml: an SSD that is silent is taken out of the map, comes back, is filled, and is *in* again. docs/array.md, rules 2 to 5, 9, 10, 12;
 * docs/models.md.
 *
 * Modelled: one block with a replica on each of three SSDs, one of which (FAR) is behind a partition from the daemon, once or twice, though not
 * from the clients; a writer; readers with any map that was ever given out; the daemon, which may crash between any two commands and starts again
 * from its store. The writer may give up a write and begin the next one. A change, once sent under a version of the map, arrives at any SSD at
 * any later time, any number of times. The contents of the block are the sequence of the change that made them.
 * Left out: epochs and records (epochs.pml), trims (rebuild_window.pml), when grants end (grants.pml). A spare is as an SSD that comes back, but
 * empty; an SSD that restarts is as one that is silent. SSDs 0 and 1 always answer the daemon, and keep their grants.
 *
 * Properties
 *   read          (rules 5, 9 and 12) no SSD that a reader may ask returns less than the newest acknowledged change
 *   acknowledged  (rule 5; invariant 3 of docs/array.md) when a write is acknowledged, each replica that is in or rebuilding has it, or a newer one
 *   old map       (rule 2; invariant 1) after a map is in force, no SSD that has a grant serves under an older one
 *   in            (rule 12; invariant 10) an SSD becomes *in* with the newest acknowledged change, or a newer one
 *
 * Processes
 *   Daemon   src/daemon/decisions/manager_out.cpp (take_out_silent, take_back), src/daemon/decisions/manager_activate.cpp (activate_map, set_map),
 *            src/daemon/decisions/manager_replace.cpp (rebuild_some, end_rebuild), src/daemon/decisions/rebuild.hpp,
 *            src/daemon/decisions/manager_volumes.cpp (array)
 *   Ssd      src/deengine/front/command_check.cpp, src/deengine/front/vendor_commands.cpp (map_set), src/deengine/front/copy_commands.cpp
 *   Writer, readers   include/gnstor/gnor/detail/paths/lane_work.hpp (choose_targets)
 */
#define FAR      2
#ifndef VERSIONS
#define VERSIONS 4
#endif
#define WRITES   2
#define CRASHES  1
#define CUTS     2

/* The daemon's store: the newest version of the map, and the state of FAR's slot in each. Equal version, equal bytes. */
mtype = { IN, OUT, REBUILDING };
byte map = 1;
mtype slot[VERSIONS + 1];

/* The daemon's memory. */
byte told = 1;           /* the newest version that has been in force since its start; 0: none */
bool serves = true;      /* FAR took the map when it was last asked */
bool may_hold = true;    /* that FAR may hold a grant */
byte filled = 0;         /* of a rebuild: 1: the donor is read, 2: FAR is written */
byte copy = 0;           /* what was read */

/* The SSDs. */
byte version[3] = 1;      /* the version that is stored, and serves if there is a grant */
bool granted = true;     /* FAR has a grant */
byte block[3] = 0;

/* The clients. */
byte newest = 1;         /* version that was ever in force */
byte given = 2;          /* versions that clients may have; a bit each */
byte sequence = 0;       /* of the writer's present change, or its last one */
byte under = 1;          /* the writer's map */
bool writes = false;     /* a change is under way */
byte answered = 0;       /* SSDs that have answered with success under this map; a bit each */
byte sent[WRITES + 1];   /* versions under which a change was sent; a bit each */
byte acknowledged = 0;

bool cut = false;        /* FAR is silent to the daemon */
byte late = 0;           /* the version of a MAP SET on its way to FAR that the daemon has given up; 0: none */
byte cuts = 0, crashes = 0;

#define GRANTED(d)     ((d) != FAR || granted)
#define IS_WRITTEN(v)  (slot[v] != OUT)
#ifdef MUTATION_ACK_WITHOUT_REBUILDING
#define REPLICAS(v)    (slot[v] == IN -> 7 : 3)
#else
#define REPLICAS(v)    (slot[v] == OUT -> 3 : 7)
#endif
#ifdef MUTATION_READ_FROM_REBUILDING
#define IS_READ(v)     (slot[v] != OUT)
#else
#define IS_READ(v)     (slot[v] == IN)
#endif

#define IS_ASKED(d)    (GRANTED(d) && (given & (1 << version[d])) && ((d) != FAR || IS_READ(version[d])))  /* by some reader */

inline may_crash() {
  if
  :: atomic { crashes < CRASHES -> crashes++; goto start }
  :: true
  fi
}

/* A map reaches FAR with a grant. Atomic: the SSD answers what it accepted under the older map before (epochs.pml has the barrier). */
inline take_map(v) {
  if
  :: v >= version[FAR] -> version[FAR] = v; granted = true
  :: else
  fi
}

/* A new version of the map is stored. */
inline next_map(state) {
  map++; slot[map] = state; filled = 0; copy = 0
}

/* Clients may have this map now. Forgets what was sent under older ones: no SSD takes it any more, as `old map` asserts. */
inline in_force() {
  told = map; newest = map;
#ifndef MUTATION_OLD_MAP_ACCEPTED
  given = 1 << map;
  sent[1] = sent[1] & (1 << map); sent[2] = sent[2] & (1 << map)
#endif
}

active proctype Daemon() {
  goto serve;

start:  /* Its memory is gone. */
  atomic { told = 0; serves = false; filled = 0; copy = 0;
#ifdef MUTATION_START_WITHOUT_WAITING
    may_hold = false
#else
    may_hold = true
#endif
  }

serve:
end:
  do
  /* Time passes: grants.pml. A MAP SET that is still on its way is too old to begin a grant. */
  :: atomic { may_hold && !granted -> may_hold = false; late = 0 }

  /* take_out_silent() */
#ifdef MUTATION_OUT_WITH_GRANT
  :: atomic { !serves && slot[map] != OUT && map < VERSIONS ->
#else
  :: atomic { !serves && slot[map] != OUT && map < VERSIONS && !may_hold ->
#endif
       next_map(OUT) }
     may_crash();
     goto activate

  /* take_back() */
  :: atomic { slot[map] == OUT && !cut && map < VERSIONS ->
#ifdef MUTATION_BACK_AS_IN
       next_map(IN) }
#else
       next_map(REBUILDING) }
#endif
     may_crash();
     goto activate

  /* rebuild_some(): COPY READ of one donor, then COPY WRITE. Atomic: each is one command, under the map's version. */
#ifdef MUTATION_COPY_UNDER_OLDER_MAP
  :: atomic { slot[map] == REBUILDING && filled == 0 -> if :: copy = block[0] :: copy = block[1] fi; filled = 1 }
#else
  :: atomic { slot[map] == REBUILDING && filled == 0 && told == map && version[0] == map -> copy = block[0]; filled = 1 }
  :: atomic { slot[map] == REBUILDING && filled == 0 && told == map && version[1] == map -> copy = block[1]; filled = 1 }
#endif
  :: atomic { filled == 1 && !cut && granted && version[FAR] == map ->
#ifdef MUTATION_COPY_OVER_NEWER
       block[FAR] = copy;
#else
       if
       :: block[FAR] < copy -> block[FAR] = copy
       :: else
       fi;
#endif
       filled = 2; copy = 0 }

  /* end_rebuild() */
#ifdef MUTATION_IN_BEFORE_FILLED
  :: atomic { slot[map] == REBUILDING && told == map && map < VERSIONS ->
#else
  :: atomic { slot[map] == REBUILDING && told == map && map < VERSIONS && filled == 2 ->
#endif
       assert(block[FAR] >= acknowledged);  /* in */
       next_map(IN) }
     may_crash();
     goto activate

  /* activate_map(): sends the map, with a grant, to every SSD that is not out. A change that is not in force is tried again. */
  :: atomic { told != map || (slot[map] != OUT && !granted) -> skip }
activate:
     version[0] = map;
     may_crash();
     version[1] = map;
     may_crash();
     atomic {
       if
       :: slot[map] == OUT
       :: slot[map] != OUT && !cut -> take_map(map); serves = true; may_hold = true
       :: slot[map] != OUT && cut -> serves = false; may_hold = true  /* whether MAP SET was lost is unknown */
       :: slot[map] != OUT && cut && late == 0 -> serves = false; may_hold = true; late = map  /* arrives later */
       fi
     }
     atomic {
       if
       :: slot[map] == OUT || serves || !may_hold -> in_force()
       :: else
       fi
     }
  /* FAR has no grant left, and the others have taken the map: then it is in force without FAR. */
  :: atomic { told != map && version[0] == map && version[1] == map && !may_hold -> in_force() }
  od
}

/* Whether SSD d takes a change that was sent under its map. */
#ifdef MUTATION_OLD_MAP_ACCEPTED
#define ACCEPTS(d, s)  (GRANTED(d) && sent[s] != 0 && IS_WRITTEN(version[d]))
#define ANSWERS(d, s)  (s == sequence && writes)
#else
#define ACCEPTS(d, s)  (GRANTED(d) && (sent[s] & (1 << version[d])) && ((d) != FAR || IS_WRITTEN(version[d])))
#define ANSWERS(d, s)  (s == sequence && writes && under == version[d])
#endif

/* Atomic, as all that an SSD does with one command: no change of the map lies between its check and its effect (rule 7). */
inline take_change(d, s) {
  if
  :: block[d] < s -> block[d] = s
  :: else
  fi;
  if
  :: ANSWERS(d, s) -> answered = answered | (1 << d)
  :: else
  fi
}

proctype Ssd(byte d) {
end:
  do
  :: atomic { ACCEPTS(d, 1) -> take_change(d, 1) }
  :: atomic { ACCEPTS(d, 2) -> take_change(d, 2) }
  /* A read of any client: a step only where it would find less than it must, so that it costs no states. */
  :: atomic { GRANTED(d) && version[d] < newest -> assert(!GRANTED(d) || version[d] >= newest) }  /* old map */
  :: atomic { IS_ASKED(d) && block[d] < acknowledged -> assert(!IS_ASKED(d) || block[d] >= acknowledged) }  /* read */
  :: atomic { d == FAR && granted && (cut || !serves) -> granted = false }  /* its grant ends: it is not renewed in time */
  od
}

active proctype Writer() {
end:
  do
  :: atomic { !writes && sequence < WRITES -> sequence++; writes = true; answered = 0; sent[sequence] = sent[sequence] | (1 << under) }
  /* It is told a newer map: the whole set again, with the same sequence. */
  :: atomic { told == map && under != map ->
       under = map; answered = 0;
       if
       :: writes -> sent[sequence] = sent[sequence] | (1 << under)
       :: else
       fi }
  :: atomic { writes && (answered & REPLICAS(under)) == REPLICAS(under) ->
       acknowledged = sequence; writes = false; answered = 0;
       assert(block[0] >= sequence && block[1] >= sequence && (slot[under] == OUT || block[FAR] >= sequence)) }  /* acknowledged */
  :: atomic { writes -> writes = false; answered = 0 }  /* it gives up; the change may have been made or not */
  od
}

active proctype Partition() {
end:
  do
  :: atomic { !cut && cuts < CUTS -> cuts++; cut = true }
  :: atomic { cut -> cut = false }
  :: atomic { late != 0 -> take_map(late); late = 0 }
  :: atomic { late != 0 -> late = 0 }
  od
}

init {
  atomic { slot[1] = IN; run Ssd(0); run Ssd(1); run Ssd(2) }
}
