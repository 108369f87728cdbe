package ledger

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
)

// readBuffer is the size of a reader's buffer, in bytes.
const readBuffer = 1 << 20

// Tail is what a reader left out at the end of a ledger: records that did not
// reach the disk whole.
type Tail struct {
	Bytes   int64
	Records int64 // also the one of which only a part is there
}

// String is a sentence for people, empty when nothing was dropped.
func (t Tail) String() string {
	if t.Bytes == 0 {
		return ""
	}
	plural := "s"
	if t.Records == 1 {
		plural = ""
	}
	return fmt.Sprintf("torn tail: the last %d bytes (%d record%s) did not reach the disk whole and were left out", t.Bytes, t.Records, plural)
}

// Reader reads a ledger from its beginning in bounded memory. It takes no
// lock: the ledger may be written at the same time. A Reader is used by one
// goroutine at a time.
type Reader struct {
	src    io.ReaderAt
	close  func() error
	path   string
	header Header
	config Config
	codec  codec

	next LSN    // of the record that Next returns
	text []byte // the buffer of the last text
	tail Tail

	buf   []byte
	begin LSN    // the first record in have
	have  []byte // whole records, a part of buf
	size  int64  // of the file, as of the last read that met its end
}

// OpenReader opens the ledger at path and reads header and configuration.
// Errors: ErrNotLedger, *VersionError, ErrShortHeader, ErrHeader, ErrNoConfig,
// ErrConfig, *DamagedError, or the file system's.
func OpenReader(path string) (*Reader, error) {
	// Looked at before it is opened, because opening a pipe would block.
	if st, err := os.Stat(path); err == nil && !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file: %w", path, ErrNotLedger)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	r, err := newReader(f, path, readBuffer)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	r.close = f.Close
	return r, nil
}

// newReader reads src through a buffer of size bytes, a multiple of recordSize.
func newReader(src io.ReaderAt, path string, size int) (*Reader, error) {
	r := &Reader{src: src, path: path, close: func() error { return nil }, buf: make([]byte, size)}
	n, err := src.ReadAt(r.buf[:headerSize], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("ledger %s: read the header: %w", path, err)
	}
	if r.header, err = parseHeader(r.buf[:n], path); err != nil {
		return nil, err
	}
	r.codec = newCodec(r.header.Run)

	var rec Record
	ok, err := r.Next(&rec)
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, fmt.Errorf("ledger %s: %w", path, ErrNoConfig)
	case rec.Kind != KindText || TextKey(rec.Code) != TextConfig:
		return nil, r.damaged(0, "the configuration was expected")
	}
	if r.config, err = parseConfig(rec.Text, r.header); err != nil {
		return nil, fmt.Errorf("ledger %s: %w", path, err)
	}
	return r, nil
}

// Header returns the ledger's header.
func (r *Reader) Header() Header { return r.header }

// Config returns the ledger's configuration. Next begins after it.
func (r *Reader) Config() Config { return r.config }

// Dropped returns what the last Next that returned false left out.
func (r *Reader) Dropped() Tail { return r.tail }

// Close closes the file.
func (r *Reader) Close() error { return r.close() }

// Index returns the position of the record that Next returns next: where
// Seek can go on later.
func (r *Reader) Index() LSN { return r.next }

// Seek lets Next go on at position i, which must be one that Index or a Writer
// returned. The record before it is checked: ErrPosition when the ledger ends
// before it.
func (r *Reader) Seek(i LSN) error {
	if i > math.MaxInt64/recordSize-1 {
		return fmt.Errorf("ledger %s: go on at record %d: %w", r.path, i, ErrPosition)
	}
	if i > 0 {
		b, err := r.at(i - 1)
		if err != nil {
			return err
		}
		if b == nil {
			return fmt.Errorf("ledger %s: go on at record %d: %w", r.path, i, ErrPosition)
		}
	}
	r.next, r.tail = i, Tail{}
	return nil
}

