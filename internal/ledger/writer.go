package ledger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// groupDelay is how long a record may wait for others before it is
	// written. With a disk that syncs in 2 ms it is durable within 10 ms.
	groupDelay = 8 * time.Millisecond
	// bufferLimit bounds each of the two buffers, in bytes: at most twice as
	// much is waiting for the disk.
	bufferLimit = 32 << 20
)

// Writer appends to a ledger. Appending only fills a buffer; a goroutine
// writes and syncs it, a group at a time, within 10 ms or when Sync asks. The
// first error of the disk ends the writer: it is never tried again, because after
// a failed fsync nobody knows what the file holds. All methods may be called
// concurrently.
type Writer struct {
	path  string
	file  file
	limit int

	kick    chan struct{} // wakes the goroutine; capacity 1
	failed  chan struct{} // closed after err is set
	stopped chan struct{} // closed when the goroutine has ended
	closing sync.Once     // guards closing the file
	closed  error         // what closing returned

	mu       sync.Mutex
	room     sync.Cond // pending was taken, or the writer failed or closes
	codec    codec
	pending  []byte    // what is not written yet
	spare    []byte    // the other buffer, empty; nil while it is being written
	first    time.Time // when pending was given its first record
	hurry    bool      // somebody waits for pending
	shut     bool      // no more appends
	next     LSN       // of the next record
	durable  LSN
	progress chan struct{} // closed and replaced when durable moves, closed for good by an error
	err      error
}

// startWriter begins a writer that continues at next, and its goroutine, which
// Close ends.
func startWriter(f file, path string, h Header, next LSN, limit int) *Writer {
	w := &Writer{
		path: path, file: f, limit: limit,
		kick:     make(chan struct{}, 1),
		failed:   make(chan struct{}),
		stopped:  make(chan struct{}),
		progress: make(chan struct{}),
		codec:    newCodec(h.Run),
		next:     next,
		durable:  next,
		pending:  make([]byte, 0, 64<<10),
		spare:    make([]byte, 0, 64<<10),
	}
	w.room.L = &w.mu
	go w.run()
	return w
}

