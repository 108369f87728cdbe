package simdrive

import "math/rand/v2"

// Streams of randomness, one set for each generation. See the package comment.
const (
	streamSample  = 0
	streamDestage = 1
	streamCut     = 2
	streamFault   = 16 // + the fault's index in Config.Faults
)

// newRand returns the generator of one stream of one generation.
func newRand(seed, generation, stream uint64) *rand.Rand {
	a := splitmix(seed)
	b := splitmix(a ^ generation)
	c := splitmix(b ^ stream)
	return rand.New(rand.NewPCG(c, splitmix(c)))
}

// splitmix is the finaliser of splitmix64: neighbouring seeds and generations
// must not give related sequences.
func splitmix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
