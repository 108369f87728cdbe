package workload

import (
	"encoding/hex"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var run = uuid.MustParse("6f1d0c1e-3b7a-4c55-9a0e-5d2f8b7c4a19")

func params(least, most int) Params {
	return Params{Run: run, Profile: Append, PayloadMin: least, PayloadMax: most}
}

// TestPayloadVectors pins every byte: a change of the format would accuse all
// servers that hold rows of an older plugpull.
func TestPayloadVectors(t *testing.T) {
	p := params(0, 40)
	for _, v := range []struct {
		name string
		row  Row
		want string
	}{
		{"first", Row{TableAppend, 1, 1, 1, run, nil}, "349631ddd5661b8a08cd0baad2"},
		{"next number", Row{TableAppend, 1, 2, 1, run, nil}, "4021160042037f"},
		{"next stream", Row{TableAppend, 2, 1, 1, run, nil}, "541e8213f3c0ae1b416ff258c824e40b20df9dbcf3bbc9"},
		{"first half", Row{TableA, 1, 1, 1, run, nil}, "2ee68f5b8f5345f87e49"},
		{"second half", Row{TableB, 1, 1, 1, run, nil}, "47779b11345671f0c3360b547b44c243174d06df2fdc8da0157ca1ab9a02f48455ed861a"},
		{"head", Row{TableHead, 3, 7, 1, run, nil}, "0fb9"},
		{"last stream, great number", Row{TableChurn, 65535, 1 << 40, 1, run, nil}, "b3948c1b3bae194d2476f79b47ac2267"},
		{"the same, updated", Row{TableChurn, 65535, 1 << 40, 2, run, nil}, "333ac058cf5fe84b1053cc6048fb991794396a9be32362d82f64b1963e2f1a3c"},
	} {
		t.Run(v.name, func(t *testing.T) {
			r := v.row
			got := p.AppendPayload([]byte("kept"), r.Table, r.Stream, r.Seq, r.Version)
			assert.Equal(t, "kept", string(got[:4]), "appended to what was there")
			assert.Equal(t, v.want, hex.EncodeToString(got[4:]))
			r.Payload = got[4:]
			assert.True(t, p.Intact(&r))
		})
	}
}

// TestGenerator compares with the published first values of splitmix64 from seed 0.
func TestGenerator(t *testing.T) {
	var g generator
	assert.Equal(t, []uint64{0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4, 0x06c45d188009454f},
		[]uint64{g.next(), g.next(), g.next()})
}

// TestIntact rejects every change of a bit, a length or a field, at all lengths
// around a word.
func TestIntact(t *testing.T) {
	for size := range 34 {
		p := params(size, size)
		r := Row{Table: TableAppend, Stream: 3, Seq: 12, Version: 1, Run: run}
		good := p.AppendPayload(nil, r.Table, r.Stream, r.Seq, r.Version)
		require.Len(t, good, size)
		r.Payload = good
		require.True(t, p.Intact(&r), "%d bytes", size)

		for at := range good {
			for bit := range 8 {
				good[at] ^= 1 << bit
				require.False(t, p.Intact(&r), "%d bytes, bit %d of byte %d", size, bit, at)
				good[at] ^= 1 << bit
			}
		}
		for at := range r.Run {
			r.Run[at] ^= 1
			require.False(t, p.Intact(&r), "byte %d of the run id", at)
			r.Run[at] ^= 1
		}
		r.Payload = append(good[:size:size], 0)
		require.False(t, p.Intact(&r), "%d bytes and one more", size)
		if size > 0 {
			r.Payload = good[:size-1]
			require.False(t, p.Intact(&r), "%d bytes but one", size)
			r.Payload = good[1:]
			require.False(t, p.Intact(&r), "%d bytes but the first", size)
		}
		r.Payload = nil
		require.Equal(t, size == 0, p.Intact(&r), "no payload for one of %d bytes", size)
	}
}

// TestIntactKnowsItsRow: the bytes of one row are wrong in every other.
func TestIntactKnowsItsRow(t *testing.T) {
	p := params(16, 16)
	good := Row{TableAppend, 3, 12, 1, run, p.AppendPayload(nil, TableAppend, 3, 12, 1)}
	for name, change := range map[string]func(*Row){
		"table":           func(r *Row) { r.Table = TableA },
		"stream":          func(r *Row) { r.Stream++ },
		"number":          func(r *Row) { r.Seq++ },
		"number, high":    func(r *Row) { r.Seq |= 1 << 63 },
		"updated version": func(r *Row) { r.Version = 2 },
		"version 0":       func(r *Row) { r.Version = 0 },
		"version 3":       func(r *Row) { r.Version = 3 },
	} {
		r := good
		change(&r)
		assert.False(t, p.Intact(&r), name)
	}
	for v := range Version(4) {
		for _, table := range []Table{TableAppend, TableA, TableB, TableHead, TableChurn} {
			r := Row{table, 3, 12, v, run, p.AppendPayload(nil, table, 3, 12, v)}
			sent := v == 1 || v == 2 && table == TableChurn
			assert.Equal(t, sent, p.Intact(&r), "version %d of table %s is one that was sent", v, table)
		}
	}
	other := p
	other.Run[0]++
	assert.False(t, other.Intact(&good), "run")
}

// TestPayloadsDiffer: rows that a misdirected write could exchange share no first word.
func TestPayloadsDiffer(t *testing.T) {
	p := params(8, 8)
	seen := map[string]Row{}
	for table := TableAppend; table <= TableChurn; table++ {
		for s := range Stream(4) {
			for n := range Seq(500) {
				for v := Version(1); v <= 2; v++ {
					b := string(p.AppendPayload(nil, table, s, n, v))
					r := Row{Table: table, Stream: s, Seq: n, Version: v}
					if same, ok := seen[b]; ok {
						t.Fatalf("%+v and %+v have the same payload", same, r)
					}
					seen[b] = r
				}
			}
		}
	}
}

// TestSizes: payloads have every length between the bounds, about equally often.
func TestSizes(t *testing.T) {
	for _, c := range []struct{ least, most int }{{100, 400}, {0, 0}, {0, 7}, {16, 16}, {0, MaxPayload}} {
		p := params(c.least, c.most)
		span := c.most - c.least + 1
		rows := max(10_000, min(64*span, 20_000))
		count := make([]int, span)
		var b []byte
		for n := range rows {
			b = p.AppendPayload(b[:0], TableAppend, 1, Seq(n+1), 1)
			require.GreaterOrEqual(t, len(b), c.least)
			require.LessOrEqual(t, len(b), c.most)
			count[len(b)-c.least]++
		}
		quarter := 0
		for i, k := range count {
			if i < span/4 {
				quarter += k
			}
			if span < 1000 {
				assert.NotZero(t, k, "%d..%d: no payload of %d bytes", c.least, c.most, c.least+i)
			}
		}
		want := float64(rows) * float64(span/4) / float64(span)
		assert.InDelta(t, want, quarter, 0.03*float64(rows), "%d..%d: shortest quarter", c.least, c.most)
	}
}

func TestSteps(t *testing.T) {
	const w = MinWindow
	for _, c := range []struct {
		name    string
		profile Profile
		op      Op
		want    []Step
	}{
		{"append", Append, Op{2, 7, 1}, []Step{{Insert, TableAppend, 2, 7, 1}}},
		{"transfer", Transfer, Op{2, 7, 1}, []Step{{Insert, TableA, 2, 7, 1}, {Insert, TableB, 2, 7, 1}, {SetHead, TableHead, 2, 7, 1}}},
		{"churn: first of the session", Churn, Op{2, 101, 101}, []Step{{Insert, TableChurn, 2, 101, 1}}},
		{"churn: last that updates nothing", Churn, Op{2, 100 + w, 101}, []Step{{Insert, TableChurn, 2, 100 + w, 1}}},
		{"churn: updates the first key", Churn, Op{2, 101 + w, 101}, []Step{{Insert, TableChurn, 2, 101 + w, 1}, {Update, TableChurn, 2, 101, 2}}},
		{"churn: last that deletes nothing", Churn, Op{2, 100 + 2*w, 101}, []Step{{Insert, TableChurn, 2, 100 + 2*w, 1}, {Update, TableChurn, 2, 100 + w, 2}}},
		{"churn: deletes the first key", Churn, Op{2, 101 + 2*w, 101}, []Step{
			{Insert, TableChurn, 2, 101 + 2*w, 1}, {Update, TableChurn, 2, 101 + w, 2}, {Delete, TableChurn, 2, 101, 2}}},
		{"unknown profile", "mystery", Op{2, 7, 1}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := Params{Run: run, Profile: c.profile}
			if c.profile == Churn {
				p.Window = w
			}
			assert.Equal(t, c.want, p.Steps(nil, c.op))
			kept := []Step{{Action: Delete}}
			assert.Equal(t, append(kept, c.want...), p.Steps(kept, c.op), "appended to what was there")
		})
	}
}

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		name string
		p    Params
		want []string // what the error says; none: valid
	}{
		{"append", Params{Run: run, Profile: Append, PayloadMin: 100, PayloadMax: 400}, nil},
		{"churn", Params{Run: run, Profile: Churn, PayloadMax: MaxPayload, Window: MaxWindow}, nil},
		{"everything at once", Params{Profile: "mystery", PayloadMin: 3, PayloadMax: 2}, []string{"run id", "mystery", "3..2"}},
		{"payload too long", Params{Run: run, Profile: Append, PayloadMax: MaxPayload + 1}, []string{"16385"}},
		{"payload negative", Params{Run: run, Profile: Append, PayloadMin: -1}, []string{"-1..0"}},
		{"window too small", Params{Run: run, Profile: Churn, Window: MinWindow - 1}, []string{"window 7"}},
		{"window too great", Params{Run: run, Profile: Churn, Window: MaxWindow + 1}, []string{"window 65537"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.p.Validate()
			if len(c.want) == 0 {
				assert.NoError(t, err)
				return
			}
			require.Error(t, err)
			for _, part := range c.want {
				assert.True(t, strings.Contains(err.Error(), part), "%q in %v", part, err)
			}
		})
	}
}

