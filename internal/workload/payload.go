package workload

import (
	"encoding/binary"
	"math/bits"
)

// AppendPayload appends to dst the payload of a row. Its length lies between
// PayloadMin and PayloadMax and, like its bytes, follows from the run, table,
// stream, number and version.
func (p *Params) AppendPayload(dst []byte, t Table, s Stream, n Seq, v Version) []byte {
	g, size := p.generator(t, s, n, v)
	for size >= 8 {
		dst = binary.LittleEndian.AppendUint64(dst, g.next())
		size -= 8
	}
	if size > 0 {
		var last [8]byte
		binary.LittleEndian.PutUint64(last[:], g.next())
		dst = append(dst, last[:size]...)
	}
	return dst
}

// Intact reports whether every byte of the row is as it was sent: run id,
// version (2 is sent by churn only), payload. It allocates nothing.
func (p *Params) Intact(r *Row) bool {
	if r.Run != p.Run || r.Version != 1 && (r.Version != 2 || r.Table != TableChurn) {
		return false
	}
	g, size := p.generator(r.Table, r.Stream, r.Seq, r.Version)
	b := r.Payload
	if len(b) != size {
		return false
	}
	// Four words at a time: they do not depend on each other, and the verifier spends
	// much of its time here.
	for len(b) >= 32 {
		z := uint64(g)
		diff := binary.LittleEndian.Uint64(b) ^ mix(z+gamma)
		diff |= binary.LittleEndian.Uint64(b[8:]) ^ mix(z+2*gamma&mask)
		diff |= binary.LittleEndian.Uint64(b[16:]) ^ mix(z+3*gamma&mask)
		diff |= binary.LittleEndian.Uint64(b[24:]) ^ mix(z+4*gamma&mask)
		if diff != 0 {
			return false
		}
		g += generator(4 * gamma & mask)
		b = b[32:]
	}
	for len(b) >= 8 {
		if binary.LittleEndian.Uint64(b) != g.next() {
			return false
		}
		b = b[8:]
	}
	if len(b) > 0 {
		var last, want [8]byte
		copy(last[:], b)
		binary.LittleEndian.PutUint64(want[:], g.next())
		clear(want[len(b):])
		return last == want
	}
	return true
}

// generator is a splitmix64 sequence: fast, seedable anywhere, and any two
// rows' sequences differ from the first word on.
type generator uint64

// gamma is splitmix64's increment. Its multiples, which are constants of unlimited size, wrap
// at mask.
const (
	gamma = 0x9e3779b97f4a7c15
	mask  = 1<<64 - 1
)

func (g *generator) next() uint64 {
	*g += gamma
	return mix(uint64(*g))
}

func (p *Params) generator(t Table, s Stream, n Seq, v Version) (generator, int) {
	h := mix(binary.LittleEndian.Uint64(p.Run[:8]) ^ uint64(t)<<56 ^ uint64(v)<<48 ^ uint64(s))
	h = mix(h ^ binary.LittleEndian.Uint64(p.Run[8:]) ^ bits.RotateLeft64(uint64(n), 17))
	span := uint64(p.PayloadMax - p.PayloadMin + 1)
	size, _ := bits.Mul64(mix(h^0x5851f42d4c957f2d), span)
	return generator(h), p.PayloadMin + int(size)
}

// mix is the finalizer of splitmix64 (Steele, Lea, Flood: Fast Splittable
// Pseudorandom Number Generators, 2014): a bijection on 64-bit words.
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
