package ledger

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/google/uuid"

	"plugpull/internal/clock"
	"plugpull/internal/workload"
)

// MaxText is the length of the longest text, in bytes.
const MaxText = 64 << 10

// LSN is a position in a ledger: the number of records before it. Record n
// is durable when [Writer.Durable] is past n. A text takes several records.
type LSN uint64

const (
	magic      = "plugpull ledger\n"
	version    = 1
	headerSize = 64
	recordSize = 64
	sumAt      = recordSize - 4 // offset of the checksum, in header and record
	zeroAt     = 56             // offset of the bytes that are zero, in header and record

	chunkAt   = 9 // offset of a text's bytes
	chunkSize = sumAt - chunkAt
	lastChunk = 0x80 // set in the length byte of a text's last chunk
)

// offset returns where record i begins in the file.
func offset(i LSN) int64 { return headerSize + int64(i)*recordSize }

// castagnoli is never written to.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Header is the fixed part at the beginning of a ledger.
type Header struct {
	Run  uuid.UUID
	Boot uuid.UUID // of the control host when the ledger was created
}

func (h Header) append(dst []byte) []byte {
	at := len(dst)
	dst = append(dst, magic...)
	dst = binary.LittleEndian.AppendUint32(dst, version)
	dst = binary.LittleEndian.AppendUint32(dst, recordSize)
	dst = append(dst, h.Run[:]...)
	dst = append(dst, h.Boot[:]...)
	dst = append(dst, 0, 0, 0, 0)
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[at:], castagnoli))
}

// parseHeader decodes what is there of a header. The version is judged before
// the checksum: another version may keep its checksum elsewhere.
func parseHeader(b []byte, path string) (Header, error) {
	le := binary.LittleEndian
	if n := min(len(b), len(magic)); string(b[:n]) != magic[:n] {
		return Header{}, fmt.Errorf("%s: %w", path, ErrNotLedger)
	}
	if len(b) < headerSize {
		return Header{}, fmt.Errorf("ledger %s: %w", path, ErrShortHeader)
	}
	if v := le.Uint32(b[16:]); v != version {
		return Header{}, &VersionError{Path: path, Found: v, Supported: version}
	}
	if crc32.Checksum(b[:sumAt], castagnoli) != le.Uint32(b[sumAt:]) ||
		le.Uint32(b[20:]) != recordSize || le.Uint32(b[zeroAt:]) != 0 {
		return Header{}, fmt.Errorf("ledger %s: %w", path, ErrHeader)
	}
	return Header{Run: uuid.UUID(b[24:40]), Boot: uuid.UUID(b[40:56])}, nil
}

// codec computes the checksums of one run's records. It is used by one
// goroutine at a time.
type codec struct {
	seed  uint32  // the checksum of the run id, with which every record's begins
	index [8]byte // a field, because what crc32 is given escapes
}

func newCodec(run uuid.UUID) codec {
	return codec{seed: crc32.Checksum(run[:], castagnoli)}
}

func (c *codec) sum(b []byte, i LSN) uint32 {
	binary.LittleEndian.PutUint64(c.index[:], uint64(i))
	return crc32.Update(crc32.Update(c.seed, castagnoli, c.index[:]), castagnoli, b[:sumAt])
}

// valid reports whether b holds record i of the run. Only then may b be parsed.
func (c *codec) valid(b []byte, i LSN) bool {
	return c.sum(b, i) == binary.LittleEndian.Uint32(b[sumAt:])
}