// Next reads the next record into rec, whose text is valid until the next
// call. False at the end: Dropped then tells of a torn tail, and a later call looks
// whether the ledger has grown. A *DamagedError is final. It blocks on the
// file.
func (r *Reader) Next(rec *Record) (bool, error) {
	b, err := r.at(r.next)
	if err != nil {
		return false, err
	}
	if b == nil {
		return false, r.end()
	}
	if Kind(b[0]) == KindText {
		return r.nextText(b, rec)
	}
	if err := parse(b, rec); err != nil {
		return false, r.damaged(r.next, err.Error())
	}
	r.next++
	return true, nil
}

// nextText reads the text that begins with the record b.
func (r *Reader) nextText(b []byte, rec *Record) (bool, error) {
	rec.Text = r.text
	for chunk := 0; ; chunk++ {
		i := r.next + LSN(chunk)
		last, err := parseChunk(b, chunk, rec)
		r.text = rec.Text
		if err != nil {
			return false, r.damaged(i, err.Error())
		}
		if last {
			if TextKey(rec.Code) == TextConfig && r.next > 0 {
				return false, r.damaged(r.next, "a second configuration")
			}
			r.next = i + 1
			return true, nil
		}
		if b, err = r.at(i + 1); err != nil {
			return false, err
		}
		if b == nil {
			return false, r.end() // a text whose end is missing belongs to the torn tail
		}
	}
}

// end notes what is left out from the current position on.
func (r *Reader) end() error {
	n := max(r.size-offset(r.next), 0)
	r.tail = Tail{Bytes: n, Records: (n + recordSize - 1) / recordSize}
	return nil
}

func (r *Reader) damaged(i LSN, reason string) error {
	return &DamagedError{Path: r.path, Index: i, Offset: offset(i), Reason: reason}
}

// at returns record i, checked, or nil when neither it nor any after it is
// valid. The slice is valid until the next call.
func (r *Reader) at(i LSN) ([]byte, error) {
	if b := r.cached(i); b != nil && r.codec.valid(b, i) {
		return b, nil
	}
	// Read again before judging: a writer that continues a ledger replaces a
	// torn tail which the buffer may still hold.
	b, err := r.load(i)
	if err != nil || b == nil || r.codec.valid(b, i) {
		return b, err
	}
	later, found, err := r.findValid(i + 1)
	if err != nil || !found {
		return nil, err
	}
	// And again: the record may have been replaced before the later one was read.
	if b, err = r.load(i); err != nil || b != nil && r.codec.valid(b, i) {
		return b, err
	}
	return nil, r.damaged(i, fmt.Sprintf("its checksum is wrong and record %d after it is valid", later))
}

// findValid returns the first valid record from i to the end of the file.
func (r *Reader) findValid(i LSN) (LSN, bool, error) {
	for ; ; i++ {
		b := r.cached(i)
		if b == nil {
			var err error
			if b, err = r.load(i); err != nil || b == nil {
				return 0, false, err
			}
		}
		if r.codec.valid(b, i) {
			return i, true, nil
		}
	}
}

// cached returns record i, unchecked, or nil when the buffer does not hold it.
func (r *Reader) cached(i LSN) []byte {
	at := (i - r.begin) * recordSize
	if i < r.begin || at >= LSN(len(r.have)) {
		return nil
	}
	return r.have[at : at+recordSize]
}

// load fills the buffer from record i on and returns it, unchecked, or nil when
// the file ends before it is whole.
func (r *Reader) load(i LSN) ([]byte, error) {
	n, err := r.src.ReadAt(r.buf, offset(i))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("ledger %s: read at byte %d: %w", r.path, offset(i), err)
	}
	if n < len(r.buf) {
		r.size = offset(i) + int64(n)
	}
	r.begin, r.have = i, r.buf[:n-n%recordSize]
	return r.cached(i), nil
}
