/* grants.pml: when the daemon may rely on the end of a grant. docs/array.md, rule 3; docs/models.md.
 *
 * Modelled: one SSD and the daemon, with clocks in ticks. A grant lasts GRANT ticks of the SSD's clock, counted from GRANT ASK. The SSD's clock
 * may be slow: of any GRANT + 1 ticks it may miss one. MAP SET may be lost, or arrive when the daemon has long given it up. The daemon may crash
 * and start again, and so may the SSD.
 * Left out: a clock that is fast or set (a grant that ends early harms nothing), suspended hosts, more than one SSD (grants are independent).
 *
 * Property (rule 3; what rules 2, 10 and 12 rely on): while the daemon holds that the SSD has no grant left, the SSD has none.
 * The other models take it as given.
 *
 * Processes
 *   Daemon   src/daemon/decisions/manager_grants.cpp (GrantBound, observe_time), src/daemon/decisions/manager_activate.cpp (set_map)
 *   Ssd      src/deengine/access/grant.hpp (ask, is_due, begin), src/deengine/front/vendor_commands.cpp (grant_ask, map_set)
 *   Time     both clocks
 */
#define GRANT    3
#define MARGIN   1  /* one percent and 10 ms; here the one tick that the SSD's clock may miss */
#define ASKS     4
#define RESTARTS 1
#define OPEN     255  /* granted since the daemon's clock was last read (GrantBound::open) */

/* The SSD. */
byte nonce = 0;     /* the newest that it has issued; 0: none since its boot */
byte age = 0;       /* ticks of its clock since it was issued; GRANT: too old for a grant */
byte left = 0;      /* of its grant; 0: it has none */
byte steady = 0;    /* ticks since its clock missed one */

/* The daemon: when the grant has certainly ended. It starts with what an earlier daemon may have granted. */
byte bound = OPEN;
byte asked = 0;     /* nonces issued so far: each is used once */
byte starts = 0, boots = 0;  /* again, of daemon and SSD */

#ifdef MUTATION_OLDER_READING
byte since = 0;     /* ticks since the daemon read its clock at the beginning of tick() */
#endif

/* MAP SET with a nonce, on its way; the network loses it, or delivers it whenever it likes. */
chan net = [2] of { byte };

inline check() { assert(bound != 0 || left == 0) }

/* Atomic: one command is one step of the thread that owns the SSD's front. */
active proctype Ssd() {
  byte n;
end:
  do
  :: atomic { net?n ->
       if
#ifdef MUTATION_ANY_NONCE
       :: nonce != 0 ->
#else
       :: nonce == n && age < GRANT ->
#endif
#ifdef MUTATION_COUNTED_FROM_RECEIPT
            left = GRANT;
#else
            left = GRANT - age;
#endif
            check()
       :: else
       fi;
       n = 0 }
  :: atomic { net?n -> n = 0 }  /* lost */
  :: atomic { boots < RESTARTS ->
       boots++; left = 0; age = 0;
#ifndef MUTATION_NONCE_OF_EARLIER_BOOT
       nonce = 0
#endif
     }
  od
}

/* One tick of the daemon's clock; the SSD's clock goes with it, or misses it. Atomic: an instant. */
active proctype Time() {
end:
  do
  :: atomic { true ->
#ifdef MUTATION_OLDER_READING
       since = (since < GRANT -> since + 1 : since);
#endif
       if
       :: bound != OPEN && bound != 0 -> bound--
       :: else
       fi;
       if
       :: true ->
            if :: left > 0 -> left-- :: else fi;
            if :: age < GRANT -> age++ :: else fi;
            if :: steady < GRANT -> steady++ :: else fi
       :: steady == GRANT -> steady = 0
       fi;
       check() }
  od
}

active proctype Daemon() {
  byte n;
end:
  do
  /* GRANT ASK and its answer. Atomic: that the answer may come late is the time until MAP SET is sent, below. */
  :: asked < ASKS;
#ifdef MUTATION_BOUND_BEFORE_ASK
     bound = GRANT + MARGIN;
#endif
#ifdef MUTATION_OLDER_READING
     since = 0;
#endif
     atomic { asked++; nonce = asked; age = 0; n = asked }
     if
     /* From here on the SSD may hold a grant, even if the answer is lost. */
     :: atomic { nfull(net) ->
#ifndef MUTATION_BOUND_BEFORE_ASK
          bound = OPEN;
#endif
          net!n }
     :: true  /* the answer to GRANT ASK was lost */
     fi;
     n = 0
  /* observe_time(): the first reading of the clock after a grant was sent. */
#ifdef MUTATION_OLDER_READING
  :: atomic { bound == OPEN -> bound = GRANT + MARGIN - since }
#endif
#ifdef MUTATION_NO_MARGIN
  :: atomic { bound == OPEN -> bound = GRANT }
#else
  :: atomic { bound == OPEN -> bound = GRANT + MARGIN }
#endif
  /* A new daemon knows nothing of the grants of its predecessor. */
  :: atomic { starts < RESTARTS -> starts++;
#ifdef MUTATION_START_WITHOUT_WAITING
       bound = 0; check()
#else
       bound = OPEN
#endif
     }
  od
}
