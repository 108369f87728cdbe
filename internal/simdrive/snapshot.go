package simdrive

import (
	"errors"
	"io"
)

// keeper is a store that remembers what it held at the last cut: each block, before it
// is written for the first time since.
type keeper struct {
	store
	old map[int64]*block // nil before the first cut
}

func (k *keeper) write(b int64, data *block, m mask, give bool) (*block, error) {
	if k.old != nil && k.old[b] == nil {
		was := new(block)
		if err := k.store.read(b, was); err != nil {
			return nil, err
		}
		k.old[b] = was
	}
	return k.store.write(b, data, m, give)
}

func (k *keeper) readOld(b int64, dst *block) error {
	if was := k.old[b]; was != nil {
		*dst = *was
		return nil
	}
	return k.store.read(b, dst)
}

// ErrNoImage: there was no cut yet, or Config.KeepCut is not set.
var ErrNoImage = errors.New("no image of a cut is kept")

// CutImage returns what the last cut left on the medium, whatever was written since; Size
// bytes. It may be read until the next cut, and fails after that with ErrNoImage. Reading
// is a matter of the laboratory: it needs no power and counts as no request.
func (d *Drive) CutImage() (io.ReaderAt, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.keeper == nil || d.keeper.old == nil {
		return nil, ErrNoImage
	}
	return &cutImage{d, d.report}, nil
}

// WrittenSinceCut returns how many blocks of the medium were written since the last cut; with
// Config.KeepCut only. Without power it is zero, whoever still holds a handle.
func (d *Drive) WrittenSinceCut() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.keeper == nil {
		return 0
	}
	return len(d.keeper.old)
}

type cutImage struct {
	d   *Drive
	cut *CutReport // that it is of
}

// ReadAt implements io.ReaderAt.
func (c *cutImage) ReadAt(p []byte, off int64) (n int, err error) {
	d := c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.report != c.cut {
		return 0, ErrNoImage
	}
	for n < len(p) && off < d.cfg.Size {
		var buf block
		if err := d.keeper.readOld(off/BlockSize, &buf); err != nil {
			return n, err
		}
		part := copy(p[n:], buf[off%BlockSize:])
		n, off = n+part, off+int64(part)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}
