/* epochs.pml: leases, epochs, and when a change of a volume is in force. docs/array.md, rules 2, 6, 7, 11; docs/models.md.
 *
 * Modelled: two clients that open a volume for writing, write, release it or are lost, open it again, also each its own; the daemon, which may
 * crash between any two commands and starts again from its store; three SSDs, one of which (FAR) is behind a partition from the daemon for a
 * while, though not from the clients, and one of which may restart. A command of a client, once sent, arrives at any SSD at any later time, any
 * number of times. Leases end at any moment: no property may depend on them.
 * A volume's record is its revision here: odd ones name a writer, even ones do not. Opening o is revision 2 o - 1, its end is 2 o.
 * Left out: the map, which stays (map_out.pml); when grants end (grants.pml proves that the daemon learns of it late enough); what is compared
 * (close_compare.pml); other changes of the record, deletions, records that are lost.
 *
 * Properties
 *   in force   (rules 2 and 6) after the end of an opening was acknowledged, no SSD answers a change of it with success
 *   compared   (rules 7 and 11) when the comparison begins, every SSD has the end of the writer, and no change is under way on any of them
 *
 * Processes
 *   Daemon   src/daemon/decisions/manager_volumes.cpp (open_volume, release_volume), src/daemon/decisions/manager_activate.cpp (activate,
 *            catch_up), src/daemon/decisions/manager_close.cpp (may_compare, make_equal), src/daemon/decisions/manager_start.cpp (reconcile)
 *   Ssd      src/deengine/front/command_check.cpp, src/deengine/front/vendor_commands.cpp (volume_change), src/ssd/drive/command_path.cpp (answer)
 *   Client   src/client/volume.cpp
 */
#define SSDS     3
#define FAR      2
#define CLIENTS  2
#define OPENINGS 3
#define CRASHES  1

#define HAS_WRITER(r) ((r) & 1)
#define OPENING(r)    (((r) + 1) / 2)
#ifdef MUTATION_EPOCH_KEPT
#define EPOCH(o) ((o) != 0)
#else
#define EPOCH(o) (o)
#endif
#ifdef MUTATION_COMPARE_WITHOUT_SSD
#define ALL_HAVE_IT true
#else
#define ALL_HAVE_IT (!behind[0] && !behind[1] && !behind[2])
#endif

/* The daemon's store: the newest revision, and the writer of each opening. */
byte stored = 0;
byte writer[OPENINGS + 1];

/* The daemon's memory. */
bool in_force = true;
bool equal = true;          /* the replicas are known to be equal since the end of the last opening */
bool behind[SSDS];          /* SSDs that have not taken the newest record, which is in force without them */
bool may_hold[SSDS] = true; /* that an SSD may hold a grant */

/* The SSDs. */
byte have[SSDS];            /* the revision that is stored and active */
bool granted[SSDS] = true;
byte busy = 0;              /* the opening whose change FAR has accepted and not answered yet; 0: none. On the others that is one step */

/* What clients were told, and what they have sent. */
byte told = 0;              /* the newest revision that was acknowledged */
bool sent[OPENINGS + 1];    /* openings of which changes may arrive: all that were told */
chan request = [0] of { byte };  /* a client that asks to open the volume for writing */

bool cut = false;           /* FAR is silent to the daemon */
byte late = 0;              /* a record on its way to FAR that the daemon has given up; 0: none */
byte faults = 0, crashes = 0;

/* A record reaches an SSD. The SSD stores it behind a barrier: changes that were accepted before are answered first. Atomic: the barrier, and the
 * one thread of the SSD's front, are what make it so. Older records are refused. */
inline take_record(d, r) {
#ifdef MUTATION_NO_BARRIER
  true;
#else
  d != FAR || busy == 0;
#endif
  if
  :: have[d] < r -> have[d] = r
  :: else
  fi
}

/* VOLUME CHMOD, and its answer. Atomic: nobody sees a difference between an answer that is on its way and one that comes later. */
inline send_record(d, ok) {
  atomic {
    if
    :: d != FAR || !cut -> take_record(d, stored); ok = true
    :: d == FAR && cut -> ok = false
    :: d == FAR && cut && late == 0 -> late = stored; ok = false  /* arrives later */
    fi;
    if
    :: ok -> behind[d] = false
    :: else
    fi
  }
}

/* MAP SET with a grant, after what the SSD has missed. */
inline give_grant(d, ok) {
  ok = true;
#ifndef MUTATION_GRANT_BEFORE_CATCH_UP
  if
  :: behind[d] -> send_record(d, ok)
  :: else
  fi;
#endif
  atomic {
    if
    :: ok && (d != FAR || !cut) -> may_hold[d] = true; granted[d] = true
    :: ok && d == FAR && cut -> may_hold[d] = true  /* whether it was lost is unknown */
    :: !ok
    fi;
    ok = false
  }
}

inline may_crash() {
  if
  :: atomic { crashes < CRASHES -> crashes++; goto start }
  :: true
  fi
}

