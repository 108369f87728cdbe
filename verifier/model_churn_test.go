package verifier_test

import (
	"math"

	"plugpull/internal/ledger"
	"plugpull/internal/workload"
	"plugpull/verifier"
)

// churn judges a stream session by session, and then the rows between them.
func (m *model) churn(s workload.Stream, low workload.Seq) {
	numbers := m.numbers(s, low)
	inside := map[workload.Seq]bool{}
	for _, sp := range m.spans[s] {
		if !m.inScope(sp.session) {
			continue
		}
		var of []workload.Seq
		for _, n := range numbers {
			if n >= sp.first && n <= sp.last {
				of, inside[n] = append(of, n), true
			}
		}
		c := churnSession{m: m, s: s, low: low, numbers: of, want: map[workload.Seq]workload.Version{},
			touched: map[workload.Seq]workload.Seq{}, charge: map[workload.Seq]verifier.Class{}}
		c.execute()
		c.compare()
		c.report()
	}
	for _, n := range numbers {
		_, there := m.scan.db[workload.TableChurn][s][n]
		if !inside[n] && there && m.readable(s, low, n) && m.standing(id{s, n}) == never {
			m.want.charges[id{s, n}] = verifier.Phantom
		}
	}
}

// churnSession is what one session's operations must have left.
type churnSession struct {
	m       *model
	s       workload.Stream
	low     workload.Seq
	numbers []workload.Seq
	want    map[workload.Seq]workload.Version // zero: deleted
	touched map[workload.Seq]workload.Seq     // by key: the last operation that touched it
	charge  map[workload.Seq]verifier.Class   // by operation
}

func (c *churnSession) key(n workload.Seq) (row, bool) {
	r, ok := c.m.scan.db[workload.TableChurn][c.s][n]
	return r, ok && c.m.readable(c.s, c.low, n)
}

// execute replays the operations that happened. An unknown one did when its key is there.
func (c *churnSession) execute() {
	for _, n := range c.numbers {
		k := id{c.s, n}
		_, there := c.key(n)
		visible := c.m.readable(c.s, c.low, n)
		is := c.m.standing(k)
		if is == doubtful && visible {
			c.m.want.sightings[k] = ledger.PinAbsent
			if there {
				c.m.want.sightings[k] = ledger.PinPresent
			}
		}
		if is != certain && !(is == doubtful && there) {
			continue
		}
		if there {
			c.m.live[k] = true
		}
		if !visible {
			c.blame(n, verifier.Unreadable)
		}
		c.touch(n, n, 1)
		if n > window {
			c.touch(n-window, n, 2)
		}
		if n > 2*window {
			c.touch(n-2*window, n, 0)
		}
	}
}

func (c *churnSession) touch(key, op workload.Seq, v workload.Version) {
	if _, ok := c.want[key]; ok || key == op {
		c.want[key], c.touched[key] = v, op
	}
}

func (c *churnSession) compare() {
	for _, n := range c.numbers {
		r, there := c.key(n)
		v, happened := c.want[n]
		switch {
		case !c.m.readable(c.s, c.low, n), c.nobodys(n):
		case !happened:
			if there {
				c.blame(n, verifier.Phantom)
			}
		case there && r.damage != whole:
			c.blame(c.touched[n], verifier.Corrupt)
		case v == 0:
			if there {
				c.blame(c.touched[n], verifier.Resurrected)
			}
		case !there:
			if !c.undecided(n + 2*window) {
				c.blame(c.touched[n], lost)
			}
		case v == 2 && r.version == 1:
			c.blame(c.touched[n], verifier.Stale)
		case v == 1 && r.version == 2 && !c.undecided(n+window):
			if c.m.fact(id{c.s, n + window}).outcome != 0 && c.has(n+window) {
				c.blame(n+window, verifier.Phantom)
			} else {
				c.blame(n, verifier.Phantom)
			}
		}
	}
}

func (c *churnSession) has(n workload.Seq) bool {
	for _, k := range c.numbers {
		if k == n {
			return true
		}
	}
	return false
}

// nobodys reports that an operation on the key was charged before.
func (c *churnSession) nobodys(key workload.Seq) bool {
	for _, n := range []workload.Seq{key, key + window, key + 2*window} {
		sent := n == key || c.m.fact(id{c.s, n}).outcome != 0
		if c.has(n) && sent && c.m.standing(id{c.s, n}) == settled {
			return true
		}
	}
	return false
}

// undecided reports that nobody can say whether operation n happened.
func (c *churnSession) undecided(n workload.Seq) bool {
	k := id{c.s, n}
	return c.has(n) && c.m.standing(k) == doubtful && !c.m.readable(c.s, c.low, n)
}

// blame charges an operation; of several classes the first in precedence stands.
func (c *churnSession) blame(n workload.Seq, class verifier.Class) {
	precedence := map[verifier.Class]int{0: math.MaxInt, verifier.Unreadable: 1, verifier.Corrupt: 2, lost: 3,
		verifier.Stale: 4, verifier.Resurrected: 5, verifier.Phantom: 6}
	if precedence[class] < precedence[c.charge[n]] {
		c.charge[n] = class
	}
}

func (c *churnSession) report() {
	for n, class := range c.charge {
		switch class {
		case lost, verifier.Stale, verifier.Resurrected:
			c.m.gone[id{c.s, n}] = class
		default:
			c.m.want.charges[id{c.s, n}] = class
		}
	}
}
