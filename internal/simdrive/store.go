package simdrive

import (
	"errors"
	"fmt"
	"io"
)

const (
	// SectorSize is the unit of addressing, in bytes: no version of a sector is
	// ever mixed with another.
	SectorSize = 512
	// BlockSize is the unit of the cache and of the durable contents, in bytes.
	BlockSize = 4096

	perBlock = BlockSize / SectorSize
)

type block [BlockSize]byte

// mask has one bit for each sector of a block.
type mask uint8

const fullBlock mask = 0xff

// sectors returns the mask of n sectors from the first on.
func sectors(first, n int) mask { return mask((1<<n - 1) << first) }

// copySectors copies the sectors of m, in runs.
func copySectors(dst, src *block, m mask) {
	if m == fullBlock {
		*dst = *src
		return
	}
	for i := 0; i < perBlock; i++ {
		if m&(1<<i) == 0 {
			continue
		}
		j := i + 1
		for j < perBlock && m&(1<<j) != 0 {
			j++
		}
		copy(dst[i*SectorSize:j*SectorSize], src[i*SectorSize:j*SectorSize])
		i = j
	}
}

// Base holds the durable contents of a drive outside of it, for example in a
// sparse file. What lies beyond its end reads as zeros; the drive never reads
// or writes beyond its own size, and no other party may write meanwhile.
type Base interface {
	io.ReaderAt
	io.WriterAt
}

// store is the medium: what reads return where the cache has nothing.
type store interface {
	read(b int64, dst *block) error
	// write makes the sectors of m durable. With give, data belongs to the store
	// from then on unless an error is returned. The spare buffer, which can be
	// data itself or nil, belongs to the caller.
	write(b int64, data *block, m mask, give bool) (spare *block, err error)
	isZero(b int64) (bool, error)
}

// memStore is a sparse medium in memory; a block that is not there is zeros.
type memStore struct {
	blocks map[int64]*block
	zero   *block // the shared block of zeros, known by its address
}

func newMemStore(zero *block) *memStore {
	return &memStore{blocks: make(map[int64]*block), zero: zero}
}

func (s *memStore) read(b int64, dst *block) error {
	if have := s.blocks[b]; have != nil {
		*dst = *have
	} else {
		clear(dst[:])
	}
	return nil
}

func (s *memStore) write(b int64, data *block, m mask, give bool) (*block, error) {
	have := s.blocks[b]
	switch {
	case m == fullBlock && data == s.zero:
		delete(s.blocks, b)
		return have, nil
	case m == fullBlock && give:
		s.blocks[b] = data
		return have, nil
	case have == nil:
		have = new(block)
		s.blocks[b] = have
	}
	copySectors(have, data, m)
	return spareOf(data, give), nil
}

// spareOf is what a store that copies hands back.
func spareOf(data *block, give bool) *block {
	if give {
		return data
	}
	return nil
}

func (s *memStore) isZero(b int64) (bool, error) {
	have := s.blocks[b]
	return have == nil || *have == *s.zero, nil
}

// baseStore is a medium in a Base.
type baseStore struct{ base Base }

func (s baseStore) read(b int64, dst *block) error {
	n, err := s.base.ReadAt(dst[:], b*BlockSize)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the durable contents at %d: %w", b*BlockSize, err)
	}
	clear(dst[n:])
	return nil
}

func (s baseStore) write(b int64, data *block, m mask, give bool) (*block, error) {
	for i := 0; i < perBlock; i++ {
		if m&(1<<i) == 0 {
			continue
		}
		j := i + 1
		for j < perBlock && m&(1<<j) != 0 {
			j++
		}
		off := b*BlockSize + int64(i)*SectorSize
		if _, err := s.base.WriteAt(data[i*SectorSize:j*SectorSize], off); err != nil {
			return nil, fmt.Errorf("write the durable contents at %d: %w", off, err)
		}
		i = j
	}
	return spareOf(data, give), nil
}

func (s baseStore) isZero(b int64) (bool, error) {
	var buf block
	if err := s.read(b, &buf); err != nil {
		return false, err
	}
	return buf == block{}, nil
}