// Append adds a record and returns the position after it, which [Writer.SyncTo]
// waits for. It copies the text and does not wait for the disk, unless
// 32 MiB are waiting to be written: then it blocks until they are taken. It
// returns ErrRecord, ErrClosed or the error that ended the writer.
func (w *Writer) Append(r Record) (LSN, error) {
	if err := appendable(&r); err != nil {
		return 0, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.reserve(recordSize + len(r.Text)); err != nil {
		return 0, err
	}
	w.put(&r)
	return w.next, nil
}

// AppendAll adds records, in order and with no other between them, as Append
// does: all of them or, with an error, none. After a crash the file may end
// within them.
func (w *Writer) AppendAll(rs []Record) (LSN, error) {
	size := 0
	for i := range rs {
		if err := appendable(&rs[i]); err != nil {
			return 0, err
		}
		size += recordSize + len(rs[i].Text)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.reserve(size); err != nil {
		return 0, err
	}
	for i := range rs {
		w.put(&rs[i])
	}
	return w.next, nil
}

func appendable(r *Record) error {
	if r.Kind == KindText && TextKey(r.Code) == TextConfig {
		return fmt.Errorf("%w: the configuration never changes", ErrRecord)
	}
	return r.check()
}

// reserve waits for room for size bytes; what is greater than the buffer has
// to find it empty. w.mu is held.
func (w *Writer) reserve(size int) error {
	for {
		switch {
		case w.err != nil:
			return w.err
		case w.shut:
			return fmt.Errorf("ledger %s: append: %w", w.path, ErrClosed)
		case len(w.pending) == 0 || len(w.pending)+size <= w.limit:
			return nil
		}
		w.hurry = true
		w.wake()
		w.room.Wait()
	}
}

// put encodes r into the buffer. w.mu is held.
func (w *Writer) put(r *Record) {
	before := len(w.pending)
	if before == 0 {
		w.first = time.Now()
		w.wake()
	}
	w.pending = w.codec.append(w.pending, w.next, r)
	w.next += LSN((len(w.pending) - before) / recordSize)
}

func (w *Writer) wake() {
	select {
	case w.kick <- struct{}{}:
	default: // it is awake already
	}
}

// Sync hurries the disk and blocks until every record appended before the
// call is durable, ctx is done or the writer has failed. A cancelled Sync leaves the
// records to the goroutine.
func (w *Writer) Sync(ctx context.Context) error {
	w.mu.Lock()
	to := w.next
	w.hurry = len(w.pending) > 0
	if w.hurry {
		w.wake()
	}
	err := w.err
	w.mu.Unlock()
	if err != nil {
		return err
	}
	return w.SyncTo(ctx, to)
}

// SyncTo blocks until everything before position to is durable, ctx is done
// or the writer has failed. It does not hurry the disk.
func (w *Writer) SyncTo(ctx context.Context, to LSN) error {
	for {
		w.mu.Lock()
		durable, next, err, progress := w.durable, w.next, w.err, w.progress
		w.mu.Unlock()
		switch {
		case durable >= to:
			return nil
		case err != nil:
			return err
		case to > next:
			return fmt.Errorf("ledger %s: wait for record %d of %d: %w", w.path, to, next, ErrPosition)
		}
		select {
		case <-progress:
		case <-ctx.Done():
			return fmt.Errorf("ledger %s: wait for the disk: %w", w.path, context.Cause(ctx))
		}
	}
}

// Durable returns the position before which every record is durable. It does
// not block on the disk.
func (w *Writer) Durable() LSN {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.durable
}

// Failed is closed when the disk has refused a write or a sync. From then on
// nothing may be sent: it could not be recorded.
func (w *Writer) Failed() <-chan struct{} { return w.failed }

// Err returns the error that ended the writer, nil while there is none.
func (w *Writer) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Close makes everything appended durable, waits for the goroutine and gives
// up the lock. It blocks on the disk, returns the error that ended the writer, and may
// be called more than once.
func (w *Writer) Close() error {
	w.mu.Lock()
	w.shut = true
	w.wake()
	w.room.Broadcast()
	w.mu.Unlock()
	<-w.stopped
	w.closing.Do(func() {
		if err := w.file.Close(); err != nil {
			w.closed = fmt.Errorf("ledger %s: close: %w", w.path, err)
		}
	})
	return errors.Join(w.Err(), w.closed)
}

// run writes group after group until the writer is closed or fails.
func (w *Writer) run() {
	defer close(w.stopped)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		group, begin, ok := w.take(timer)
		if !ok || !w.commit(group, begin) {
			return
		}
	}
}

// take waits for a group that is due, swaps the buffers and returns it with
// the position at which it begins; false when the writer is closed and empty.
func (w *Writer) take(timer *time.Timer) ([]byte, LSN, bool) {
	for {
		w.mu.Lock()
		n := len(w.pending)
		wait := time.Duration(0)
		if n > 0 && !w.hurry && !w.shut {
			wait = time.Until(w.first.Add(groupDelay))
		}
		if n > 0 && wait <= 0 {
			group := w.pending
			w.pending, w.spare, w.hurry = w.spare, nil, false
			begin := w.next - LSN(n/recordSize)
			w.room.Broadcast()
			w.mu.Unlock()
			return group, begin, true
		}
		shut := w.shut
		w.mu.Unlock()

		switch {
		case n == 0 && shut:
			return nil, 0, false
		case n == 0:
			<-w.kick
		default:
			timer.Reset(wait)
			select {
			case <-w.kick:
			case <-timer.C:
			}
		}
	}
}

// commit makes a group durable; false when that failed.
func (w *Writer) commit(group []byte, begin LSN) bool {
	err := w.write(group, begin)
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.progress)
	if err != nil {
		w.err = err
		w.pending = nil
		close(w.failed)
		w.room.Broadcast()
		return false
	}
	w.progress = make(chan struct{})
	w.durable = begin + LSN(len(group)/recordSize)
	w.spare = group[:0]
	return true
}

func (w *Writer) write(group []byte, begin LSN) error {
	if _, err := w.file.WriteAt(group, offset(begin)); err != nil {
		return fmt.Errorf("ledger %s: write %d bytes at %d: %w", w.path, len(group), offset(begin), advise(err))
	}
	if err := w.file.Datasync(); err != nil {
		return fmt.Errorf("ledger %s: fdatasync: %w", w.path, advise(err))
	}
	return nil
}
