//go:build !race

package simdrive

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

const raceEnabled = false

// A steady load allocates nothing.
func TestWritesDoNotAllocate(t *testing.T) {
	r := newRig(t, Config{Survive: SurviveRandom})
	p := make([]byte, 8192)
	load := func() {
		for i := range int64(100) {
			if _, err := r.h.WriteAt(p, i*8192%(1<<20)); err != nil {
				t.Fatal(err)
			}
			if i%10 == 9 {
				if err := r.h.Flush(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	load()
	assert.Zero(t, testing.AllocsPerRun(20, load))
}