active proctype Daemon() {
  byte d, c, missed;
  bool ok, without;
  goto serve;

start:  /* Its memory is gone. It reads what every SSD has, and sends what one lacks; of FAR it may learn nothing. */
  atomic {
    for (d : 0 .. SSDS - 1) {
      behind[d] = have[d] != stored || (d == FAR && cut);
#ifdef MUTATION_START_WITHOUT_WAITING
      may_hold[d] = false
#else
      may_hold[d] = true
#endif
    }
    d = 0; c = 0; missed = 0; ok = false; without = false;
    equal = false;
#ifdef MUTATION_START_BELIEVES
    in_force = true; told = stored; behind[0] = false; behind[1] = false; behind[2] = false
#else
    in_force = !behind[0] && !behind[1] && !behind[2]
#endif
  }

serve:
end:
  do
  /* tick(): grants. */
  :: atomic { !granted[1] || !granted[FAR] ->
       if
       :: !granted[1] -> d = 1
       :: !granted[FAR] -> d = FAR
       fi }
     give_grant(d, ok); d = 0
  :: atomic { may_hold[FAR] && !granted[FAR] -> may_hold[FAR] = false }  /* time has passed: grants.pml */

  /* release_volume(), a lease that ends, or an opening of a volume that has a writer: the record names no writer, in the same epoch. */
  :: atomic { HAS_WRITER(stored) -> stored = stored + 1; equal = false; in_force = false }
     may_crash();
     goto activate

  /* open_volume() of a volume without a writer, after make_equal(). */
  :: atomic { equal && OPENING(stored) < OPENINGS -> request?c; stored = stored + 1; writer[OPENING(stored)] = c; equal = false; in_force = false }
     may_crash();
     goto activate

  /* A change that is pending is tried again; a client that waited for it was told to ask again. */
  :: atomic { !in_force -> c = 0 }
activate:
     atomic { without = true; missed = 0; d = 0 }
     do
     :: d < SSDS ->
          send_record(d, ok);
          atomic {
            if
            :: ok
            :: else -> missed = missed | (1 << d); without = without && !may_hold[d]
            fi;
            ok = false; d++
          }
          may_crash()
     :: else -> break
     od;
     atomic {
#ifdef MUTATION_IN_FORCE_AT_MAJORITY
       without = true;
#endif
       if
       :: missed == 0 || without ->
            in_force = true; told = stored;
            for (d : 0 .. SSDS - 1) { behind[d] = behind[d] || (missed & (1 << d)) }
            if
            :: c != 0 -> sent[OPENING(stored)] = true
            :: else
            fi
       :: else
       fi;
       d = 0; c = 0; missed = 0; without = false
     }

  /* make_equal(): the comparison needs every SSD, and each with the newest record. Atomic: what happens within is close_compare.pml. */
  :: atomic { !HAS_WRITER(stored) && !equal && in_force && !cut && ALL_HAVE_IT ->
       assert(have[0] == stored && have[1] == stored && have[2] == stored && busy == 0);  /* compared */
       equal = true }
  od
}

/* What a client that was told an opening sends is in `sent`. */
proctype Client(byte me) {
end:
  do
  :: request!me
  od
}

#ifdef MUTATION_EPOCH_UNCHECKED
#define ACCEPTS(d, o) (sent[o] && granted[d] && HAS_WRITER(have[d]))
#else
#define ACCEPTS(d, o) (sent[o] && granted[d] && HAS_WRITER(have[d]) && EPOCH(OPENING(have[d])) == EPOCH(o) && writer[OPENING(have[d])] == writer[o])
#endif
#ifdef MUTATION_ANSWER_WITHOUT_GRANT
#define MAY_ANSWER true
#else
#define MAY_ANSWER granted[FAR]
#endif

proctype Ssd(byte d) {
end:
  do
  /* A change that was sent in opening 1, 2 or 3 arrives. Atomic: check and acceptance are one step of the SSD's front. */
  :: atomic { d == FAR && busy == 0 && ACCEPTS(d, 1) -> busy = 1 }
  :: atomic { d == FAR && busy == 0 && ACCEPTS(d, 2) -> busy = 2 }
  :: atomic { d == FAR && busy == 0 && ACCEPTS(d, 3) -> busy = 3 }
  /* Of the other SSDs that and the answer are one step: a step only where it must not be, so that it costs no states. */
  :: atomic { d != FAR && ACCEPTS(d, 1) && told >= 2 -> assert(told < 2) }  /* in force */
  :: atomic { d != FAR && ACCEPTS(d, 2) && told >= 4 -> assert(told < 4) }
  :: atomic { d != FAR && ACCEPTS(d, 3) && told >= 6 -> assert(told < 6) }
  /* The change is durable, and answered: with success under a grant alone. */
  :: atomic { d == FAR && busy != 0 ->
       if
       :: MAY_ANSWER -> assert(told < 2 * busy)  /* in force */
       :: else
       fi;
       busy = 0 }
  :: atomic { d == FAR && granted[d] -> granted[d] = false }  /* its grant ends; those of the others are renewed in time */
  :: atomic { d == 1 && (faults & 2) == 0 -> faults = faults | 2; granted[d] = false }  /* it restarts */
  od
}

proctype Partition() {
end:
  do
  :: atomic { !cut && (faults & 1) == 0 -> faults = faults | 1; cut = true }
  :: atomic { cut -> cut = false }
  :: atomic { late != 0 -> take_record(FAR, late); late = 0 }
  :: atomic { late != 0 -> late = 0 }
  od
}

init {
  atomic {
    run Client(1); run Client(2);
    run Ssd(0); run Ssd(1); run Ssd(2);
    run Partition()
  }
}