// append encodes r, which must have passed check, as record i and, for a text,
// those after it. It allocates only to grow dst.
func (c *codec) append(dst []byte, i LSN, r *Record) []byte {
	if r.Kind == KindText {
		return c.appendText(dst, i, r)
	}
	dst, b := extend(dst)
	le := binary.LittleEndian
	b[0] = byte(r.Kind)
	b[1] = r.Code
	le.PutUint16(b[2:], uint16(r.Stream))
	le.PutUint32(b[4:], r.Session)
	le.PutUint64(b[8:], uint64(r.From))
	le.PutUint64(b[16:], uint64(r.To))
	le.PutUint64(b[24:], uint64(r.Sent))
	le.PutUint64(b[32:], uint64(r.Answered))
	le.PutUint32(b[40:], r.Errno)
	le.PutUint32(b[44:], r.Cycle)
	le.PutUint64(b[48:], r.Count)
	le.PutUint32(b[sumAt:], c.sum(b, i))
	return dst
}

func (c *codec) appendText(dst []byte, i LSN, r *Record) []byte {
	text := r.Text
	for chunk := uint16(0); ; chunk++ {
		n := min(len(text), chunkSize)
		size := byte(n)
		if n == len(text) {
			size |= lastChunk
		}
		var b []byte
		dst, b = extend(dst)
		b[0] = byte(KindText)
		b[1] = r.Code
		binary.LittleEndian.PutUint16(b[2:], chunk)
		binary.LittleEndian.PutUint32(b[4:], r.Session)
		b[8] = size
		copy(b[chunkAt:], text[:n])
		binary.LittleEndian.PutUint32(b[sumAt:], c.sum(b, i+LSN(chunk)))
		if text = text[n:]; len(text) == 0 {
			return dst
		}
	}
}

// extend appends the room of one record, all zero, and returns it.
func extend(dst []byte) (all, b []byte) {
	all = append(dst, make([]byte, recordSize)...) // the compiler allocates no slice here
	return all, all[len(dst):len(all):len(all)]
}

// parse decodes a record that is not a text.
func parse(b []byte, r *Record) error {
	le := binary.LittleEndian
	// Field by field: assigning a whole Record, which holds a pointer, costs a
	// write barrier a record while the garbage collector runs.
	r.Kind = Kind(b[0])
	r.Code = b[1]
	r.Stream = workload.Stream(le.Uint16(b[2:]))
	r.Session = le.Uint32(b[4:])
	r.From = workload.Seq(le.Uint64(b[8:]))
	r.To = workload.Seq(le.Uint64(b[16:]))
	r.Sent = clock.Instant(le.Uint64(b[24:]))
	r.Answered = clock.Instant(le.Uint64(b[32:]))
	r.Errno = le.Uint32(b[40:])
	r.Cycle = le.Uint32(b[44:])
	r.Count = le.Uint64(b[48:])
	r.Text = nil
	if le.Uint32(b[zeroAt:]) != 0 {
		return fmt.Errorf("%w: bytes 56–59 are not zero", ErrRecord)
	}
	return r.check()
}

// parseChunk decodes chunk number want of a text, whose key, session and text
// so far r holds. It is strict, so that a text has one encoding only.
func parseChunk(b []byte, want int, r *Record) (last bool, err error) {
	le := binary.LittleEndian
	key, session := b[1], le.Uint32(b[4:])
	if want == 0 {
		*r = Record{Kind: KindText, Code: key, Session: session, Text: r.Text[:0]}
	}
	if Kind(b[0]) != KindText || int(le.Uint16(b[2:])) != want || key != r.Code || session != r.Session {
		return false, fmt.Errorf("%w: chunk %d of a text was expected", ErrRecord, want)
	}
	n := int(b[8] &^ lastChunk)
	last = b[8]&lastChunk != 0
	if n > chunkSize || n < chunkSize && !last || n == 0 && want > 0 {
		return false, fmt.Errorf("%w: a chunk of %d bytes", ErrRecord, n)
	}
	for _, x := range b[chunkAt+n : sumAt] {
		if x != 0 {
			return false, fmt.Errorf("%w: bytes after the end of a text are not zero", ErrRecord)
		}
	}
	r.Text = append(r.Text, b[chunkAt:chunkAt+n]...)
	return last, r.check()
}