func TestProfiles(t *testing.T) {
	for _, p := range Profiles() {
		assert.NotEmpty(t, p.Tables(), p)
	}
	assert.Nil(t, Profile("mystery").Tables())
	names := map[string]bool{}
	for table := TableAppend; table <= TableChurn; table++ {
		names[table.String()] = true
	}
	assert.Equal(t, map[string]bool{"append": true, "transfer_a": true, "transfer_b": true, "transfer_head": true, "churn": true}, names)
}

func TestNoAllocations(t *testing.T) {
	p := params(100, 400)
	r := Row{Table: TableAppend, Stream: 1, Seq: 1, Version: 1, Run: run}
	buf := make([]byte, 0, 400)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		r.Seq++
		r.Payload = p.AppendPayload(buf, r.Table, r.Stream, r.Seq, r.Version)
		if !p.Intact(&r) {
			t.Error("not intact")
		}
	}))
}

func BenchmarkIntact(b *testing.B) {
	p := params(100, 400)
	r := rand.New(rand.NewPCG(1, 1))
	rows := make([]Row, 1024)
	var bytes int64
	for i := range rows {
		n := Seq(r.Uint64())
		rows[i] = Row{TableAppend, 1, n, 1, run, p.AppendPayload(nil, TableAppend, 1, n, 1)}
		bytes += int64(len(rows[i].Payload))
	}
	b.ReportAllocs()
	b.SetBytes(bytes / int64(len(rows)))
	i := 0
	for b.Loop() {
		if !p.Intact(&rows[i&1023]) {
			b.Fatal("not intact")
		}
		i++
	}
}
