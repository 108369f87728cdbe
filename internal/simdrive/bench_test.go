package simdrive

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
)

// benchHandle powers a drive on.
func benchHandle(b *testing.B, cfg Config) (*Drive, *Handle) {
	b.Helper()
	d, err := New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	h, err := d.PowerOn()
	if err != nil {
		b.Fatal(err)
	}
	return d, h
}

// BenchmarkWrite4K writes 4 KiB blocks over 64 MiB that were written before, with
// a flush every so many writes; 0: none.
func BenchmarkWrite4K(b *testing.B) {
	const size = 64 << 20
	for _, random := range []bool{false, true} {
		for _, survive := range []Survive{SurviveNone, SurviveRandom} {
			for _, flushEach := range []int{0, 1, 1024} {
				name := fmt.Sprintf("random=%v/survive=%s/flush=%d", random, survive, flushEach)
				b.Run(name, func(b *testing.B) {
					_, h := benchHandle(b, Config{Size: size, Survive: survive})
					p := make([]byte, BlockSize)
					for range 2 { // fill the pools
						for off := int64(0); off < size; off += BlockSize {
							if _, err := h.WriteAt(p, off); err != nil {
								b.Fatal(err)
							}
						}
						if err := h.Flush(); err != nil {
							b.Fatal(err)
						}
					}
					rng := rand.New(rand.NewPCG(1, 1))
					b.SetBytes(BlockSize)
					b.ReportAllocs()
					i := 0
					for b.Loop() {
						at := int64(i)
						if random {
							at = rng.Int64N(size / BlockSize)
						}
						if _, err := h.WriteAt(p, at%(size/BlockSize)*BlockSize); err != nil {
							b.Fatal(err)
						}
						if i++; flushEach > 0 && i%flushEach == 0 {
							if err := h.Flush(); err != nil {
								b.Fatal(err)
							}
						}
					}
				})
			}
		}
	}
}

// BenchmarkSectorWrites writes single sectors at random, which share blocks.
func BenchmarkSectorWrites(b *testing.B) {
	const size = 64 << 20
	_, h := benchHandle(b, Config{Size: size, Survive: SurviveRandom})
	p := make([]byte, SectorSize)
	rng := rand.New(rand.NewPCG(1, 1))
	b.SetBytes(SectorSize)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := h.WriteAt(p, rng.Int64N(size/SectorSize)*SectorSize); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkMemory reports the memory held for each dirty byte, by how often each
// block was written.
func BenchmarkMemory(b *testing.B) {
	const size = 64 << 20
	for _, passes := range []int{1, 4} {
		b.Run(fmt.Sprintf("passes=%d", passes), func(b *testing.B) {
			p := make([]byte, BlockSize)
			for b.Loop() {
				var before, after runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&before)
				d, h := benchHandle(b, Config{Size: size, Survive: SurviveRandom})
				for range passes {
					for off := int64(0); off < size; off += BlockSize {
						if _, err := h.WriteAt(p, off); err != nil {
							b.Fatal(err)
						}
					}
				}
				runtime.GC()
				runtime.ReadMemStats(&after)
				b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(d.Stats().DirtyBytes), "B/dirtyB")
			}
		})
	}
}

// BenchmarkCycle is a whole cycle of a small load: power-on, writes, flushes, cut.
func BenchmarkCycle(b *testing.B) {
	d, err := New(Config{Size: 16 << 20, Survive: SurviveRandom})
	if err != nil {
		b.Fatal(err)
	}
	p := make([]byte, BlockSize)
	for b.Loop() {
		h, err := d.PowerOn()
		if err != nil {
			b.Fatal(err)
		}
		for i := range int64(300) {
			if _, err := h.WriteAt(p, i*BlockSize); err != nil {
				b.Fatal(err)
			}
			if i%3 == 0 {
				if err := h.Flush(); err != nil {
					b.Fatal(err)
				}
			}
		}
		d.Cut()
	}
}
