package verifier_test

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/ledger"
	"plugpull/internal/workload"
	"plugpull/verifier"
)

// seeds calls do for a number of seeds; PLUGPULL_LONG multiplies it, and
// PLUGPULL_SEED repeats a single one.
func seeds(t *testing.T, n uint64, do func(t require.TestingT, p workload.Profile, r *rand.Rand)) {
	first := uint64(1)
	if long, err := strconv.ParseUint(os.Getenv("PLUGPULL_LONG"), 10, 64); err == nil {
		n *= max(long, 1)
	}
	if seed, err := strconv.ParseUint(os.Getenv("PLUGPULL_SEED"), 10, 64); err == nil {
		first, n = seed, 1
	}
	for _, p := range workload.Profiles() {
		t.Run(string(p), func(t *testing.T) {
			for seed := first; seed < first+n; seed++ {
				f := &seeded{t: t, seed: seed}
				do(f, p, rand.New(rand.NewPCG(seed, uint64(len(p)))))
				if f.failed {
					t.FailNow()
				}
			}
		})
	}
}

// seeded adds the seed to every failure.
type seeded struct {
	t      *testing.T
	seed   uint64
	failed bool
}

func (s *seeded) Errorf(format string, args ...any) {
	s.t.Helper()
	s.failed = true
	s.t.Errorf("PLUGPULL_SEED="+strconv.FormatUint(s.seed, 10)+": "+format, args...)
}

func (s *seeded) FailNow() { s.t.FailNow() }

// TestModel compares what is found in random histories with random faults, over
// several sessions and verifications, with what an independent model of the rules finds.
func TestModel(t *testing.T) {
	seeds(t, 800, func(t require.TestingT, p workload.Profile, r *rand.Rand) {
		h := newHistory(p, r)
		charged := map[id]verifier.Class{}
		for range 1 + r.IntN(5) {
			if h.session == 0 || !h.chance(5) {
				h.run()
			}
			for range r.IntN(4) {
				h.suffer()
			}
			sc, evidence := h.scan(), ""
			if h.chance(8) {
				evidence = h.breakScan(sc)
			}
			from := uint32(0)
			if h.chance(3) {
				from = 1 + r.Uint32N(h.session)
			}
			res := compare(t, h.world, sc, from, evidence)
			if h.chance(8) {
				continue // the server had not been restarted: nothing is recorded
			}
			for k, class := range charges(t, res) {
				require.Zero(t, charged[k], "commit %v is charged %v again, now %v", k, charged[k], class)
				charged[k] = class
			}
			h.pin(res)
			if h.chance(3) {
				again := compare(t, h.world, sc, from, evidence)
				require.Zero(t, again.Counts, "the same rows are accused again")
				require.Empty(t, again.Pins)
			}
			if len(res.Unreadable) > 0 {
				h.nextEpoch()
				clear(charged) // an epoch has tables of its own
			}
		}
	})
}

// TestHonest shows that nothing is found where nothing was lost, whatever was
// refused, unknown, killed, stopped, verified twice or verified in part.
func TestHonest(t *testing.T) {
	seeds(t, 300, func(t require.TestingT, p workload.Profile, r *rand.Rand) {
		h := newHistory(p, r)
		for range 1 + r.IntN(8) {
			h.run()
			if h.chance(4) {
				h.nextEpoch()
				h.run()
			}
			from := uint32(0)
			if h.chance(2) {
				from = 1 + r.Uint32N(h.session)
			}
			res := compare(t, h.world, h.scan(), from, "")
			require.Zero(t, res.Counts, "an honest server is accused")
			require.Empty(t, res.Findings)
			require.Empty(t, res.Unreadable)
			if !h.chance(4) {
				h.pin(res)
			}
		}
	})
}

// compare verifies, and checks every count, finding and pin against the model.
func compare(t require.TestingT, w *world, sc *scan, from uint32, evidence string) *verifier.Result {
	in, err := w.input(sc, from, evidence)
	require.NoError(t, err)
	res, err := verifier.Verify(context.Background(), in)
	require.NoError(t, err)
	m := expect(w, sc, from, evidence)

	var counts verifier.Counts
	for _, class := range m.want.charges {
		add(&counts, class)
	}
	assert.Equal(t, m.want.charges, charges(t, res), "findings, from session %d", from)
	assert.Equal(t, counts, res.Counts)
	assert.Equal(t, m.want.acked, res.Acked, "acked")
	assert.Equal(t, m.want.window, res.LossWindow, "loss window")
	assert.Equal(t, m.want.bound, res.LossWindowBound, "bound of the loss window")

	// Recorded in their order, the pins must say of each number what was found of it.
	pins := map[id]ledger.PinClass{}
	for k, class := range m.want.charges {
		pins[k] = pinOf(class)
	}
	for k, class := range m.want.sightings {
		if pins[k] == 0 {
			pins[k] = class
		}
	}
	assert.Equal(t, pins, recorded(res), "pins, from session %d", from)
	for _, f := range res.Findings {
		k := m.fact(id{f.Stream, f.From})
		if k.outcome != ledger.Acked {
			k.answered = 0
		}
		assert.Equal(t, k.answered, f.Acked, "when %v was acknowledged", f)
		assert.Equal(t, k.session, f.Session, "session of %v", f)
		if f.Acked > 0 {
			assert.Equal(t, m.lastAck[k.session].Sub(f.Acked), f.BeforeLast)
		}
	}
	return res
}

// charges is every commit with a finding; each has one.
func charges(t require.TestingT, res *verifier.Result) map[id]verifier.Class {
	out := map[id]verifier.Class{}
	for _, f := range res.Findings {
		for n := f.From; ; n++ {
			k := id{f.Stream, n}
			require.Zero(t, out[k], "commit %v is charged twice: %v and %v", k, out[k], f.Class)
			out[k] = f.Class
			if n == f.To {
				break
			}
		}
	}
	return out
}

func recorded(res *verifier.Result) map[id]ledger.PinClass {
	out := map[id]ledger.PinClass{}
	for _, p := range res.Pins {
		for n := p.From; ; n++ {
			out[id{p.Stream, n}] = p.Class
			if n == p.To {
				break
			}
		}
	}
	return out
}

func add(c *verifier.Counts, class verifier.Class) {
	switch class {
	case verifier.Unreadable:
		c.Unreadable++
	case verifier.Corrupt:
		c.Corrupt++
	case verifier.Torn:
		c.Torn++
	case verifier.LostHole:
		c.LostHole++
	case verifier.LostTail:
		c.LostTail++
	case verifier.Stale:
		c.Stale++
	case verifier.Resurrected:
		c.Resurrected++
	case verifier.Phantom:
		c.Phantom++
	}
}

func pinOf(class verifier.Class) ledger.PinClass {
	return map[verifier.Class]ledger.PinClass{
		verifier.Unreadable: ledger.PinUnreadable, verifier.Corrupt: ledger.PinCorrupt, verifier.Torn: ledger.PinTorn,
		verifier.LostHole: ledger.PinLostHole, verifier.LostTail: ledger.PinLostTail, verifier.Stale: ledger.PinStale,
		verifier.Resurrected: ledger.PinResurrected, verifier.Phantom: ledger.PinPhantom}[class]
}
